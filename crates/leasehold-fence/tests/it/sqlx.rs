//! The fence in a PostgreSQL database, in transactions of sqlx.

use std::time::Duration;

use leasehold_core::{ErrorKind, Name, Token};
use leasehold_fence::{Checked, Mark, Seen, Stale, sqlx as fence};
use leasehold_testkit::servers::Postgres;
use sqlx::PgPool;

pub(crate) async fn connect(server: &Postgres) -> PgPool {
    let pool = PgPool::connect(&server.url()).await.unwrap();
    let log = "CREATE TABLE IF NOT EXISTS log (at bigserial, mark text)";
    sqlx::query(log).execute(&pool).await.unwrap();
    fence::prepare(&mut pool.acquire().await.unwrap())
        .await
        .unwrap();
    pool
}

fn stock() -> Name {
    Name::new("stock").unwrap()
}

fn mark(text: &str) -> Mark {
    text.parse().unwrap()
}

fn stale(seen: &str, yours: &str) -> Checked {
    Checked::Stale(Stale {
        seen: mark(seen).into(),
        yours: mark(yours),
    })
}

/// Offers a write; commits if it is accepted.
async fn write(pool: &PgPool, text: &str) -> leasehold_core::Result<Checked> {
    let mut transaction = pool.begin().await.unwrap();
    let checked = fence::check(&mut transaction, &stock(), mark(text)).await?;
    if checked == Checked::Accepted {
        sqlx::query("INSERT INTO log (mark) VALUES ($1)")
            .bind(text)
            .execute(&mut *transaction)
            .await
            .unwrap();
        transaction.commit().await.unwrap();
    }
    Ok(checked)
}

async fn log(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar("SELECT mark FROM log ORDER BY at")
        .fetch_all(pool)
        .await
        .unwrap()
}

async fn seen(pool: &PgPool) -> Seen {
    let mut connection = pool.acquire().await.unwrap();
    fence::seen(&mut connection, &stock()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_holder_writes_and_an_older_one_does_not() {
    let server = Postgres::start().unwrap();
    let pool = connect(&server).await;
    assert_eq!(seen(&pool).await, Seen::default());
    for (text, came) in [
        ("7", Checked::Accepted),
        ("7", Checked::Accepted),
        ("6", stale("7", "6")),
        ("1.1", Checked::Accepted),
        ("9223372036854775807", stale("1.1", "9223372036854775807")),
        ("10.1", Checked::Accepted),
        ("9.9", stale("10.1", "9.9")),
    ] {
        assert_eq!(write(&pool, text).await.unwrap(), came, "{text}");
    }
    assert_eq!(log(&pool).await, ["7", "7", "1.1", "10.1"]);
    assert_eq!(seen(&pool).await, mark("10.1").into());
    let error = write(&pool, "9223372036854775808").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for (epoch, came) in [
        (9, Seen::new(10, Token::new(1))),
        (10, Seen::new(10, Token::new(1))),
        (u32::MAX, Seen::new(u32::MAX, None)),
    ] {
        let mut transaction = pool.begin().await.unwrap();
        let advanced = fence::advance(&mut transaction, &stock(), epoch).await;
        assert_eq!(advanced.unwrap(), came);
        transaction.commit().await.unwrap();
    }
    let late = write(&pool, "10.2").await.unwrap();
    assert!(matches!(late, Checked::Stale(_)), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_holder_that_was_accepted_first_is_waited_for() {
    let server = Postgres::start().unwrap();
    let pool = connect(&server).await;
    let mut open = pool.begin().await.unwrap();
    let checked = fence::check(&mut open, &stock(), mark("7")).await;
    assert_eq!(checked.unwrap(), Checked::Accepted);
    // From a task of its own, as anything that can be sent.
    let newer = pool.clone();
    let waiting = tokio::spawn(async move {
        let mut transaction = newer.begin().await.unwrap();
        let checked = fence::check(&mut transaction, &stock(), mark("8"))
            .await
            .unwrap();
        let seen: Vec<String> = sqlx::query_scalar("SELECT mark FROM log ORDER BY at")
            .fetch_all(&mut *transaction)
            .await
            .unwrap();
        transaction.commit().await.unwrap();
        (checked, seen)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(
        !waiting.is_finished(),
        "two fenced transactions of one resource overlap"
    );
    sqlx::query("INSERT INTO log (mark) VALUES ('7')")
        .execute(&mut *open)
        .await
        .unwrap();
    open.commit().await.unwrap();
    let came = waiting.await.unwrap();
    assert_eq!(came, (Checked::Accepted, vec!["7".to_owned()]));
    assert_eq!(write(&pool, "7").await.unwrap(), stale("8", "7"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commit_of_a_mark_waits_for_the_disk_though_the_session_does_not() {
    let server = Postgres::start().unwrap();
    let pool = connect(&server).await;
    let mut transaction = pool.begin().await.unwrap();
    sqlx::query("SET LOCAL synchronous_commit = off")
        .execute(&mut *transaction)
        .await
        .unwrap();
    let checked = fence::check(&mut transaction, &stock(), mark("7")).await;
    assert_eq!(checked.unwrap(), Checked::Accepted);
    let set: String = sqlx::query_scalar("SHOW synchronous_commit")
        .fetch_one(&mut *transaction)
        .await
        .unwrap();
    assert_eq!(set, "on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_errors_say_what_to_do() {
    let server = Postgres::start().unwrap();
    let pool = connect(&server).await;
    let mut open = pool.begin().await.unwrap();
    let checked = fence::check(&mut open, &stock(), mark("7")).await;
    assert_eq!(checked.unwrap(), Checked::Accepted);
    let strict = pool.clone();
    let waiting = tokio::spawn(async move {
        let mut transaction = strict.begin().await.unwrap();
        sqlx::query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            .execute(&mut *transaction)
            .await
            .unwrap();
        // Begins the snapshot.
        sqlx::query("SELECT 1")
            .execute(&mut *transaction)
            .await
            .unwrap();
        fence::check(&mut transaction, &stock(), mark("8")).await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    open.commit().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error.to_string().contains("tried again as a whole"),
        "{error}"
    );
    sqlx::query("DROP TABLE leasehold_fence")
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(seen(&pool).await, Seen::default());
    let error = write(&pool, "7").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("with prepare"), "{error}");
    sqlx::query("CREATE ROLE app LOGIN")
        .execute(&pool)
        .await
        .unwrap();
    let app = PgPool::connect(&server.url().replace("postgres@", "app@")).await;
    let mut app = app.unwrap().acquire().await.unwrap();
    let error = fence::prepare(&mut app).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(
        error.to_string().contains("may not make the table"),
        "{error}"
    );
    assert!(
        error.to_string().contains("denied for schema public"),
        "{error}"
    );
}

//! The fence in a PostgreSQL database.

use std::time::Duration;

use leasehold_core::{ErrorKind, Name, Token};
use leasehold_fence::sql::POSTGRES;
use leasehold_fence::{Checked, Mark, Seen, Stale, postgres};
use leasehold_testkit::servers::Postgres;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, NoTls};

pub(crate) async fn connect(server: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute("CREATE TABLE IF NOT EXISTS log (at bigserial, mark text)")
        .await
        .unwrap();
    postgres::prepare(&client).await.unwrap();
    client
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
async fn write(client: &mut Client, text: &str) -> leasehold_core::Result<Checked> {
    let transaction = client.transaction().await.unwrap();
    let checked = postgres::check(&transaction, &stock(), mark(text)).await?;
    if checked == Checked::Accepted {
        transaction
            .execute("INSERT INTO log (mark) VALUES ($1)", &[&text])
            .await
            .unwrap();
        transaction.commit().await.unwrap();
    }
    Ok(checked)
}

async fn log(client: &Client) -> Vec<String> {
    let rows = client
        .query("SELECT mark FROM log ORDER BY at", &[])
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn the_newest_holder_writes_and_an_older_one_does_not() {
    let server = Postgres::start().unwrap();
    let mut client = connect(&server).await;
    assert_eq!(
        postgres::seen(&client, &stock()).await.unwrap(),
        Seen::default()
    );
    for (text, came) in [
        ("7", Checked::Accepted),
        ("7", Checked::Accepted),
        ("6", stale("7", "6")),
        ("1.1", Checked::Accepted),
        ("9223372036854775807", stale("1.1", "9223372036854775807")),
        ("10.1", Checked::Accepted),
        ("9.9", stale("10.1", "9.9")),
    ] {
        assert_eq!(write(&mut client, text).await.unwrap(), came, "{text}");
    }
    let mut other = connect(&server).await;
    assert_eq!(log(&other).await, ["7", "7", "1.1", "10.1"]);
    assert_eq!(
        postgres::seen(&other, &stock()).await.unwrap(),
        mark("10.1").into()
    );
    let error = write(&mut other, "9223372036854775808").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);

    let mut advance = async |epoch| {
        let transaction = other.transaction().await.unwrap();
        let seen = postgres::advance(&transaction, &stock(), epoch)
            .await
            .unwrap();
        transaction.commit().await.unwrap();
        seen
    };
    assert_eq!(advance(9).await, Seen::new(10, Token::new(1)));
    assert_eq!(advance(10).await, Seen::new(10, Token::new(1)));
    assert_eq!(advance(u32::MAX).await, Seen::new(u32::MAX, None));
    assert!(matches!(
        write(&mut client, "10.2").await.unwrap(),
        Checked::Stale(_)
    ));
}

#[tokio::test]
async fn a_prepared_check_decides_as_the_other_one_does() {
    let server = Postgres::start().unwrap();
    let mut client = connect(&server).await;
    client
        .batch_execute("SET synchronous_commit = off")
        .await
        .unwrap();
    let prepared = postgres::Prepared::on(&client).await.unwrap();
    for (text, came) in [
        ("7", Checked::Accepted),
        ("7", Checked::Accepted),
        ("6", stale("7", "6")),
        ("1.1", Checked::Accepted),
    ] {
        let transaction = client.transaction().await.unwrap();
        let checked = prepared.check(&transaction, &stock(), mark(text)).await;
        assert_eq!(checked.unwrap(), came, "{text}");
        if came == Checked::Accepted {
            let waits = "SELECT current_setting('synchronous_commit')";
            let waits = transaction.query_one(waits, &[]).await.unwrap();
            assert_eq!(waits.get::<_, &str>(0), "on");
            transaction.commit().await.unwrap();
        }
    }
    assert_eq!(write(&mut client, "9").await.unwrap(), stale("1.1", "9"));
    let mut other = connect(&server).await;
    let transaction = other.transaction().await.unwrap();
    let elsewhere = prepared.check(&transaction, &stock(), mark("2.1")).await;
    assert_eq!(elsewhere.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn an_older_holder_that_was_accepted_first_is_waited_for() {
    let server = Postgres::start().unwrap();
    let mut older = connect(&server).await;
    let mut newer = connect(&server).await;
    assert_eq!(write(&mut older, "6").await.unwrap(), Checked::Accepted);
    let open = older.transaction().await.unwrap();
    assert_eq!(
        postgres::check(&open, &stock(), mark("7")).await.unwrap(),
        Checked::Accepted
    );
    let waiting = tokio::spawn(async move {
        let transaction = newer.transaction().await.unwrap();
        let checked = postgres::check(&transaction, &stock(), mark("8"))
            .await
            .unwrap();
        // What was waited for is seen.
        let rows = transaction
            .query("SELECT mark FROM log ORDER BY at", &[])
            .await
            .unwrap();
        let seen: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        transaction
            .execute("INSERT INTO log (mark) VALUES ('8')", &[])
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
    open.execute("INSERT INTO log (mark) VALUES ('7')", &[])
        .await
        .unwrap();
    open.commit().await.unwrap();
    let (checked, seen) = waiting.await.unwrap();
    assert_eq!(
        (checked, seen),
        (Checked::Accepted, vec!["6".to_owned(), "7".to_owned()])
    );
    assert_eq!(write(&mut older, "7").await.unwrap(), stale("8", "7"));
    assert_eq!(log(&older).await, ["6", "7", "8"]);
}

#[tokio::test]
async fn a_stale_transaction_keeps_a_newer_holder_out_until_it_ends_and_not_longer() {
    let server = Postgres::start().unwrap();
    let mut older = connect(&server).await;
    let mut newer = connect(&server).await;
    assert_eq!(write(&mut newer, "8").await.unwrap(), Checked::Accepted);
    let open = older.transaction().await.unwrap();
    assert_eq!(
        postgres::check(&open, &stock(), mark("7")).await.unwrap(),
        stale("8", "7")
    );
    let waiting = tokio::spawn(async move { write(&mut newer, "9").await.unwrap() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    open.rollback().await.unwrap();
    assert_eq!(waiting.await.unwrap(), Checked::Accepted);
}

#[tokio::test]
async fn a_check_may_be_sent_together_with_its_write() {
    let server = Postgres::start().unwrap();
    let mut older = connect(&server).await;
    let mut newer = connect(&server).await;
    let insert = "INSERT INTO log (mark) SELECT $1::text || ' after ' || count(*) FROM log";
    let insert = older.prepare(insert).await.unwrap();
    assert_eq!(write(&mut newer, "6").await.unwrap(), Checked::Accepted);
    let open = newer.transaction().await.unwrap();
    let checked = postgres::check(&open, &stock(), mark("7")).await.unwrap();
    assert_eq!(checked, Checked::Accepted);
    let mut offer = async |text: &str| {
        let transaction = older.transaction().await.unwrap();
        let (name, offered) = (stock(), mark(text));
        let parameters: [&(dyn ToSql + Sync); 1] = [&text];
        let (checked, written) = tokio::join!(
            postgres::check(&transaction, &name, offered),
            transaction.execute(&insert, &parameters),
        );
        assert_eq!(written.unwrap(), 1);
        let checked = checked.unwrap();
        if checked == Checked::Accepted {
            transaction.commit().await.unwrap();
        }
        checked
    };
    // Both wait for who came before, and the write sees what was waited for.
    let finish = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let insert = "INSERT INTO log (mark) VALUES ('7')";
        open.execute(insert, &[]).await.unwrap();
        open.commit().await.unwrap();
    };
    let (checked, ()) = tokio::join!(offer("8"), finish);
    assert_eq!(checked, Checked::Accepted);
    assert_eq!(offer("5").await, stale("8", "5"));
    assert_eq!(log(&newer).await, ["6", "7", "8 after 2"]);
}

#[tokio::test]
async fn above_read_committed_a_check_that_waited_is_told_to_try_again() {
    let server = Postgres::start().unwrap();
    let mut first = connect(&server).await;
    let mut second = connect(&server).await;
    assert_eq!(write(&mut first, "6").await.unwrap(), Checked::Accepted);
    let open = first.transaction().await.unwrap();
    assert_eq!(
        postgres::check(&open, &stock(), mark("7")).await.unwrap(),
        Checked::Accepted
    );
    let waiting = tokio::spawn(async move {
        let strict = second
            .build_transaction()
            .isolation_level(IsolationLevel::Serializable);
        let transaction = strict.start().await.unwrap();
        postgres::check(&transaction, &stock(), mark("8")).await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    open.commit().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error.to_string().contains("tried again as a whole"),
        "{error}"
    );
}

#[tokio::test]
async fn the_commit_of_a_mark_waits_for_the_disk_though_the_session_does_not() {
    let server = Postgres::start().unwrap();
    let mut client = connect(&server).await;
    // The same mark again is a write, too.
    for (set, used) in [
        ("off", "on"),
        ("off", "on"),
        ("local", "local"),
        ("on", "on"),
    ] {
        client
            .batch_execute(&format!("SET synchronous_commit = {set}"))
            .await
            .unwrap();
        let transaction = client.transaction().await.unwrap();
        assert_eq!(
            postgres::check(&transaction, &stock(), mark("7"))
                .await
                .unwrap(),
            Checked::Accepted
        );
        let row = transaction
            .query_one("SHOW synchronous_commit", &[])
            .await
            .unwrap();
        assert_eq!(row.get::<_, String>(0), used);
        transaction.commit().await.unwrap();
        let row = client
            .query_one("SHOW synchronous_commit", &[])
            .await
            .unwrap();
        assert_eq!(row.get::<_, String>(0), set, "the session was changed");
    }
    let off = "SET synchronous_commit = off";
    client.batch_execute(off).await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let advanced = postgres::advance(&transaction, &stock(), 1).await;
    assert_eq!(advanced.unwrap(), Seen::new(1, None));
    let row = transaction.query_one("SHOW synchronous_commit", &[]).await;
    assert_eq!(row.unwrap().get::<_, String>(0), "on");
}

#[tokio::test]
async fn a_role_needs_no_more_than_to_use_the_table() {
    let server = Postgres::start().unwrap();
    let owner = connect(&server).await;
    let grants = "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE ON leasehold_fence TO app; \
        CREATE ROLE other LOGIN";
    owner.batch_execute(grants).await.unwrap();
    let login = async |role: &str| {
        let url = server.url().replace("postgres@", &format!("{role}@"));
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    };
    let mut app = login("app").await;
    postgres::prepare(&app).await.unwrap();
    let transaction = app.transaction().await.unwrap();
    assert_eq!(
        postgres::check(&transaction, &stock(), mark("7"))
            .await
            .unwrap(),
        Checked::Accepted
    );
    transaction.commit().await.unwrap();
    let mut other = login("other").await;
    let transaction = other.transaction().await.unwrap();
    let error = postgres::check(&transaction, &stock(), mark("7"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    // What to do, and what the server said.
    let says = "--role ROLE | psql` grants: permission denied for table leasehold_fence (42501)";
    assert!(error.to_string().contains(says), "{error}");
    drop(transaction);
    owner
        .batch_execute("DROP TABLE leasehold_fence")
        .await
        .unwrap();
    assert_eq!(
        postgres::seen(&app, &stock()).await.unwrap(),
        Seen::default()
    );
    let transaction = app.transaction().await.unwrap();
    let error = postgres::check(&transaction, &stock(), mark("7"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("with prepare"), "{error}");
    drop(transaction);
    let error = postgres::prepare(&app).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    let says = "may not make the table leasehold_fence; let one that may run `leasehold schema";
    assert!(error.to_string().contains(says), "{error}");
    assert!(
        error.to_string().contains("denied for schema public"),
        "{error}"
    );
}

#[tokio::test]
async fn the_plain_statement_says_by_its_rows_what_came_of_it() {
    let server = Postgres::start().unwrap();
    let client = connect(&server).await;
    let offer = async |token: i64| {
        client
            .execute(POSTGRES.check, &[&"stock", &0_i64, &token])
            .await
    };
    assert_eq!(offer(7).await.unwrap(), 1);
    assert_eq!(offer(7).await.unwrap(), 1);
    assert_eq!(offer(6).await.unwrap(), 0);
    offer(-1).await.unwrap_err();
    assert_eq!(
        postgres::seen(&client, &stock()).await.unwrap(),
        mark("7").into()
    );
}

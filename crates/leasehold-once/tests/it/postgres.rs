//! Records in a PostgreSQL database. What all databases do is in `workers`.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ErrorKind, Name};
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once, postgres};
use leasehold_testkit::servers::Postgres;
use tokio::task::JoinSet;
use tokio_postgres::{Client, IsolationLevel, NoTls};

const HOUR: Duration = Duration::from_secs(3600);

async fn login(server: &Postgres, role: &str) -> Client {
    let url = server.url().replace("postgres@", &format!("{role}@"));
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn connect(server: &Postgres) -> Client {
    let client = login(server, "postgres").await;
    postgres::prepare(&client).await.unwrap();
    client
}

fn nightly() -> Once {
    Once::new(Name::new("nightly").unwrap())
}

/// A hold of the one lock that the keys belong to.
fn pass(token: &str) -> Pass {
    format!("nights:{token}").parse().unwrap()
}

fn lock() -> Name {
    Name::new("nights").unwrap()
}

async fn begin(client: &mut Client, once: &Once, text: &str) -> leasehold_core::Result<Begun> {
    let transaction = client.transaction().await.unwrap();
    let begun = postgres::begin(&transaction, once, &pass(text)).await?;
    transaction.commit().await.unwrap();
    Ok(begun)
}

async fn finish(client: &mut Client, once: &Once, text: &str) -> Finished {
    let transaction = client.transaction().await.unwrap();
    let finished = postgres::finish(&transaction, once, &pass(text), text.as_bytes()).await;
    transaction.commit().await.unwrap();
    finished.unwrap()
}

/// Lets all that is recorded be so much older.
async fn age(client: &Client, by: Duration) {
    let older = "UPDATE leasehold_once SET started = started - $1, ended = ended - $1, expires = expires - $1";
    let by = i64::try_from(by.as_millis()).unwrap();
    client.execute(older, &[&by]).await.unwrap();
}

#[tokio::test]
async fn prepared_statements_decide_as_the_others_do() {
    let server = Postgres::start().unwrap();
    let mut client = connect(&server).await;
    let prepared = postgres::Prepared::on(&client).await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let begun = prepared.begin(&transaction, &nightly(), &pass("7")).await;
    assert_eq!(begun.unwrap(), Begun::First);
    for (token, is_recorded) in [("6", false), ("7", true)] {
        let (once, pass) = (nightly(), pass(token));
        let finished = prepared.finish(&transaction, &once, &pass, b"seven");
        assert_eq!(finished.await.unwrap() == Finished::Recorded, is_recorded);
    }
    transaction.commit().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let again = prepared.begin(&transaction, &nightly(), &pass("8")).await;
    let Begun::Done(success) = again.unwrap() else {
        panic!("it has happened");
    };
    assert_eq!((success.by, success.result), (pass("7"), b"seven".to_vec()));
}

#[tokio::test]
async fn an_attempt_starts_when_it_begins_and_not_with_its_transaction() {
    let server = Postgres::start().unwrap();
    let mut client = connect(&server).await;
    let transaction = client.transaction().await.unwrap();
    let time = "SELECT (extract(epoch FROM now()) * 1000)::bigint";
    let opened: i64 = transaction.query_one(time, &[]).await.unwrap().get(0);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begun = postgres::begin(&transaction, &nightly(), &pass("7")).await;
    assert_eq!(begun.unwrap(), Begun::First);
    let started = "SELECT started FROM leasehold_once";
    let started: i64 = transaction.query_one(started, &[]).await.unwrap().get(0);
    assert!(started >= opened + 500, "{started} is not after {opened}");
}

#[tokio::test]
async fn sweeping_waits_for_nobody_and_is_bounded() {
    let server = Postgres::start().unwrap();
    let (mut client, mut other) = (connect(&server).await, connect(&server).await);
    for number in 0..5 {
        let once = Once::new(Name::new(&format!("x/{number}")).unwrap()).keep(HOUR);
        assert_eq!(begin(&mut client, &once, "1").await.unwrap(), Begun::First);
        assert_eq!(finish(&mut client, &once, "1").await, Finished::Recorded);
    }
    age(&client, 2 * HOUR).await;
    // Somebody is about to do one of them again.
    let again = Once::new(Name::new("x/0").unwrap()).keep(HOUR);
    let open = other.transaction().await.unwrap();
    assert_eq!(
        postgres::begin(&open, &again, &pass("2")).await.unwrap(),
        Begun::First
    );
    let sweep = async |most| {
        let swept = postgres::sweep(&client, most);
        let swept = tokio::time::timeout(Duration::from_secs(20), swept).await;
        swept.expect("it waits for a transaction").unwrap()
    };
    assert_eq!(sweep(3).await, 3);
    assert_eq!(sweep(3).await, 1);
    open.commit().await.unwrap();
    assert_eq!(sweep(3).await, 0);
    assert_eq!(finish(&mut other, &again, "2").await, Finished::Recorded);
}

#[tokio::test]
async fn above_read_committed_an_attempt_that_waited_is_told_to_try_again() {
    let server = Postgres::start().unwrap();
    let (mut first, mut second) = (connect(&server).await, connect(&server).await);
    let open = first.transaction().await.unwrap();
    assert_eq!(
        postgres::begin(&open, &nightly(), &pass("7"))
            .await
            .unwrap(),
        Begun::First
    );
    let waiting = tokio::spawn(async move {
        let strict = second
            .build_transaction()
            .isolation_level(IsolationLevel::Serializable);
        let transaction = strict.start().await.unwrap();
        postgres::begin(&transaction, &nightly(), &pass("8")).await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "two attempts overlap");
    open.commit().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error.to_string().contains("tried again as a whole"),
        "{error}"
    );
}

#[tokio::test]
async fn the_commit_of_a_success_waits_for_the_disk_though_the_session_does_not() {
    let server = Postgres::start().unwrap();
    let mut client = connect(&server).await;
    let off = "SET synchronous_commit = off";
    client.batch_execute(off).await.unwrap();
    assert_eq!(
        begin(&mut client, &nightly(), "7").await.unwrap(),
        Begun::First
    );
    let transaction = client.transaction().await.unwrap();
    let finished = postgres::finish(&transaction, &nightly(), &pass("7"), b"").await;
    assert_eq!(finished.unwrap(), Finished::Recorded);
    let row = transaction.query_one("SHOW synchronous_commit", &[]).await;
    assert_eq!(row.unwrap().get::<_, String>(0), "on");
}

#[tokio::test]
async fn a_role_needs_no_more_than_to_use_the_table() {
    let server = Postgres::start().unwrap();
    let owner = connect(&server).await;
    let grants = "CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; \
        GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_once TO app";
    owner.batch_execute(grants).await.unwrap();
    let mut app = login(&server, "app").await;
    postgres::prepare(&app).await.unwrap();
    assert_eq!(
        begin(&mut app, &nightly(), "7").await.unwrap(),
        Begun::First
    );
    assert_eq!(finish(&mut app, &nightly(), "7").await, Finished::Recorded);
    assert_eq!(postgres::sweep(&app, 1).await.unwrap(), 0);
    assert!(postgres::forget(&app, nightly().key()).await.unwrap());
    let mut other = login(&server, "other").await;
    let error = begin(&mut other, &nightly(), "7").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    owner
        .batch_execute("DROP TABLE leasehold_once")
        .await
        .unwrap();
    assert_eq!(
        postgres::done(&app, &nightly(), &lock()).await.unwrap(),
        None
    );
    assert_eq!(postgres::list(&app, "").await.unwrap(), []);
    let error = begin(&mut app, &nightly(), "7").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("postgres::prepare"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_clients_that_make_the_table_at_once_none_fails() {
    let server = Postgres::start().unwrap();
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Arc::new(connect(&server).await));
    }
    // "If not exists" fails in several ways, one of which needs one to come while another commits.
    for _ in 0..300 {
        let drop = clients[0].batch_execute("DROP TABLE leasehold_once");
        drop.await.unwrap();
        let mut at_once = JoinSet::new();
        for (place, client) in clients.iter().enumerate() {
            let client = client.clone();
            at_once.spawn(async move {
                for _ in 0..2 * place {
                    client.batch_execute("").await.unwrap();
                }
                postgres::prepare(client.as_ref()).await
            });
        }
        for made in at_once.join_all().await {
            made.unwrap();
        }
    }
}

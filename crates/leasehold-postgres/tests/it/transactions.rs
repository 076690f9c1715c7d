//! Locks inside transactions of tokio-postgres.

use std::time::Duration;

use crate::common::*;
use leasehold::postgres::{TransactionLocks, TransactionToken};
use leasehold::{ErrorKind, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{PgBouncer, Postgres};
use tokio_postgres::{Client, NoTls};

/// How long a waiter may take to hear of the end of a transaction.
const PUSHED: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(4);

/// A connection of the caller's.
async fn caller(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// What a setting of this transaction is.
async fn setting(transaction: &tokio_postgres::Transaction<'_>, name: &str) -> String {
    let shown = transaction.query_one(&format!("SHOW {name}"), &[]).await;
    shown.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_and_sessions_exclude_each_other_whatever_the_key() {
    let postgres = server();
    let mut connection = caller(&postgres.url()).await;
    for query in [
        "",
        "?key=hashtext",
        "?key=with-advisory-lock",
        "?key=rails",
        "?key=raw:-42",
        "?key=raw:7,-1",
        "?prefix=app/",
    ] {
        let url = format!("{}{query}", postgres.url());
        let locks = TransactionLocks::of(&url).unwrap();
        let client = connect(&url).await;
        let transaction = connection.transaction().await.unwrap();
        assert!(
            locks.try_acquire(&transaction, "job").await.unwrap(),
            "{query}"
        );
        assert_busy(&client, "job").await;
        let waiting = lock(&client, "job", LONG);
        let waiter = tokio::spawn(async move { waiting.acquire().await });
        queued(&client, "job", 1).await;
        transaction.commit().await.unwrap();
        let held = waiter.await.unwrap().unwrap();
        let transaction = connection.transaction().await.unwrap();
        assert!(
            !locks.try_acquire(&transaction, "job").await.unwrap(),
            "{query}"
        );
        let other = locks.try_acquire(&transaction, "other").await.unwrap();
        // These have one key for all names.
        assert_eq!(
            other,
            !query.contains("raw") && !query.contains("rails"),
            "{query}"
        );
        let freed = tokio::spawn(async move {
            tokio::time::sleep(ms(300)).await;
            let freed = clock::now();
            held.release().await.unwrap();
            freed
        });
        locks.acquire(&transaction, "job").await.unwrap();
        let freed = freed.await.unwrap();
        assert!(since(freed) < PUSHED, "{query}: {:?}", since(freed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_free_when_its_transaction_ends_however_it_ends() {
    let postgres = server();
    let locks = TransactionLocks::new();
    let client = connect(&postgres.url()).await;
    // Short, as a lock is held back for as long after the crash at the end.
    let short = Duration::from_secs(1);
    let free = async || take(&client, "x", short).await.release().await.unwrap();
    let mut connection = caller(&postgres.url()).await;
    for ends in ["commit", "rollback", "dropped"] {
        let transaction = connection.transaction().await.unwrap();
        locks.acquire(&transaction, "x").await.unwrap();
        // The second time it is the transaction's already.
        assert!(locks.try_acquire(&transaction, "x").await.unwrap());
        assert_busy(&client, "x").await;
        match ends {
            "commit" => transaction.commit().await.unwrap(),
            "rollback" => transaction.rollback().await.unwrap(),
            _ => drop(transaction),
        }
        until(SLACK, async || holding(&postgres, true).is_empty()).await;
        assert_eq!(free().await, Release::Freed, "{ends}");
    }
    let mut transaction = connection.transaction().await.unwrap();
    let inner = transaction.savepoint("part").await.unwrap();
    locks.acquire(&inner, "x").await.unwrap();
    inner.rollback().await.unwrap();
    free().await;
    // Broken by an operator, its connection is ended.
    locks.acquire(&transaction, "x").await.unwrap();
    client.break_hold("x", None).await.unwrap();
    free().await;
    transaction.query_one("SELECT 1", &[]).await.unwrap_err();
    drop(transaction);
    let mut connection = caller(&postgres.url()).await;
    let transaction = connection.transaction().await.unwrap();
    locks.acquire(&transaction, "x").await.unwrap();
    let [pid] = holding(&postgres, true)[..] else {
        panic!("one holds");
    };
    postgres.kill_backend(pid).unwrap();
    transaction.query_one("SELECT 1", &[]).await.unwrap_err();
    until(SLACK * 2, async || postgres.query("SELECT 1").is_ok()).await;
    let next = lock(&client, "x", short).acquire_within(SLACK * 2).await;
    next.unwrap().expect("free").release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_in_vain_leaves_the_transaction_as_it_was() {
    let postgres = server();
    let locks = TransactionLocks::new();
    let client = connect(&postgres.url()).await;
    let held = take(&client, "x", LONG).await;
    let mut connection = caller(&postgres.url()).await;
    let transaction = connection.transaction().await.unwrap();
    transaction
        .batch_execute(
            "CREATE TABLE work (n int); INSERT INTO work VALUES (1); SET LOCAL lock_timeout = '7s'",
        )
        .await
        .unwrap();
    let begun = clock::now();
    let wait = ms(600);
    assert!(!locks.acquire_within(&transaction, "x", wait).await.unwrap());
    assert!(
        since(begun) >= wait && since(begun) < wait + SLACK,
        "{:?}",
        since(begun)
    );
    assert_eq!(setting(&transaction, "lock_timeout").await, "7s");
    // One that isn't in vain restores it, too.
    let freed = tokio::spawn(async move {
        tokio::time::sleep(ms(300)).await;
        held.release().await.unwrap();
    });
    assert!(
        locks
            .acquire_within(&transaction, "x", SLACK)
            .await
            .unwrap()
    );
    freed.await.unwrap();
    assert_eq!(setting(&transaction, "lock_timeout").await, "7s");
    assert_busy(&client, "x").await;
    transaction.commit().await.unwrap();
    assert_eq!(postgres.query("SELECT n FROM work").unwrap(), "1");
    let shown = connection
        .query_one("SHOW lock_timeout", &[])
        .await
        .unwrap();
    assert_eq!(shown.get::<_, &str>(0), "0");
    // Whoever waits without a bound of ours is bound by his own, and told so.
    let held = take(&client, "x", LONG).await;
    let transaction = connection.transaction().await.unwrap();
    transaction
        .batch_execute("SET LOCAL lock_timeout = '100ms'")
        .await
        .unwrap();
    let error = locks.acquire(&transaction, "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("lock_timeout"), "{error}");
    let error = locks.try_acquire(&transaction, "y").await.unwrap_err();
    assert!(error.to_string().contains("aborted"), "{error}");
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_an_error_that_says_so_and_ends_one_wait() {
    let postgres = server();
    let locks = TransactionLocks::new();
    let (mut first, mut second) = (caller(&postgres.url()).await, caller(&postgres.url()).await);
    let first = first.transaction().await.unwrap();
    let second = second.transaction().await.unwrap();
    locks.acquire(&first, "a").await.unwrap();
    locks.acquire(&second, "b").await.unwrap();
    let (one, other) = tokio::join!(
        locks.acquire_within(&first, "b", SLACK),
        locks.acquire_within(&second, "a", SLACK)
    );
    let errors: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().contains("deadlock"), "{errors:?}");
    // Neither is aborted.
    for transaction in [&first, &second] {
        transaction.query_one("SELECT 1", &[]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_whose_snapshot_is_older_than_the_lock_is_refused_before_it_waits() {
    let postgres = server();
    let locks = TransactionLocks::new();
    let client = connect(&postgres.url()).await;
    let held = take(&client, "x", LONG).await;
    let mut connection = caller(&postgres.url()).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for wait in [false, true] {
            let transaction = connection.transaction().await.unwrap();
            let isolation = format!("SET TRANSACTION ISOLATION LEVEL {level}");
            transaction.batch_execute(&isolation).await.unwrap();
            let refused = if wait {
                locks.acquire(&transaction, "x").await.unwrap_err()
            } else {
                locks.try_acquire(&transaction, "x").await.unwrap_err()
            };
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
            assert!(refused.to_string().contains("READ COMMITTED"), "{refused}");
        }
    }
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_committed_token_rises_with_those_of_sessions_and_one_rolled_back_never_was() {
    let postgres = server();
    let locks = TransactionLocks::new();
    let client = connect(&postgres.url()).await;
    let first = take(&client, "x", LONG).await;
    let session = first.token().get();
    let mut connection = caller(&postgres.url()).await;
    let transaction = connection.transaction().await.unwrap();
    let error = locks.token(&transaction, "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    drop(transaction);
    first.release().await.unwrap();
    let mut tokens = Vec::new();
    for commits in [false, true, true] {
        let transaction = connection.transaction().await.unwrap();
        locks.acquire(&transaction, "x").await.unwrap();
        let token: TransactionToken = locks.token(&transaction, "x").await.unwrap();
        tokens.push(token.get());
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
    }
    assert_eq!(tokens, [session + 1, session + 1, session + 2]);
    // One that holds is shown without a name, and isn't taken for the one before it on its connection.
    let transaction = connection.transaction().await.unwrap();
    locks.acquire(&transaction, "x").await.unwrap();
    let seen = client.inspect("x").await.unwrap();
    assert_eq!(seen.holder.expect("held").token, None);
    transaction.commit().await.unwrap();
    let next = take(&client, "x", LONG).await;
    assert_eq!(next.token().get(), session + 3);
    next.release().await.unwrap();
}

/// Who was cut off from the server that forgot his lock may still believe to have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_no_transaction_gets_a_lock_before_its_last_holders_time_is_over() {
    let mut postgres = server();
    let locks = TransactionLocks::new();
    let client = connect(&postgres.url()).await;
    let _held = (
        take(&client, "long", LONG).await,
        take(&client, "x", TTL).await,
        take(&client, "y", TTL).await,
    );
    let mut before = caller(&postgres.url()).await;
    let transaction = before.transaction().await.unwrap();
    // From here on it is known that the server before the crash held nothing back.
    assert!(locks.try_acquire(&transaction, "z").await.unwrap());
    drop(transaction);
    postgres.crash().unwrap();
    postgres.start_again().unwrap();
    let age = "SELECT floor(extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000)::int8";
    // The statements for other drivers wait, too.
    let mut other = Session::start(&postgres);
    let acquire = leasehold::postgres::ACQUIRE;
    other.ask(&format!(
        "PREPARE lock (text) AS {acquire}; BEGIN; SELECT 1;"
    ));
    let early = other.answer(&format!("EXECUTE lock ('y'); {age};"), ms(1));
    let mut connection = caller(&postgres.url()).await;
    let transaction = connection.transaction().await.unwrap();
    let within = locks.acquire_within(&transaction, "long", ms(1)).await;
    assert!(!within.unwrap());
    assert!(!locks.try_acquire(&transaction, "long").await.unwrap());
    assert!(locks.try_acquire(&transaction, "z").await.unwrap());
    locks.acquire(&transaction, "x").await.unwrap();
    let free = ms(postgres.query(age).unwrap().parse().unwrap());
    assert!(free >= TTL && free < LONG, "free after {free:?}");
    let got = early.or_else(|| other.later(SLACK));
    assert_eq!(got.as_deref(), Some("t"));
    let free = ms(other.later(SLACK).unwrap().parse().unwrap());
    assert!(free >= TTL, "free after {free:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_gives_each_transaction_another_session_will_do() {
    let postgres = server();
    let bouncer = PgBouncer::start(&postgres, "transaction", "").unwrap();
    let locks = TransactionLocks::new();
    let (mut first, mut second) = (caller(&bouncer.url()).await, caller(&bouncer.url()).await);
    connect(&postgres.url()).await.inspect("x").await.unwrap();
    postgres.query(leasehold::postgres::SCHEMA).unwrap();
    let holder = first.transaction().await.unwrap();
    locks.acquire(&holder, "x").await.unwrap();
    locks.token(&holder, "x").await.unwrap();
    let other = second.transaction().await.unwrap();
    assert!(!locks.acquire_within(&other, "x", ms(100)).await.unwrap());
    holder.commit().await.unwrap();
    assert!(locks.try_acquire(&other, "x").await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_right_is_an_error_and_a_database_without_the_table_has_locks() {
    let postgres = server();
    for url in [
        "redis://h",
        "postgres://h/app?key=hashtxt",
        "postgres://h/app?ky=1",
    ] {
        let error = TransactionLocks::of(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
    }
    let locks = TransactionLocks::new();
    let mut connection = caller(&postgres.url()).await;
    let transaction = connection.transaction().await.unwrap();
    let error = locks.try_acquire(&transaction, "").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(locks.try_acquire(&transaction, "x").await.unwrap());
    let error = locks.token(&transaction, "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(
        error.to_string().contains("leasehold schema postgres"),
        "{error}"
    );
}

/// What is beside it in the same transaction isn't there before the lock is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_gets_the_lock_sees_what_the_transaction_before_has_written() {
    let postgres: Postgres = server();
    postgres
        .query("CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)")
        .unwrap();
    let locks = std::sync::Arc::new(TransactionLocks::new());
    let tasks = (0..8).map(|_| {
        let (locks, url) = (locks.clone(), postgres.url());
        tokio::spawn(async move {
            let mut connection = caller(&url).await;
            for _ in 0..20 {
                let transaction = connection.transaction().await.unwrap();
                locks.acquire(&transaction, "counter").await.unwrap();
                let read = transaction.query_one("SELECT n FROM counter", &[]).await;
                let n: i32 = read.unwrap().get(0);
                transaction
                    .execute("UPDATE counter SET n = $1", &[&(n + 1)])
                    .await
                    .unwrap();
                transaction.commit().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(postgres.query("SELECT n FROM counter").unwrap(), "160");
}

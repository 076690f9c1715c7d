//! A pooler before the server.

use crate::common::*;
use leasehold::{ErrorKind, Release};
use leasehold_testkit::servers::PgBouncer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_gives_each_transaction_another_session_is_refused_with_the_reason() {
    let postgres = server();
    for (mode, more) in [
        ("transaction", ""),
        ("transaction", "server_round_robin = 1\nmin_pool_size = 4"),
        ("transaction", "default_pool_size = 1"),
        ("statement", ""),
    ] {
        let bouncer = PgBouncer::start(&postgres, mode, more).unwrap();
        let error = leasehold::connect(&bouncer.url()).await.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::Unsupported,
            "{mode} {more}: {error}"
        );
        assert!(error.to_string().contains("pool"), "{error}");
    }
    // Nothing of ours stays in a session that is others'.
    let bouncer = PgBouncer::start(&postgres, "transaction", "default_pool_size = 1").unwrap();
    leasehold::connect(&bouncer.url()).await.unwrap_err();
    let mut psql = postgres.psql("locks").unwrap();
    let shown = psql
        .args(["-c", "SHOW idle_session_timeout", &bouncer.url()])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stdout).trim(), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_gives_each_client_a_session_will_do() {
    let postgres = server();
    let bouncer = PgBouncer::start(&postgres, "session", "").unwrap();
    let client = connect(&bouncer.url()).await;
    let holder = take(&client, "x", LONG).await;
    let direct = connect(&postgres.url()).await;
    assert_busy(&direct, "x").await;
    let waiting = lock(&client, "x", LONG);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    tokio::time::sleep(ms(200)).await;
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
    let next = waiter.await.unwrap().unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Freed);
}

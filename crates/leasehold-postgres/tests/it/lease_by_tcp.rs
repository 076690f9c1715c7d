//! Servers whose sessions don't end when they are silent.

use std::time::Duration;

use crate::common::*;
use leasehold::postgres::TransactionLocks;
use leasehold::store::Verdict;
use leasehold::{ErrorKind, LossReason, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{Direction, Postgres, Proxy};

const TTL: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_14_a_server_is_refused_unless_tcp_alone_is_to_end_sessions() {
    let postgres = Postgres::start_old().unwrap();
    let error = leasehold::connect(&postgres.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("lease=tcp"), "{error}");
    let url = |at| format!("{}?lease=tcp", url_at(at));
    let proxy = Proxy::start(postgres.address()).unwrap();
    let client = connect(&url(proxy.address())).await;
    let direct = connect(&url(postgres.address())).await;
    let findings = direct.check().await.unwrap();
    assert!(findings.iter().any(|found| found.verdict == Verdict::Bad));
    let holder = take(&client, "x", TTL).await;
    assert_busy(&direct, "x").await;
    tokio::time::sleep(TTL).await;
    assert!(holder.is_held(), "it is renewed");
    for direction in Direction::BOTH {
        proxy.freeze(direction);
    }
    // It knows that its lease is over, and nobody gets the lock from a server that waits for TCP.
    let silent = clock::now();
    let reason = tokio::time::timeout(TTL + SLACK, holder.lost()).await;
    assert_eq!(reason.unwrap(), LossReason::Unreachable);
    assert!(since(silent) < TTL, "told after {:?}", since(silent));
    tokio::time::sleep(ms(1500)).await;
    assert_busy(&direct, "x").await;
    let (mut caller, connection) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let transaction = caller.transaction().await.unwrap();
    let locks = TransactionLocks::new();
    assert!(!locks.try_acquire(&transaction, "x").await.unwrap());
    assert!(locks.try_acquire(&transaction, "y").await.unwrap());
    // When its connection ends, the lock is free.
    proxy.cut();
    let next = lock(&direct, "x", TTL).acquire_within(SLACK).await;
    let next = next.unwrap().expect("free");
    assert!(next.token() > holder.token());
    assert_eq!(next.release().await.unwrap(), Release::Freed);
}

//! A standby: no locks of its own, and after its promotion the next holder's.

use std::time::Duration;

use crate::common::*;
use leasehold::postgres::TransactionLocks;
use leasehold::{ErrorKind, LossReason, Release};
use tokio_postgres::NoTls;

const TTL: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_means_lost_and_the_next_holder_has_a_higher_token() {
    let mut primary = server();
    let standby = primary.standby().unwrap();
    for sql in [
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
        "SELECT pg_reload_conf()",
    ] {
        primary.query(sql).unwrap();
    }
    primary
        .wait_for("SELECT sync_state FROM pg_stat_replication", "sync")
        .unwrap();
    let (first, second) = (primary.address(), standby.address());
    let client = connect(&format!("postgres://postgres@{second},{first}/locks")).await;
    let held = take(&client, "x", TTL).await;
    // The standby's locks would be others.
    let error = leasehold::connect(&standby.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let (mut caller, connection) = tokio_postgres::connect(&standby.url(), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let transaction = caller.transaction().await.unwrap();
    let refused = TransactionLocks::new().try_acquire(&transaction, "x").await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    primary.crash().unwrap();
    standby.promote().unwrap();
    let reason = tokio::time::timeout(SLACK, held.lost()).await.unwrap();
    assert_eq!(reason, LossReason::SessionLost);
    let next = lock(&client, "x", TTL).acquire_within(TTL + SLACK).await;
    let next = next.unwrap().expect("free");
    assert!(next.token() > held.token());
    assert_eq!(held.release().await.unwrap(), Release::Another);
    assert_eq!(next.release().await.unwrap(), Release::Freed);
}

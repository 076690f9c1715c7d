//! What a client leaves in the store, and what its locks cost there.

use std::time::Duration;

use crate::common::*;
use leasehold_testkit::servers::Etcd;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind() {
    let etcd = single();
    let client = connect(&etcd.url()).await;
    come_and_go(client).await;
    assert_eq!(keys(&etcd), [""; 0]);
    let leases = ctl(&etcd, &["lease", "list"]);
    assert!(leases.contains("found 0 leases"), "{leases}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_dropped_without_a_word_leaves_nothing() {
    let etcd = single();
    let client = connect(&etcd.url()).await;
    take(&client, "a", LONG).await.release().await.unwrap();
    assert_eq!(keys(&etcd).len(), 1);
    drop(client);
    until(SLACK, async || keys(&etcd).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_on_one_name_never_share_a_lease_and_others_do() {
    let etcd = single();
    let client = connect(&etcd.url()).await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c", "a/b"] {
        guards.push(take(&client, name, LONG).await);
    }
    let waiting = lock(&client, "a", LONG);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    queued(&client, "a", 1).await;
    let leases = ctl(&etcd, &["lease", "list"]);
    assert!(leases.contains("found 2 leases"), "{leases}");
    waiter.abort();
}

/// How many requests the server has begun, by service.
fn requests(etcd: &Etcd) -> u64 {
    let metrics = etcd.metrics(0);
    let started = metrics
        .lines()
        .filter(|line| line.starts_with("grpc_server_started_total{"));
    started
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .map(|count| count as u64)
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_held_cost_a_handful_of_requests_for_each_renewal() {
    const HELD: usize = 3000;
    let ttl = Duration::from_secs(12);
    let etcd = single();
    let client = connect(&etcd.url()).await;
    let guards = hold_many(&client, HELD, ttl).await;
    // All have been renewed once.
    tokio::time::sleep(ttl / 2).await;
    let before = requests(&etcd);
    tokio::time::sleep(ttl * 2).await;
    let made = requests(&etcd) - before;
    // Four beats in each TTL, three requests each, and a few more where the machine is busy.
    assert!(made <= 60, "{made} requests in two TTLs");
    assert!(made >= 12, "only {made}: who renews?");
    assert!(guards.iter().all(leasehold::Guard::is_held));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_costs_one_request_and_so_does_its_release() {
    let etcd = single();
    let client = connect(&etcd.url()).await;
    take(&client, "first", LONG).await.release().await.unwrap();
    let before = requests(&etcd);
    for _ in 0..20 {
        take(&client, "x", LONG).await.release().await.unwrap();
    }
    let made = requests(&etcd) - before;
    assert!((40..=44).contains(&made), "{made} requests for 20 pairs");
}

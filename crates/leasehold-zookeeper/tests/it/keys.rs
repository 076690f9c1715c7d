//! What a client leaves in the store, and what its locks cost there.

use std::time::Duration;

use crate::common::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind() {
    let zookeeper = single();
    let client = connect(&zookeeper.url()).await;
    come_and_go(client).await;
    assert_eq!(ephemerals(&zookeeper), [[""; 0]; 0]);
    until(SLACK, async || sessions(&zookeeper) == 0).await;
}

/// How many sessions there are.
fn sessions(zookeeper: &leasehold_testkit::servers::ZooKeeper) -> usize {
    let dump = zookeeper.says(0, "dump");
    let count = |text: &str| {
        text.lines()
            .filter(|line| line.trim().starts_with("0x"))
            .count()
    };
    count(dump.split("ephemeral nodes dump").next().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_dropped_without_a_word_leaves_nothing() {
    let zookeeper = single();
    let client = connect(&zookeeper.url()).await;
    take(&client, "a", LONG).await.release().await.unwrap();
    assert!(sessions(&zookeeper) > 0);
    drop(client);
    until(SLACK, async || sessions(&zookeeper) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_on_one_name_never_share_a_session_and_others_do() {
    let zookeeper = single();
    let client = connect(&zookeeper.url()).await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c", "a/b"] {
        guards.push(take(&client, name, LONG).await);
    }
    let waiting = lock(&client, "a", LONG);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    queued(&client, "a", 1).await;
    let mut nodes: Vec<usize> = ephemerals(&zookeeper).iter().map(Vec::len).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 4]);
    waiter.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_held_cost_a_handful_of_requests_for_each_renewal() {
    const HELD: usize = 3000;
    let ttl = Duration::from_secs(12);
    let zookeeper = single();
    let client = connect(&zookeeper.url()).await;
    let guards = hold_many(&client, HELD, ttl).await;
    // All have been renewed once.
    tokio::time::sleep(ttl / 2).await;
    let before = figure(&zookeeper, 0, "zk_packets_received");
    tokio::time::sleep(ttl * 2).await;
    let made = figure(&zookeeper, 0, "zk_packets_received") - before;
    // A beat of two requests for each quarter of what a holder may count on, and a few more for the figures.
    assert!(made <= 90, "{made} requests in two TTLs");
    assert!(made >= 12, "only {made}: who renews?");
    assert!(guards.iter().all(leasehold::Guard::is_held));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_below_a_held_one_and_a_stranger_node_are_nobodys_place() {
    let zookeeper = single();
    let client = connect(&zookeeper.url()).await;
    let child = take(&client, "a/lock", LONG).await;
    let parent = take(&client, "a", LONG).await;
    assert_eq!(client.inspect("a").await.unwrap().waiters.len(), 0);
    parent.release().await.unwrap();
    child.release().await.unwrap();
    let refused = client
        .lock("a/lock-0000000001")
        .unwrap()
        .try_acquire()
        .await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), leasehold::ErrorKind::Invalid, "{error}");
}

//! Ensembles of one's own, and what they say of themselves.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

use std::time::Duration;

use leasehold::{Client, Guard, Inspection, Lock};
use leasehold_core::clock::{self, Moment};
use leasehold_testkit::servers::ZooKeeper;

/// A TTL that no test waits for.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// How much later than promised anything may be on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(5);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn single() -> ZooKeeper {
    ZooKeeper::start(1).unwrap()
}

pub(crate) fn three() -> ZooKeeper {
    ZooKeeper::start(3).unwrap()
}

/// The URL of one member alone.
pub(crate) fn only(zookeeper: &ZooKeeper, at: usize) -> String {
    format!("zookeeper://{}", zookeeper.address(at))
}

pub(crate) async fn connect(url: &str) -> Client {
    leasehold::connect(url).await.unwrap()
}

pub(crate) fn lock(client: &Client, name: &str, ttl: Duration) -> Lock {
    client.lock(name).unwrap().ttl(ttl)
}

/// Takes a lock that must be free.
pub(crate) async fn take(client: &Client, name: &str, ttl: Duration) -> Guard {
    let got = lock(client, name, ttl).try_acquire().await.unwrap();
    got.unwrap_or_else(|| panic!("{name} was to be free and is busy"))
}

pub(crate) async fn assert_busy(client: &Client, name: &str) {
    let got = lock(client, name, LONG).try_acquire().await.unwrap();
    assert!(got.is_none(), "{name} was to be busy: {got:?}");
}

pub(crate) fn since(moment: Moment) -> Duration {
    clock::now().since(moment).steady
}

/// Waits until it is so; how long that took. Panics after `most`.
pub(crate) async fn until(most: Duration, mut so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = clock::now();
    while !so().await {
        let waited = since(begun);
        assert!(waited < most, "not so after {waited:?}");
        tokio::time::sleep(ms(10)).await;
    }
    since(begun)
}

/// Waits until `inspect` shows what is wanted.
pub(crate) async fn seen(client: &Client, name: &str, wanted: impl Fn(&Inspection) -> bool) {
    until(ms(20_000), async || {
        client
            .inspect(name)
            .await
            .is_ok_and(|inspection| wanted(&inspection))
    })
    .await;
}

pub(crate) async fn queued(client: &Client, name: &str, count: usize) {
    seen(client, name, |seen| seen.waiters.len() == count).await;
}

/// The ephemeral nodes there are, by session.
pub(crate) fn ephemerals(zookeeper: &ZooKeeper) -> Vec<Vec<String>> {
    let at = zookeeper.leader().unwrap_or(0);
    let dump = zookeeper.says(at, "dump");
    let (_, list) = dump
        .split_once("Sessions with Ephemerals")
        .unwrap_or_else(|| panic!("no list in {dump:?}"));
    let mut sessions = Vec::new();
    for line in list.lines() {
        match line.trim().strip_prefix('/') {
            Some(node) => {
                let nodes: &mut Vec<String> = sessions.last_mut().unwrap();
                nodes.push(format!("/{node}"));
            }
            None if line.starts_with("0x") => sessions.push(Vec::new()),
            None => {}
        }
    }
    // The server remembers sessions that had some.
    sessions.retain(|nodes| !nodes.is_empty());
    sessions
}

/// A figure that a member counts of itself.
pub(crate) fn figure(zookeeper: &ZooKeeper, at: usize, name: &str) -> u64 {
    let figures = zookeeper.says(at, "mntr");
    let line = figures.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|value| value.trim().parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("no {name} in {figures:?}")) as u64
}

//! Clients of other makes, the real ones, and leasehold exclude each other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use leasehold::Release;
use leasehold_testkit::program::Program;
use leasehold_testkit::servers::{ZooKeeper, python_packages};

/// How long another client may take to start: Java compiles its program first.
const START: Duration = Duration::from_secs(60);

/// Another client that takes a lock, and gives it back when its input ends.
struct Other(Program);

impl Other {
    /// Curator, `mutex` or `read`ing.
    fn curator(zookeeper: &ZooKeeper, name: &str, kind: &str) -> Self {
        let mut command = ZooKeeper::java().unwrap();
        command.arg(here("peers/Curator.java"));
        Self::start(command, zookeeper, name, kind)
    }

    /// kazoo, which besides its own places sees those with such `patterns`.
    fn kazoo(zookeeper: &ZooKeeper, name: &str, patterns: &str) -> Self {
        let mut command = Command::new("python3");
        command
            .arg(here("peers/kazoo_lock.py"))
            .env("PYTHONPATH", python_packages("kazoo", KAZOO).unwrap());
        Self::start(command, zookeeper, name, patterns)
    }

    fn start(mut command: Command, zookeeper: &ZooKeeper, name: &str, last: &str) -> Self {
        command
            .arg(zookeeper.address(0).to_string())
            .arg(format!("/{name}"))
            .arg(last);
        Self(Program::start(&mut command))
    }

    fn holds_within(&self, most: Duration) -> bool {
        self.0.line_within(most).as_deref() == Some("held")
    }

    fn end(&mut self) {
        self.0.end_input();
        assert_eq!(self.0.line_within(SLACK * 2).as_deref(), Some("free"));
    }
}

const KAZOO: &str =
    "kazoo==2.11.0 --hash=sha256:aa6be17159540dae4087661b8d4e24c7b58d4dc26170a2d5b8468b06712d84a9";

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Ours holds and the other waits; another of ours behind it; then the other way round.
async fn assert_exclude(zookeeper: &ZooKeeper, url: &str, start: impl Fn() -> Other) {
    let client = connect(url).await;
    let ours = take(&client, "jobs/x", LONG).await;
    let mut other = start();
    until(START, async || {
        client.inspect("jobs/x").await.unwrap().waiters.len() == 1
    })
    .await;
    let seen = client.inspect("jobs/x").await.unwrap();
    assert_eq!(
        seen.waiters,
        [None],
        "another client says nothing of itself"
    );
    assert!(!other.holds_within(ms(500)), "two holders");
    let next = lock(&client, "jobs/x", LONG);
    let next = tokio::spawn(async move { next.acquire().await });
    queued(&client, "jobs/x", 2).await;

    assert_eq!(ours.release().await.unwrap(), Release::Freed);
    assert!(other.holds_within(SLACK));
    tokio::time::sleep(ms(300)).await;
    assert!(!next.is_finished(), "two holders");
    assert_busy(&client, "jobs/x").await;
    other.end();
    let next = tokio::time::timeout(SLACK, next).await.unwrap();
    assert_eq!(
        next.unwrap().unwrap().release().await.unwrap(),
        Release::Freed
    );
    assert_eq!(ephemerals(zookeeper), [[""; 0]; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curators_mutex_and_leasehold_exclude_each_other_in_the_order_they_came() {
    let zookeeper = single();
    assert_exclude(&zookeeper, &zookeeper.url(), || {
        Other::curator(&zookeeper, "jobs/x", "mutex")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kazoos_lock_and_leasehold_with_its_names_exclude_each_other() {
    let zookeeper = single();
    let url = format!("{}?layout=kazoo", zookeeper.url());
    assert_exclude(&zookeeper, &url, || Other::kazoo(&zookeeper, "jobs/x", "")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kazoo_that_knows_curators_names_and_leasehold_exclude_each_other() {
    let zookeeper = single();
    assert_exclude(&zookeeper, &zookeeper.url(), || {
        Other::kazoo(&zookeeper, "jobs/x", "-lock-")
    })
    .await;
}

/// With either layout leasehold waits for holders of all of these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leasehold_waits_for_holders_of_every_layout() {
    let zookeeper = single();
    for layout in ["curator", "kazoo"] {
        let client = connect(&format!("{}?layout={layout}", zookeeper.url())).await;
        for start in [
            (|zookeeper| Other::curator(zookeeper, "y", "mutex")) as fn(&ZooKeeper) -> Other,
            |zookeeper| Other::curator(zookeeper, "y", "read"),
            |zookeeper| Other::kazoo(zookeeper, "y", ""),
        ] {
            let mut other = start(&zookeeper);
            assert!(other.holds_within(START));
            assert_busy(&client, "y").await;
            let waiting = lock(&client, "y", LONG);
            let waiter = tokio::spawn(async move { waiting.acquire().await });
            queued(&client, "y", 1).await;
            other.end();
            let got = tokio::time::timeout(SLACK, waiter).await.unwrap();
            got.unwrap().unwrap().release().await.unwrap();
        }
    }
}

//! Clusters of one's own, and what other programs do with them.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use leasehold::{Client, Guard, Inspection, Lock};
use leasehold_core::clock::{self, Moment};
use leasehold_testkit::servers::{Etcd, EtcdEdition};

/// A TTL that no test waits for.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// How much later than promised anything may be on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(5);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn single() -> Etcd {
    Etcd::start(EtcdEdition::Etcd35, 1).unwrap()
}

pub(crate) fn three() -> Etcd {
    Etcd::start(EtcdEdition::Etcd35, 3).unwrap()
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

/// Runs `etcdctl` with these words and this input; what it printed.
pub(crate) fn ctl_with(etcd: &Etcd, words: &[&str], input: &str) -> String {
    let mut child = etcd
        .control()
        .unwrap()
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let done = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "etcdctl {words:?}: {err}");
    String::from_utf8(done.stdout).unwrap()
}

pub(crate) fn ctl(etcd: &Etcd, words: &[&str]) -> String {
    ctl_with(etcd, words, "")
}

/// All keys there are.
pub(crate) fn keys(etcd: &Etcd) -> Vec<String> {
    let text = ctl(etcd, &["get", "", "--prefix", "--keys-only"]);
    text.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

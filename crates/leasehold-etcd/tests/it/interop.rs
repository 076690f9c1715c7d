//! Clients of other makes and leasehold exclude each other.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::*;
use leasehold::Release;
use leasehold_etcd::IsOwner;
use leasehold_testkit::program::Program;
use leasehold_testkit::servers::{Etcd, EtcdEdition};
use rustix::process::Signal;

/// `etcdctl lock` without a command: prints its key once it holds, and holds until it is interrupted.
struct Other(Program);

impl Other {
    fn start(etcd: &Etcd, name: &str) -> Self {
        Self(Program::start(etcd.control().unwrap().args(["lock", name])))
    }

    fn holds_within(&self, most: Duration) -> bool {
        self.0.line_within(most).is_some()
    }

    fn end(&mut self) {
        self.0.signal(Signal::INT);
        self.0.end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_lock_and_leasehold_exclude_each_other_in_the_order_they_came() {
    for edition in EtcdEdition::ALL {
        let etcd = Etcd::start(edition, 1).unwrap();
        let client = connect(&etcd.url()).await;
        let ours = take(&client, "jobs/x", LONG).await;
        let mut other = Other::start(&etcd, "jobs/x");
        queued(&client, "jobs/x", 1).await;
        let seen = client.inspect("jobs/x").await.unwrap();
        assert_eq!(
            seen.waiters,
            [None],
            "another client says nothing of itself"
        );
        assert!(!other.holds_within(ms(500)));
        let next = lock(&client, "jobs/x", LONG);
        let next = tokio::spawn(async move { next.acquire().await });
        queued(&client, "jobs/x", 2).await;

        assert_eq!(ours.release().await.unwrap(), Release::Freed);
        assert!(other.holds_within(SLACK), "{edition:?}");
        tokio::time::sleep(ms(300)).await;
        assert!(!next.is_finished());
        assert_busy(&client, "jobs/x").await;
        let seen = client.inspect("jobs/x").await.unwrap().holder.unwrap();
        assert!(seen.identity.is_none() && seen.token.is_some());

        other.end();
        let next = tokio::time::timeout(SLACK, next)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(Some(next.token()) > seen.token);
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_etcdctls_lock_is_free_in_time() {
    let etcd = single();
    let client = connect(&etcd.url()).await;
    let other = Other::start(&etcd, "x");
    assert!(other.holds_within(SLACK));
    // Killed.
    drop(other);
    // Its lease lasts ten seconds.
    let got = lock(&client, "x", LONG).acquire_within(ms(20_000)).await;
    got.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_further_down_delays_other_clients_and_not_ours() {
    let etcd = single();
    let client = connect(&etcd.url()).await;
    let child = take(&client, "a/b", LONG).await;
    take(&client, "a", LONG).await.release().await.unwrap();
    let mut other = Other::start(&etcd, "a");
    assert!(
        !other.holds_within(ms(700)),
        "the README's limit is gone: say so there"
    );
    child.release().await.unwrap();
    assert!(other.holds_within(SLACK));
    other.end();
}

/// Calls the server's lock service through its gateway.
fn service(etcd: &Etcd, path: &str, json: &str) -> String {
    let mut stream = TcpStream::connect(etcd.address(0)).unwrap();
    stream.set_read_timeout(Some(ms(20_000))).unwrap();
    let length = json.len();
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{json}"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.contains(" 200 "), "{reply}");
    reply
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_service_and_leasehold_exclude_each_other() {
    for edition in EtcdEdition::ALL {
        let etcd = Etcd::start(edition, 1).unwrap();
        let client = connect(&etcd.url()).await;
        let granted = ctl(&etcd, &["lease", "grant", "60"]);
        let lease = granted.split_whitespace().nth(1).unwrap();
        let lease = i64::from_str_radix(lease, 16).unwrap();
        let ours = take(&client, "jobs/x", LONG).await;
        let etcd = std::sync::Arc::new(etcd);
        let server = etcd.clone();
        // "jobs/x" in base64.
        let json = format!("{{\"name\":\"am9icy94\",\"lease\":{lease}}}");
        let theirs = std::thread::spawn(move || service(&server, "/v3/lock/lock", &json));
        queued(&client, "jobs/x", 1).await;
        tokio::time::sleep(ms(300)).await;
        assert!(!theirs.is_finished());
        ours.release().await.unwrap();
        until(SLACK, async || theirs.is_finished()).await;
        let reply = theirs.join().unwrap();
        assert_busy(&client, "jobs/x").await;

        let (_, key) = reply.split_once("\"key\":\"").unwrap();
        let (key, _) = key.split_once('"').unwrap();
        let next = lock(&client, "jobs/x", LONG);
        let next = tokio::spawn(async move { next.acquire().await });
        queued(&client, "jobs/x", 1).await;
        service(&etcd, "/v3/lock/unlock", &format!("{{\"key\":\"{key}\"}}"));
        let next = tokio::time::timeout(SLACK, next).await.unwrap();
        next.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_under_the_owners_comparison_is_done_under_the_lock_or_not_at_all() {
    let etcd = single();
    let client = connect(&etcd.url()).await;
    let old = take(&client, "x", LONG).await;
    let owner = IsOwner::of(&old).unwrap();
    assert_eq!(
        u64::try_from(owner.create_revision()),
        Ok(old.token().get())
    );
    let write = |owner: &IsOwner, value: &str| {
        let txn = format!(
            "c(\"{}\") = \"{}\"\n\nput data {value}\n\n\n",
            owner.key(),
            owner.create_revision()
        );
        ctl_with(&etcd, &["txn"], &txn).starts_with("SUCCESS")
    };
    assert!(write(&owner, "first"));
    client.break_hold("x", None).await.unwrap();
    let new = take(&client, "x", LONG).await;
    let newer = IsOwner::of(&new).unwrap();
    assert!(!write(&owner, "stale"), "a stale holder wrote");
    assert!(write(&newer, "second"));
    assert_eq!(
        ctl(&etcd, &["get", "data", "--print-value-only"]).trim(),
        "second"
    );
    // Also where the hold hangs on another lease by now.
    new.extend(LONG * 3).await.unwrap();
    assert!(write(&newer, "third"));
    new.release().await.unwrap();
    assert!(!write(&newer, "late"), "a write after the release");
}

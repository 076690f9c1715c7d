//! A store that gives no answer: another process has locked the whole file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::{Done, Host, LONG};
use leasehold_core::clock;
use rusqlite::Connection;

/// Keeps everybody else from writing until it is dropped.
struct Outage(Connection);

impl Outage {
    fn of(host: &Host) -> Self {
        let file = Connection::open(host.path().join("locks.db")).unwrap();
        file.busy_timeout(LONG).unwrap();
        file.execute_batch("BEGIN EXCLUSIVE").unwrap();
        Self(file)
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        self.0.execute_batch("ROLLBACK").unwrap();
    }
}

#[test]
fn without_a_first_answer_it_is_69_after_the_connect_timeout_also_with_a_wait() {
    let host = Host::new();
    host.run(&["run", "x", "--", "true"]).is(0);
    let outage = Outage::of(&host);
    for wait in [&["--wait", "forever"][..], &["--wait", "1h"], &[]] {
        let begun = clock::now();
        let mut args = vec!["run", "x", "--connect-timeout", "700ms", "--ttl", "1s"];
        args.extend(wait);
        args.extend(["--", "touch", "ran"]);
        let out = host.run(&args).is(69);
        let took = clock::now().since(begun).steady;
        assert!(took >= Duration::from_millis(700), "{took:?}");
        assert!(took < LONG, "{took:?}");
        assert_eq!(out.err.lines().count(), 1, "{}", out.err);
        assert!(out.err.starts_with("leasehold: "), "{}", out.err);
        assert!(out.err.contains("700ms (--connect-timeout)"), "{}", out.err);
        assert!(out.err.contains(&host.store()), "{}", out.err);
        assert!(!host.path().join("ran").exists());
    }
    drop(outage);
    // What was given up on left nothing behind, once its TTL is over at the latest.
    host.run(&["run", "x", "--wait", "20s", "--", "true"]).is(0);
}

#[test]
fn a_slow_store_has_all_of_the_connect_timeout() {
    let host = Host::new();
    host.run(&["run", "x", "--", "true"]).is(0);
    let outage = Outage::of(&host);
    let slow = host
        .command(&["run", "x", "--connect-timeout", "1m", "--", "echo", "ran"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Longer than the library waits for one try.
    std::thread::sleep(Duration::from_secs(7));
    drop(outage);
    let slow: Done = slow.wait_with_output().unwrap().into();
    let slow = slow.is(0);
    assert_eq!((slow.out.as_str(), slow.err.as_str()), ("ran\n", ""));
}

#[test]
fn once_answered_an_outage_is_waited_out() {
    let host = Host::new();
    let holding = host.hold("x", &["--ttl", "1m"]);
    let waiting = host
        .command(&[
            "run",
            "x",
            "--wait",
            "1m",
            "--connect-timeout",
            "1s",
            "--",
            "echo",
            "ran",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    host.await_waiters("x", 1);
    let outage = Outage::of(&host);
    // Longer than the time for the first answer, and than one try of the library.
    std::thread::sleep(Duration::from_secs(7));
    drop(outage);
    holding.end().is(0);
    let waited: Done = waiting.wait_with_output().unwrap().into();
    let waited = waited.is(0);
    assert_eq!((waited.out.as_str(), waited.err.as_str()), ("ran\n", ""));
}

#[test]
fn a_holder_that_is_cut_off_stops_its_job_before_the_lease_ends() {
    let host = Host::new();
    let holding = host.hold("x", &["--ttl", "3s"]);
    let outage = Outage::of(&host);
    let lost = holding.wait().is(76);
    drop(outage);
    assert_eq!(lost.err.lines().count(), 1, "{}", lost.err);
    assert!(
        lost.err
            .starts_with("leasehold: lost \"x\": no renewal was confirmed"),
        "{}",
        lost.err
    );
    // And why not.
    assert!(
        lost.err.contains("database is locked") || lost.err.contains("no answer within"),
        "{}",
        lost.err
    );
}

//! Locks of other makes: whoever takes the same one is kept out, and keeps out.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use leasehold::Release;
use leasehold::store::Broken;
use leasehold_core::clock;
use leasehold_testkit::program::Program;
use leasehold_testkit::servers::python_packages;

/// How long a waiter may take to hear of a release.
const PUSHED: Duration = Duration::from_secs(1);
const PYMYSQL: &str = "PyMySQL==1.2.4 \
    --hash=sha256:e169bed906168fffd0088925f45b3df024c2775c6fd128da0df773d47c458840";

/// pymysql, which takes a lock by `GET_LOCK`.
fn pymysql(mysql: &Mysql, lock: &str, seconds: u32) -> Program {
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", python_packages("pymysql", PYMYSQL).unwrap())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/get_lock.py"))
        .arg(mysql.address().port().to_string())
        .args([lock, &seconds.to_string()]);
    Program::start(&mut command)
}

fn says(other: &Program, most: Duration) -> Option<String> {
    other.line_within(most)
}

/// Both ways, with a lock that the other takes by `theirs`.
async fn assert_excludes(mysql: &Mysql, name: &str, theirs: &str) {
    let client = connect(&mysql.url()).await;
    let ours = take(&client, name, LONG).await;
    let busy = pymysql(mysql, theirs, 0);
    assert_eq!(says(&busy, LONG).as_deref(), Some("busy"), "{theirs}");
    // It waits for us, and then holds.
    let mut other = pymysql(mysql, theirs, 60);
    until(LONG, async || waiting(mysql) == 1).await;
    if !name.contains('\'') {
        // It may be quoted in several ways.
        queued(&client, name, 1).await;
    }
    assert_eq!(says(&other, ms(300)), None, "{theirs}");
    assert_eq!(ours.release().await.unwrap(), Release::Freed);
    assert_eq!(says(&other, SLACK).as_deref(), Some("held"), "{theirs}");
    assert_busy(&client, name).await;
    let seen = client.inspect(name).await.unwrap();
    let holder = seen.holder.expect("shown");
    assert_eq!((holder.token, holder.identity), (None, None), "{theirs}");
    // We wait for it.
    let waiting = lock(&client, name, LONG);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    queued(&client, name, 1).await;
    assert!(!waiter.is_finished(), "{theirs}");
    let freed = clock::now();
    other.tell("");
    assert_eq!(says(&other, SLACK).as_deref(), Some("freed"), "{theirs}");
    let guard = waiter.await.unwrap().unwrap();
    assert!(since(freed) < PUSHED, "{theirs}: after {:?}", since(freed));
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    assert!(other.end());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_takes_the_same_lock_is_kept_out_and_keeps_out() {
    on_each(async |mysql| {
        for (name, theirs) in [
            ("jobs/report", "jobs/report"),
            ("it's 100% \\ \"x\"", "it's 100% \\ \"x\""),
            (
                "Jobs/Report",
                "jobs/report-505b27cace108655718fc3d96aa5ac4c",
            ),
        ] {
            assert_excludes(&mysql, name, theirs).await;
        }
    })
    .await;
}

/// What the server takes for one name, or can't write, are locks of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_a_server_does_not_tell_apart_are_different_locks() {
    on_each(async |mysql| {
        // On one session the server would grant one lock twice.
        let clients = [connect(&mysql.url()).await, connect(&mysql.url()).await];
        let other = connect(&mysql.url()).await;
        let long = "x".repeat(199);
        let names = [
            "a",
            "A",
            "a ",
            "e",
            "\u{e9}",
            "E\u{301}",
            "\u{1f600}",
            "\u{1f601}",
            &format!("{long}1"),
            &format!("{long}2"),
        ];
        let mut held = Vec::new();
        for (name, client) in names.into_iter().zip(clients.iter().cycle()) {
            held.push(take(client, name, LONG).await);
            assert_busy(&other, name).await;
        }
        let listed = other.list("").await.unwrap();
        assert_eq!(listed.len(), names.len());
        for guard in held {
            assert_eq!(guard.release().await.unwrap(), Release::Freed);
        }
        // Each has a counter of its own.
        for name in names {
            assert_eq!(take(&other, name, LONG).await.token().get(), 2, "{name}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_another_make_is_broken_with_its_session() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let mut other = Session::start(&mysql);
        other.ask("SELECT GET_LOCK('x', 0);");
        let broken = client.break_hold("x", None).await.unwrap();
        let Broken::Ended(holder) = broken else {
            panic!("{broken:?}");
        };
        assert_eq!(holder.token, None);
        take(&client, "x", LONG).await.release().await.unwrap();
    })
    .await;
}

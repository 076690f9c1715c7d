//! The command on a real ZooKeeper.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Host;
use leasehold_testkit::servers::ZooKeeper;

#[test]
fn a_busy_lock_is_75_and_the_holder_can_be_seen_and_broken() {
    let zookeeper = ZooKeeper::start(1).unwrap();
    let host = Host::on(zookeeper.url());
    let holding = host.hold("jobs/x", &["--note", "nightly"]);
    host.run(&["run", "jobs/x", "--", "touch", "ran"])
        .is(75)
        .says("note \"nightly\"");
    assert!(!host.path().join("ran").exists());
    let list = host.run(&["list", "jobs/"]).is(0);
    assert!(list.out.contains("\njobs/x "), "{}", list.out);
    host.run(&["break", "jobs/x"]).is(0);
    holding
        .wait()
        .is(76)
        .says("lost \"jobs/x\": an operator took it away; the command is stopped");
    host.run(&["status", "jobs/x"]).is(1);
}

#[test]
fn a_jobs_token_rises_and_what_needs_a_detached_hold_is_refused() {
    let zookeeper = ZooKeeper::start(1).unwrap();
    let host = Host::on(zookeeper.url());
    let token = || -> u64 {
        let ran = host.run(&[
            "run",
            "x",
            "--",
            "sh",
            "-c",
            "echo $LEASEHOLD_TOKEN; exit 3",
        ]);
        ran.is(3).out.trim().parse().unwrap()
    };
    let first = token();
    assert!(token() > first);
    host.run(&["acquire", "x"]).is(78);
    host.run(&["status", "x"]).is(1);
}

#[test]
fn doctor_counts_the_servers() {
    let zookeeper = ZooKeeper::start(1).unwrap();
    let ran = Host::on(zookeeper.url()).run(&["doctor"]);
    assert!(
        ran.out.contains("1 voting server"),
        "{}{}",
        ran.out,
        ran.err
    );
    assert!(ran.out.contains("ZooKeeper 3.8"), "{}{}", ran.out, ran.err);
}

#[test]
fn an_ensemble_that_is_not_there_is_69_and_the_job_does_not_run() {
    let host = Host::on("zookeeper://127.0.0.1:9");
    host.run(&["run", "x", "--", "touch", "ran"]).is(69);
    assert!(!host.path().join("ran").exists());
}

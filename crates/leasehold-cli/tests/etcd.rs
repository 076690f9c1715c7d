//! The command on a real etcd.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Host;
use leasehold_testkit::servers::{Etcd, EtcdEdition};

fn server(edition: EtcdEdition) -> Etcd {
    Etcd::start(edition, 1).unwrap()
}

#[test]
fn a_job_sees_what_etcdctl_lock_would_give_it_and_the_token_rises() {
    let etcd = server(EtcdEdition::Etcd35);
    let host = Host::on(etcd.url());
    let script = "echo $LEASEHOLD_NAME $LEASEHOLD_TOKEN $ETCD_LOCK_KEY $ETCD_LOCK_REV; exit 3";
    let token = || -> u64 {
        let ran = host.run(&["run", "jobs/x", "--", "sh", "-c", script]).is(3);
        assert_eq!(ran.err, "");
        let words: Vec<&str> = ran.out.split_whitespace().collect();
        assert_eq!(words[0], "jobs/x");
        assert!(words[2].starts_with("jobs/x/"), "{words:?}");
        assert_eq!(words[1], words[3], "the revision is the token");
        words[1].parse().unwrap()
    };
    let first = token();
    assert!(token() > first);
    host.run(&["status", "jobs/x"]).is(1);
    let left = etcd
        .control()
        .unwrap()
        .args(["get", "", "--prefix", "--keys-only"])
        .output();
    assert_eq!(String::from_utf8_lossy(&left.unwrap().stdout).trim(), "");
}

#[test]
fn a_busy_lock_is_75_and_the_holder_can_be_seen_and_broken() {
    let etcd = server(EtcdEdition::Etcd35);
    let host = Host::on(etcd.url());
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
}

#[test]
fn doctor_tells_of_a_server_that_may_end_leases() {
    let old = server(EtcdEdition::Etcd34);
    let ran = Host::on(old.url()).run(&["doctor"]);
    assert!(ran.out.contains("3.4.31"), "{}{}", ran.out, ran.err);
    let new = server(EtcdEdition::Etcd35);
    let ran = Host::on(new.url()).run(&["doctor"]);
    assert!(
        ran.out.contains("1 voting member"),
        "{}{}",
        ran.out,
        ran.err
    );
}

#[test]
fn a_cluster_that_is_not_there_is_69_and_the_job_does_not_run() {
    let host = Host::on("etcd://127.0.0.1:9");
    host.run(&["run", "x", "--", "touch", "ran"]).is(69);
    assert!(!host.path().join("ran").exists());
}

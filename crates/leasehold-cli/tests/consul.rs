//! The command on a real Consul.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Host, done};
use leasehold_testkit::servers::Consul;

const TOKEN: &str = "11111111-aaaa-bbbb-cccc-111111111111";

/// All keys there are. None is an error of Consul's, unless there were some before.
fn keys(consul: &Consul) -> String {
    let keys = consul.call(0, "GET", "/v1/kv/?keys&consistent", "");
    keys.unwrap_or_default().replace("[]", "")
}

#[test]
fn a_job_sees_what_consul_lock_would_give_it_and_the_token_rises() {
    let consul = Consul::start(1).unwrap();
    let host = Host::on(consul.url());
    let script = "echo $LEASEHOLD_NAME $LEASEHOLD_TOKEN $CONSUL_LOCK_HELD; exit 3";
    let token = || -> u64 {
        let ran = host.run(&["run", "jobs/x", "--", "sh", "-c", script]).is(3);
        assert_eq!(ran.err, "");
        let words: Vec<&str> = ran.out.split_whitespace().collect();
        assert_eq!([words[0], words[2]], ["jobs/x", "true"]);
        words[1].parse().unwrap()
    };
    let first = token();
    assert!(token() > first);
    host.run(&["status", "jobs/x"]).is(1);
    assert_eq!(keys(&consul), "");
    let sessions = consul.call(0, "GET", "/v1/session/list?consistent", "");
    assert_eq!(sessions.unwrap(), "[]");
}

#[test]
fn a_busy_lock_is_75_and_the_holder_can_be_seen_and_broken() {
    let consul = Consul::start(1).unwrap();
    let host = Host::on(consul.url());
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
fn a_hold_for_a_script_is_extended_and_released_by_its_owner() {
    let consul = Consul::start(1).unwrap();
    let host = Host::on(consul.url());
    let taken = host.run(&["acquire", "jobs/x", "--ttl", "30s"]).is(0);
    let owner = taken
        .out
        .split_whitespace()
        .find_map(|set| set.strip_prefix("LEASEHOLD_OWNER="))
        .unwrap_or_else(|| panic!("{}", taken.out))
        .trim_matches('\'')
        .to_owned();
    let as_owner = |words: &[&str]| done(host.command(words).env("LEASEHOLD_OWNER", &owner));
    as_owner(&["extend", "jobs/x", "--ttl", "60s"]).is(0);
    host.run(&["run", "jobs/x", "--", "true"]).is(75);
    as_owner(&["release", "jobs/x"]).is(0);
    host.run(&["status", "jobs/x"]).is(1);
    as_owner(&["release", "jobs/x"]).is(76);
    assert_eq!(keys(&consul), "");
}

#[test]
fn the_token_comes_from_the_environment_and_is_shown_nowhere() {
    let consul = Consul::start_guarded(TOKEN).unwrap();
    let host = Host::on(consul.url());
    let script = "env | grep -v PASSWORD; cat /proc/$PPID/cmdline";
    let ran = done(
        host.command(&["-v", "run", "x", "--", "sh", "-c", script])
            .env("LEASEHOLD_PASSWORD", TOKEN),
    )
    .is(0);
    assert!(
        !ran.out.contains(TOKEN) && !ran.err.contains(TOKEN),
        "{}",
        ran.out
    );
    // In the argument it is refused, without it the server does.
    let argument = format!("consul://:{TOKEN}@{}", consul.address(0));
    let refused = host.run(&["--store", &argument, "run", "x", "--", "true"]);
    let refused = refused.is(64);
    assert!(!refused.err.contains(TOKEN), "{}", refused.err);
    host.run(&["run", "x", "--", "true"]).is(77);
}

#[test]
fn doctor_says_how_long_a_dead_holder_keeps_others_out() {
    let consul = Consul::start(1).unwrap();
    let ran = Host::on(format!("{}?lock-delay=15s", consul.url())).run(&["doctor"]);
    for says in ["1 server", "1.8.7", "75s"] {
        assert!(ran.out.contains(says), "{says}: {}{}", ran.out, ran.err);
    }
    assert_eq!(keys(&consul), "", "the lock that doctor took");
}

#[test]
fn doctor_tells_of_a_token_that_lacks_a_right() {
    const READER: &str = "33333333-aaaa-bbbb-cccc-333333333333";
    let consul = Consul::start_guarded(TOKEN).unwrap();
    let rules =
        r#"key_prefix \"\" { policy = \"read\" } session_prefix \"\" { policy = \"write\" }"#;
    let policy = format!(r#"{{"Name":"reader","Rules":"{rules}"}}"#);
    let token = format!(r#"{{"SecretID":"{READER}","Policies":[{{"Name":"reader"}}]}}"#);
    consul.call(0, "PUT", "/v1/acl/policy", &policy).unwrap();
    consul.call(0, "PUT", "/v1/acl/token", &token).unwrap();
    let host = Host::on(consul.url());
    let doctor = |token| done(host.command(&["doctor"]).env("LEASEHOLD_PASSWORD", token));
    let seen = doctor(READER).is(1).out;
    assert!(
        seen.contains("\nbad      the lock leasehold-doctor"),
        "{seen}"
    );
    assert!(seen.contains("lacks a right"), "{seen}");
    let seen = doctor(TOKEN).is(0).out;
    assert!(seen.contains("taken and given back"), "{seen}");
}

#[test]
fn a_cluster_that_is_not_there_is_69_and_the_job_does_not_run() {
    let host = Host::on("consul://127.0.0.1:9");
    host.run(&["run", "x", "--", "touch", "ran"]).is(69);
    assert!(!host.path().join("ran").exists());
}

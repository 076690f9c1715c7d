//! The command on a real Redis.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::{Done, Host, LONG, done, mask, me, signal};
use leasehold_core::clock::{self, Moment};
use leasehold_testkit::servers::{Redis, RedisCluster, RedisEdition, RedisSentinel};
use rustix::process::Signal;

const CANARY: &str = "canary-7f3a";

fn server(args: &[&str]) -> Redis {
    Redis::start_with(RedisEdition::Redis7, args).unwrap()
}

fn since(moment: Moment) -> Duration {
    clock::now().since(moment).steady
}

#[test]
fn a_job_sees_its_lock_and_the_token_rises() {
    let redis = server(&[]);
    let host = Host::on(redis.url());
    let script = "echo $LEASEHOLD_NAME $LEASEHOLD_TOKEN $LEASEHOLD_STORE; exit 3";
    let token = || -> u64 {
        let ran = host.run(&["run", "jobs/x", "--", "sh", "-c", script]).is(3);
        assert_eq!(ran.err, "");
        let words: Vec<&str> = ran.out.split_whitespace().collect();
        assert_eq!((words[0], words[2]), ("jobs/x", redis.url().as_str()));
        words[1].parse().unwrap()
    };
    let first = token();
    assert!(token() > first);
    host.run(&["status", "jobs/x"]).is(1);
}

#[test]
fn a_busy_lock_is_75_in_one_line_that_names_holder_and_store() {
    let redis = server(&[]);
    let host = Host::on(redis.url());
    let holding = host.hold("jobs/x", &["--note", "nightly"]);
    let busy = host.run(&["run", "jobs/x", "--", "touch", "ran"]).is(75);
    let pid = holding.pid().as_raw_pid();
    assert!(
        busy.err.contains(&format!("(sh, pid {pid})")),
        "{}",
        busy.err
    );
    let expected = format!(
        "leasehold: \"jobs/x\" is busy: held by {} (sh, pid N) since N-N-NTN:N:NZ (D), for D more unless renewed, \
         note \"nightly\"; the command did not run (store {})\n",
        me(),
        redis.url()
    );
    assert_eq!(mask(&busy.err), mask(&expected));
    assert!(!host.path().join("ran").exists());
    let list = host.run(&["list", "jobs/"]).is(0);
    assert!(list.out.contains("\njobs/x "), "{}", list.out);
    // Everything, only for who says so: the server looks through other people's keys as well.
    host.run(&["list"])
        .is(64)
        .says("name a prefix, as in `leasehold list jobs/`, or say --all");
    assert_eq!(host.run(&["list", "--all"]).is(0).out.lines().count(), 2);
    host.run(&["list", "jobs/", "--all"]).is(64);
    host.run(&["break", "jobs/x"]).is(0);
    holding
        .wait()
        .is(76)
        .says("lost \"jobs/x\": an operator took it away; the command is stopped");
}

#[test]
fn those_that_wait_run_one_at_a_time_in_the_order_they_came() {
    let redis = server(&[]);
    let host = Host::on(redis.url());
    let holding = host.hold("x", &[]);
    // Fails when two are inside at once.
    let script = "mkdir inside && echo $0 >> log && sleep 0.2 && rmdir inside";
    let waiting: Vec<_> = (1..=4)
        .map(|number: usize| {
            let number_text = number.to_string();
            let args = [
                "run",
                "x",
                "--wait",
                "1m",
                "--",
                "sh",
                "-c",
                script,
                &number_text,
            ];
            let child = host.command(&args).stderr(Stdio::piped()).spawn().unwrap();
            host.await_waiters("x", number);
            child
        })
        .collect();
    holding.end().is(0);
    for child in waiting {
        let done: Done = child.wait_with_output().unwrap().into();
        assert_eq!(done.is(0).err, "");
    }
    let log = std::fs::read_to_string(host.path().join("log")).unwrap();
    assert_eq!(log, "1\n2\n3\n4\n");
}

#[test]
fn a_killed_holders_lock_is_free_within_its_ttl() {
    let redis = server(&[]);
    let host = Host::on(redis.url());
    let ttl = Duration::from_secs(3);
    let holding = host.hold("x", &["--ttl", "3s"]);
    let killed = clock::now();
    signal(holding.pid(), Signal::KILL);
    let next = host.run(&["run", "x", "--wait", "1m", "--", "true"]).is(0);
    let took = since(killed);
    assert_eq!(next.err, "");
    // The last renewal was not much more than a third of the TTL before.
    assert!(took > ttl / 2, "free too early, after {took:?}");
    let most = ttl + Duration::from_millis(2500);
    assert!(took < most, "still held after {took:?}");
}

#[test]
fn a_server_that_is_down_is_69_and_the_command_does_not_run() {
    let mut redis = server(&[]);
    let host = Host::on(redis.url());
    host.run(&["run", "x", "--", "true"]).is(0);
    redis.stop().unwrap();
    for line in [
        &["run", "x", "--", "touch", "ran"][..],
        &["run", "x", "--wait", "forever", "--", "touch", "ran"],
        &["acquire", "x"],
        &["doctor"],
    ] {
        let mut args = vec!["--connect-timeout", "700ms"];
        args.extend(line);
        let begun = clock::now();
        let down = host.run(&args).is(69);
        assert!(since(begun) >= Duration::from_millis(700), "{line:?}");
        assert_eq!(down.out, "", "{line:?}");
        assert_eq!(down.err.lines().count(), 1, "{}", down.err);
        assert!(down.err.contains(&redis.url()), "{}", down.err);
    }
    assert!(!host.path().join("ran").exists());
}

#[test]
fn a_frozen_server_is_69_and_a_wait_outlives_a_restart() {
    let mut redis = server(&["--appendonly", "yes", "--appendfsync", "always"]);
    let host = Host::on(redis.url());
    let holding = host.hold("x", &["--ttl", "1m"]);
    redis.freeze().unwrap();
    let frozen = [
        "run",
        "y",
        "--connect-timeout",
        "700ms",
        "--",
        "touch",
        "ran",
    ];
    host.run(&frozen).is(69);
    redis.thaw().unwrap();
    let args = ["run", "x", "--wait", "1m", "--", "echo", "ran"];
    let waiting = host
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    host.await_waiters("x", 1);
    redis.kill().unwrap();
    redis.start_again().unwrap();
    let still = host.run(&["status", "x"]).is(0);
    assert!(still.out.contains("held by"), "{}", still.out);
    holding.end().is(0);
    let waited: Done = waiting.wait_with_output().unwrap().into();
    let waited = waited.is(0);
    assert_eq!((waited.out.as_str(), waited.err.as_str()), ("ran\n", ""));
    assert!(!host.path().join("ran").exists());
}

#[test]
fn a_wrong_password_is_77_at_once_and_no_password_is_ever_shown() {
    let right = format!("right-{CANARY}");
    let redis = server(&["--requirepass", &right]);
    let plain = redis.url();
    let host = Host::on(plain.clone());
    let with = |password: &str| plain.replace("redis://", &format!("redis://:{password}@"));
    let wrong = with(&format!("wrong-{CANARY}"));
    for line in [
        &["run", "x", "--", "touch", "ran"][..],
        &["run", "x", "--wait", "forever", "--", "touch", "ran"],
        &["--json", "acquire", "x"],
        &["-v", "doctor"],
    ] {
        // Refused credentials are not retried: far from the time for the first answer.
        let mut args = vec!["--connect-timeout", "40s"];
        args.extend(line);
        for store in [&wrong, &plain] {
            let begun = clock::now();
            let refused = done(host.command(&args).env("LEASEHOLD_STORE", store)).is(77);
            assert!(since(begun) < LONG, "{line:?}");
            assert_eq!(refused.out, "");
            assert!(!refused.err.contains(CANARY), "{}", refused.err);
        }
    }
    assert!(!host.path().join("ran").exists());
    let secret = host.file("secret", &format!("{right}\n"));
    let by_file = format!("{plain}?password-file={}", secret.display());
    for (store, password) in [(with(&right), ""), (plain.clone(), &right), (by_file, "")] {
        let mut command = host.command(&["run", "x", "-v", "--", "env"]);
        command
            .env("LEASEHOLD_STORE", store)
            .env("LEASEHOLD_PASSWORD", password);
        let ran = done(&mut command).is(0);
        assert!(ran.out.contains("LEASEHOLD_OWNER="), "{}", ran.out);
        assert!(!ran.out.contains(CANARY), "{}", ran.out);
        assert!(!ran.err.contains(CANARY), "{}", ran.err);
    }
}

#[test]
fn tls_has_its_cryptography_and_a_server_without_it_is_no_store() {
    let redis = server(&[]);
    let host = Host::on(redis.url().replace("redis://", "rediss://"));
    let refused = host.run(&["run", "x", "--connect-timeout", "2s", "--", "touch", "ran"]);
    let refused = refused.is(69);
    assert!(!refused.err.contains("provider"), "{}", refused.err);
    assert!(!host.path().join("ran").exists());
}

#[test]
fn the_unix_socket_and_a_prefix_are_the_same_store() {
    let redis = server(&[]);
    let socket = redis.socket();
    let host = Host::on(format!("redis+unix://{}?prefix=a:", socket.display()));
    let holding = host.hold("x", &[]);
    let mut command = host.command(&["status", "a:x"]);
    done(command.env("LEASEHOLD_STORE", redis.url())).is(0);
    host.run(&["status", "a:x"]).is(1);
    holding.end().is(0);
}

#[test]
fn doctor_warns_of_a_default_server_and_not_of_a_safe_one() {
    let default = server(&[]);
    let seen = Host::on(default.url()).run(&["doctor"]).is(0);
    let first = format!(
        "store    {}\ngood     the server is Redis 7.",
        default.url()
    );
    assert!(seen.out.starts_with(&first), "{}", seen.out);
    let warned = "\nwarning  appendonly is no; a restart forgets held locks";
    assert!(seen.out.contains(warned), "{}", seen.out);
    assert_eq!(seen.err, "");

    let safe = server(&["--appendonly", "yes", "--appendfsync", "always"]);
    let seen = Host::on(safe.url()).run(&["doctor"]).is(0);
    for good in [
        "maxmemory-policy is noeviction",
        "appendonly is yes",
        "appendfsync is always",
    ] {
        assert!(
            seen.out.contains(&format!("\ngood     {good}\n")),
            "{}",
            seen.out
        );
    }
    // Its version's known hole is all there is to say.
    assert_eq!(seen.out.matches("\nwarning ").count(), 1, "{}", seen.out);
}

#[test]
fn doctor_exits_1_where_held_locks_may_be_deleted() {
    let redis = server(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let host = Host::on(redis.url());
    let seen = host.run(&["doctor"]).is(1);
    let bad = "\nbad      maxmemory-policy is allkeys-lru; under memory pressure";
    assert!(seen.out.contains(bad), "{}", seen.out);
    let json = host.run(&["doctor", "--json"]).is(1);
    let findings: Vec<serde_json::Value> = json
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |verdict: &str| findings.iter().find(|found| found["verdict"] == verdict);
    let found = of("bad").unwrap();
    assert_eq!(found["schema"], 1);
    assert_eq!(found["store"], redis.url());
    assert_eq!(found["what"], "maxmemory-policy is allkeys-lru");
    assert!(found["advice"].as_str().unwrap().contains("noeviction"));
    assert!(of("good").unwrap()["advice"].is_null());
}

#[test]
fn doctor_finds_a_new_file_good() {
    let host = Host::new();
    let seen = host.run(&["doctor"]).is(0);
    assert!(
        seen.out.contains("\ngood     journal_mode is wal\n"),
        "{}",
        seen.out
    );
    let good = seen
        .out
        .lines()
        .skip(1)
        .all(|line| line.starts_with("good "));
    assert!(good, "{}", seen.out);
}

#[test]
fn sentinels_and_a_cluster_are_stores_and_doctor_says_what_it_sees() {
    let group = RedisSentinel::start(RedisEdition::Redis7).unwrap();
    let cluster = RedisCluster::start(RedisEdition::Redis7).unwrap();
    for (url, seen) in [
        (
            group.url(),
            "3 sentinel(s) are asked for the master \"mymaster\"",
        ),
        (cluster.url(), "the cluster has 3 master(s)"),
    ] {
        let host = Host::on(url);
        host.run(&["run", "jobs/x", "--", "true"]).is(0);
        host.run(&["status", "jobs/x"]).is(1);
        let doctor = host.run(&["doctor"]);
        assert!(doctor.out.contains(seen), "{}\n{}", doctor.out, doctor.err);
    }
}

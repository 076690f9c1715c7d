//! What the command says and exits with where Redis, or the URL of it, isn't as it should be.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::{Child, Stdio};
use std::time::Duration;

use common::{Done, Host, LONG, done};
use leasehold_core::clock::{self, Moment};
use leasehold_testkit::servers::{Redis, RedisEdition};

fn server() -> Redis {
    Redis::start(RedisEdition::Redis7).unwrap()
}

fn since(moment: Moment) -> Duration {
    clock::now().since(moment).steady
}

#[test]
fn a_url_that_can_not_be_right_is_78_and_says_what_to_write() {
    let redis = server();
    let at = redis.address();
    for (url, text) in [
        (
            format!("redis+cluster://{at}"),
            "write redis:// for redis+cluster://",
        ),
        (
            format!("redis+sentinel://{at}?master=m"),
            "write redis:// for redis+sentinel://",
        ),
        (format!("redis://{at}/99"), "databases"),
        (
            format!("redis://{at}?PREFIX=a:"),
            "did you mean \"prefix\"?",
        ),
        (
            format!("redis+sentinel://{at}?Master=m"),
            "did you mean \"master\"?",
        ),
        (
            format!("redis+cluster://{at},,{at}"),
            "a host is missing; write",
        ),
        (
            format!("redis://{at}?prefix=a:&prefix=b:"),
            "is not a store URL: its parameter \"prefix\" is given twice",
        ),
    ] {
        let host = Host::on(url);
        for line in [&["run", "x", "--", "touch", "ran"][..], &["doctor"]] {
            host.run(line).is(78).says(text);
        }
        assert!(!host.path().join("ran").exists());
    }
    let host = Host::on(format!("redis://{at}?prefix=leasehold:"));
    host.run(&["status", "x"])
        .is(64)
        .says("leasehold's own keys");
}

#[test]
fn too_few_replicas_fail_a_run_at_once_or_at_the_end_of_its_wait() {
    let redis = server();
    let url = format!("{}?min-replicas=1&replica-timeout=50ms", redis.url());
    let host = Host::on(url);
    let what = "0 of the 1 replicas that min-replicas asks for";
    let patient = ["--connect-timeout", "40s", "run", "x"];
    let tried = |wait: &[&str]| {
        let begun = clock::now();
        let job = ["--", "touch", "ran"];
        let args = [&patient[..], wait, &job].concat();
        host.run(&args).is(69).says(what);
        assert!(!host.path().join("ran").exists());
        since(begun)
    };
    assert!(tried(&[]) < LONG);
    assert!(tried(&["--wait", "0s"]) < LONG);
    let waited = tried(&["--wait", "1500ms"]);
    assert!(
        waited >= Duration::from_millis(1500) && waited < LONG,
        "{waited:?}"
    );
    // It was given back each time.
    Host::on(redis.url()).run(&["status", "x"]).is(1);
}

fn waiting_for_3_s(host: &Host) -> Child {
    let args = [
        "run", "x", "--ttl", "3s", "--wait", "3s", "--", "touch", "ran",
    ];
    let mut command = host.command(&args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = command.spawn().unwrap();
    host.await_waiters("x", 1);
    waiting
}

/// What it asked for is granted after its wait: its own late grant makes the lock no other's.
#[test]
fn a_wait_that_ends_in_an_outage_is_69_also_where_its_own_grant_comes_too_late() {
    let redis = server();
    let host = Host::on(redis.url());
    let holding = host.hold("x", &["--ttl", "3s"]);
    let begun = clock::now();
    let waiting = waiting_for_3_s(&host);
    redis.freeze().unwrap();
    // Longer than the wait and the holder's lease, shorter than the last question may take.
    std::thread::sleep(Duration::from_millis(3600).saturating_sub(since(begun)));
    redis.thaw().unwrap();
    let waited: Done = waiting.wait_with_output().unwrap().into();
    waited.is(69);
    assert!(!host.path().join("ran").exists());
    holding.wait();
}

#[test]
fn a_wait_ends_in_time_and_with_69_on_a_store_that_stands_still() {
    let redis = server();
    let host = Host::on(redis.url());
    let holding = host.hold("x", &["--ttl", "30s"]);
    let begun = clock::now();
    let waiting = waiting_for_3_s(&host);
    redis.freeze().unwrap();
    let waited: Done = waiting.wait_with_output().unwrap().into();
    let took = since(begun);
    // The last question alone could once take five seconds more.
    assert!(took < Duration::from_millis(7500), "{took:?}");
    waited.is(69).says("gave no answer");
    redis.thaw().unwrap();
    holding.end();
}

#[test]
fn extend_and_release_say_why_a_hold_is_gone() {
    let redis = server();
    let host = Host::on(redis.url());
    let raw = |words: &[&str]| {
        let mut stream = std::net::TcpStream::connect(redis.address()).unwrap();
        std::io::Write::write_all(&mut stream, format!("{}\r\n", words.join(" ")).as_bytes())
            .unwrap();
        let mut answer = [0; 1];
        std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
    };
    let end: [(&dyn Fn(), &str, &str); 2] = [
        (
            &|| drop(host.run(&["break", "x"]).is(0)),
            "an operator took it away",
            "an operator had taken it away, and nobody has it",
        ),
        (
            &|| raw(&["DEL", "x"]),
            "its time was over, or it was deleted",
            "by its time or because it was deleted, and nobody has it",
        ),
    ];
    for (end, extended, released) in end {
        let taken = host.run(&["acquire", "x", "--ttl", "10m", "--json"]).is(0);
        let owner = taken.json()["owner"].as_str().unwrap().to_owned();
        let status = host.run(&["status", "x"]).is(0);
        assert!(
            status.out.contains("(leasehold acquire, pid "),
            "{}",
            status.out
        );
        end();
        let with = |args: &[&str]| done(host.command(args).env("LEASEHOLD_OWNER", &owner));
        with(&["extend", "x", "--ttl", "10m"]).is(76).says(extended);
        with(&["release", "x"]).is(76).says(released);
    }
    // The same of a job's lock, where what the lease still had is known.
    let job = ["--", "sh", "-c", "echo; read line"];
    for (end, said) in [
        (end[0].0, "an operator took it away"),
        (end[1].0, "it was gone from the store before its time"),
    ] {
        let args = [&["run", "x", "--ttl", "10s"][..], &job].concat();
        let mut running = host
            .command(&args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 1];
        std::io::Read::read_exact(running.stdout.as_mut().unwrap(), &mut line).unwrap();
        end();
        // Its input stays open: it is stopped.
        let input = running.stdin.take();
        let lost: Done = running.wait_with_output().unwrap().into();
        drop(input);
        lost.is(76).says(said);
    }
}

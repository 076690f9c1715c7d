//! The command on several independent Redis servers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use common::{Done, Host, eventually};
use leasehold_core::clock;
use leasehold_testkit::servers::{RedisEdition, RedisNodes};

fn nodes(count: usize) -> RedisNodes {
    RedisNodes::start(RedisEdition::Redis7, count).unwrap()
}

/// The keys of a node, sorted.
fn keys(nodes: &RedisNodes, at: usize) -> Vec<String> {
    let mut stream = TcpStream::connect(nodes.address(at)).unwrap();
    stream.write_all(b"KEYS *\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with('*'), "{answer}");
    let words = answer.lines().skip(1).filter(|line| !line.starts_with('$'));
    let mut keys: Vec<String> = words.map(str::to_owned).collect();
    keys.sort();
    keys
}

/// Whether the job ran.
fn ran(host: &Host, code: i32) -> (bool, String) {
    let file = host.path().join("ran");
    let _ = std::fs::remove_file(&file);
    let done = host.run(&["run", "jobs/x", "--", "touch", "ran"]).is(code);
    (file.exists(), done.err)
}

#[test]
fn two_of_five_nodes_killed_the_job_runs_and_three_it_does_not() {
    let mut nodes = nodes(5);
    let host = Host::on(nodes.url());
    assert!(ran(&host, 0).0);
    for at in [1, 3] {
        nodes.node(at).kill().unwrap();
        assert!(ran(&host, 0).0, "{at} was killed");
    }
    nodes.node(4).kill().unwrap();
    let (ran_too, error) = ran(&host, 69);
    assert!(!ran_too);
    assert!(
        error.contains("2 of 5 nodes answer, and it takes 3"),
        "{error}"
    );
    for at in [1, 3, 4] {
        nodes.node(at).start_again().unwrap();
    }
    for at in 0..5 {
        let mut left = keys(&nodes, at);
        left.retain(|key| !["leasehold:redlock", "leasehold:redlock:f:{jobs/x}"].contains(&&**key));
        // It stands against a try that may still land, where a node was slow to answer, and ends by itself.
        left.retain(|key| !key.starts_with("leasehold:x:{jobs/x}:"));
        assert!(left.is_empty(), "{left:?} on {at}");
    }
}

#[test]
fn too_few_nodes_are_waited_for_as_long_as_the_wait_lasts() {
    let mut nodes = nodes(3);
    let host = Host::on(nodes.url());
    assert!(ran(&host, 0).0);
    for at in [0, 2] {
        nodes.node(at).kill().unwrap();
    }
    let wait = ["run", "jobs/x", "--connect-timeout", "1s", "--wait"];
    let begun = clock::now();
    let out = host
        .run(&[&wait[..], &["3s", "--", "touch", "late"]].concat())
        .is(69);
    let took = clock::now().since(begun).steady;
    assert!(took >= Duration::from_secs(3), "{took:?}");
    assert!(out.err.contains("1 of 3 nodes"), "{}", out.err);
    assert!(!host.path().join("late").exists());
    // Longer than for the first answer, and shorter than the wait.
    let args = [&wait[..], &["1m", "--ttl", "2s", "--", "echo", "ran"]].concat();
    let waiting = host
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    for at in [0, 2] {
        nodes.node(at).start_again().unwrap();
    }
    host.run(&["redlock", "rejoin"]).is(0);
    let waited: Done = waiting.wait_with_output().unwrap().into();
    assert_eq!(waited.is(0).out, "ran\n");
    // Nobody there at all is an error at once.
    for at in 0..3 {
        nodes.node(at).kill().unwrap();
    }
    host.run(&[&wait[..], &["1m", "--", "true"]].concat())
        .is(69)
        .says("0 of 3 nodes");
}

/// What the operator is told, in lines.
#[test]
fn doctor_tells_of_every_node_also_without_a_majority() {
    let mut nodes = nodes(5);
    let host = Host::on(nodes.url());
    assert!(ran(&host, 0).0);
    for at in [0, 1, 2] {
        nodes.node(at).kill().unwrap();
    }
    nodes.node(2).start_again().unwrap();
    let names: Vec<String> = (0..5).map(|at| nodes.address(at).to_string()).collect();
    let line_of = |out: &str, node: &str| {
        let mark = format!("  {node}: ");
        let line = out.lines().find(|line| line.contains(&mark));
        line.unwrap_or_else(|| panic!("{node} in {out}")).to_owned()
    };
    let doctor = host.run(&["doctor"]).is(1);
    for (node, says) in [
        (0, "can't be asked"),
        (1, "can't be asked"),
        (2, "came without a memory"),
        (3, "it remembers what it granted"),
        (4, "it remembers what it granted"),
    ] {
        let line = line_of(&doctor.out, &names[node]);
        assert!(line.contains(says), "{line}");
    }
    // In one line, each thing is said once.
    let (_, error) = ran(&host, 69);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert_eq!(error.matches("can't be reached").count(), 1, "{error}");
    assert_eq!(error.matches("is it running").count(), 1, "{error}");
    assert_eq!(error.matches("came without a memory").count(), 1, "{error}");
    assert!(error.contains("redlock rejoin"), "{error}");
    let shown = error.find("(store").unwrap_or(error.len());
    assert!(shown < 600, "{error}");
}

#[test]
fn frozen_minority_costs_a_command_one_node_timeout() {
    let mut nodes = nodes(5);
    let host = Host::on(format!("{}?node-timeout=3s", nodes.url()));
    assert!(ran(&host, 0).0);
    for at in [0, 3] {
        nodes.node(at).freeze().unwrap();
        let begun = clock::now();
        assert!(ran(&host, 0).0);
        let took = clock::now().since(begun).steady;
        // At connecting. The lock, its token and the release go on without it.
        assert!(took >= Duration::from_secs(3), "{took:?}");
        assert!(took < Duration::from_millis(4700), "{took:?}");
    }
    for at in [0, 3] {
        nodes.node(at).thaw().unwrap();
    }
}

#[test]
fn majority_that_forgot_is_refused_until_the_operator_lets_it_rejoin() {
    let mut nodes = nodes(3);
    let host = Host::on(nodes.url());
    let token = || -> u64 {
        let job = "printf %s $LEASEHOLD_TOKEN";
        let ran = host.run(&["run", "jobs/x", "--", "sh", "-c", job]).is(0);
        ran.out.parse().unwrap()
    };
    let first = token();
    for at in [0, 1] {
        nodes.node(at).kill().unwrap();
        nodes.node(at).start_again().unwrap();
    }
    let (ran, error) = ran(&host, 69);
    assert!(!ran);
    assert!(error.contains("`leasehold redlock rejoin`"), "{error}");
    let doctor = host.run(&["doctor"]).is(1);
    assert!(doctor.out.contains("redlock rejoin"), "{}", doctor.out);
    let rejoined = host.run(&["redlock", "rejoin"]).is(0);
    assert!(
        rejoined.out.contains("good     3 of 3 nodes count"),
        "{}",
        rejoined.out
    );
    assert!(token() > first);
    host.run(&["redlock", "rejoin", "--json"]).is(0);
    let other = Host::new();
    other
        .run(&["redlock", "rejoin"])
        .is(78)
        .says("only the nodes of redlock://");
}

#[test]
fn release_says_that_an_operator_had_taken_the_lock_away() {
    let nodes = nodes(3);
    let host = Host::on(nodes.url());
    let taken = host.run(&["acquire", "x", "--ttl", "10m", "--json"]).is(0);
    let owner = host.path().join("owner");
    std::fs::write(&owner, taken.json()["owner"].as_str().unwrap()).unwrap();
    host.run(&["break", "x"]).is(0);
    let release = ["release", "x", "--owner-file", owner.to_str().unwrap()];
    host.run(&release)
        .is(76)
        .says("an operator had taken it away");
}

#[test]
fn node_that_forgot_is_shown_as_recovering_until_it_counts() {
    let mut nodes = nodes(3);
    let host = Host::on(nodes.url());
    let job = ["run", "jobs/x", "--ttl", "4s", "--", "true"];
    host.run(&job).is(0);
    nodes.node(2).kill().unwrap();
    let name = nodes.address(2).to_string();
    let status = host.run(&["status", "jobs/x"]).is(1);
    assert!(
        status.out.contains(&format!("{name} can't be asked")),
        "{}",
        status.out
    );
    nodes.node(2).start_again().unwrap();
    let recovering = format!("{name} is recovering");
    let status = host.run(&["status", "jobs/x"]).is(1);
    assert!(status.out.contains(&recovering), "{}", status.out);
    let json = host.run(&["status", "jobs/x", "--json"]).is(1).json();
    let remark = json["remarks"][0].as_str().unwrap();
    assert!(remark.contains(&recovering), "{json}");
    // It warns; a majority is there.
    let doctor = host.run(&["doctor"]).is(0);
    assert!(
        doctor.out.contains("warning  2 of 3 nodes count")
            && doctor.out.contains(&format!("{name}: is recovering")),
        "{}",
        doctor.out
    );
    host.run(&job).is(0);
    eventually(|| {
        let doctor = host.run(&["doctor"]);
        doctor.out.contains("3 of 3 nodes count")
    });
    let status = host.run(&["status", "jobs/x"]).is(1);
    assert!(!status.out.contains("recovering"), "{}", status.out);
}

//! `leasehold run --once` and `--once-per`, and `leasehold once`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "once/endings.rs"]
mod endings;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use common::{Done, Host, done};
use leasehold_testkit::freezing::{freeze, thaw};
use leasehold_testkit::servers::{Mysql, MysqlEdition, Postgres, Redis, RedisEdition, ServerClock};
use rusqlite::Connection;
use rustix::process::Signal;

/// A run of a job that adds a line to a file; what follows the lock's name are options.
fn line<'a>(name: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let job = ["--", "sh", "-c", "echo ran >> ran"];
    [&["run", name], options, &job].concat()
}

fn run(host: &Host, name: &str, options: &[&str]) -> Done {
    host.run(&line(name, options))
}

/// How often the job ran.
fn ran(host: &Host) -> usize {
    fs::read_to_string(host.path().join("ran")).map_or(0, |text| text.lines().count())
}

/// The state of a key, as `once list` shows it.
fn state(host: &Host, key: &str) -> String {
    let listed = host.run(&["once", "list", key, "--json"]).is(0).json();
    assert_eq!(listed["key"], key);
    assert!(listed["lock"].is_string(), "{listed}");
    listed["state"].as_str().unwrap().to_owned()
}

/// What every store with records does.
fn happens_once(host: &Host) {
    let store = host.store();
    let once = ["--once", "reports/2026-11"];
    assert_eq!(host.run(&["once", "list"]).is(0).out, "");
    let failed = host.run(&[
        "run", "report", "--once", once[1], "--", "sh", "-c", "exit 3",
    ]);
    failed.is(3);
    assert_eq!(state(host, once[1]), "failed");
    let first = run(host, "report", &once).is(0);
    assert_eq!((first.err.as_str(), ran(host)), ("", 1));
    assert_eq!(state(host, once[1]), "done");
    let repeat = run(host, "report", &once).is(0);
    let said = "\"reports/2026-11\" has succeeded: it started at 20";
    let repeat = repeat.says(said).says(" ago) and ended at 20");
    repeat.says("the command did not run").says(&store);
    // Tokens of another lock can't be compared with this one's.
    let refused = run(host, "another", &once).is(78);
    refused
        .says("belongs to the lock \"report\"")
        .says("not to \"another\"");
    // A busy lock is no reason to say no more than that.
    let holding = host.hold("report", &[]);
    run(host, "report", &once).is(0).says("has succeeded");
    run(host, "report", &["--once", "other"]).is(75);
    holding.end().is(0);
    assert_eq!(ran(host), 1);

    let listed = host.run(&["once", "list", "reports/"]).is(0).out;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("KEY"), "{listed}");
    assert!(
        lines[1].starts_with("reports/2026-11  done   report"),
        "{listed}"
    );
    assert_eq!(lines.len(), 2, "{listed}");
    assert_eq!(host.run(&["once", "list", "x"]).is(0).out, "");
    let forgotten = host.run(&["once", "forget", once[1]]).is(0);
    let text = format!("reports/2026-11: forgotten; its job runs again, at {store}\n");
    assert_eq!(forgotten.out, text);
    let none = host.run(&["once", "forget", once[1], "--json"]).is(1);
    assert_eq!(none.json()["outcome"], "none");
    run(host, "report", &once).is(0);
    assert_eq!(ran(host), 2);
}

#[test]
fn an_sqlite_store_has_a_job_succeed_once() {
    happens_once(&Host::new());
}

#[test]
fn postgres_has_a_job_succeed_once() {
    let postgres = Postgres::start().unwrap();
    happens_once(&Host::on(postgres.url()));
}

#[test]
fn mysql_and_mariadb_have_a_job_succeed_once() {
    for edition in MysqlEdition::ALL {
        let mysql = Mysql::start(edition).unwrap();
        happens_once(&Host::on(mysql.url()));
    }
}

#[test]
fn redis_and_valkey_have_a_job_succeed_once() {
    for edition in RedisEdition::ALL {
        let redis = Redis::start(edition).unwrap();
        happens_once(&Host::on(redis.url()));
    }
}

#[test]
fn a_nightly_job_runs_each_night_and_once_a_night() {
    let host = Host::new();
    let clock = ServerClock::new().unwrap();
    let at = |minutes: i64| {
        clock.set(minutes * 60, 0).unwrap();
        let mut command = host.command(&line("nightly", &["--once-per", "24h"]));
        clock.lend(&mut command);
        done(&mut command).is(0)
    };
    const NIGHT: i64 = 24 * 60;
    assert_eq!(at(0).err, "");
    at(0).says("it is due again from 20");
    // Another start of the same night, and a host whose night is later.
    at(30).says("has succeeded");
    at(21 * 60).says("has succeeded");
    assert_eq!(ran(&host), 1);
    // A little early, as when the first had to wait for its lock.
    at(NIGHT - 1);
    assert_eq!(ran(&host), 2);
    at(NIGHT + 1).says("has succeeded");
    at(3 * NIGHT);
    assert_eq!(ran(&host), 3);
    // It goes by the lock's name, and another key is another matter.
    assert_eq!(state(&host, "nightly"), "done");
    run(&host, "nightly", &["--once-per", "24h", "--once", "x"]).is(0);
    assert_eq!(ran(&host), 4);
}

#[test]
fn of_hosts_whose_clocks_differ_the_stores_clock_decides() {
    let postgres = Postgres::start().unwrap();
    let host = Host::on(postgres.url());
    let clock = ServerClock::new().unwrap();
    let on = |hours: i64| {
        clock.set(hours * 3600, 0).unwrap();
        let mut command = host.command(&line("nightly", &["--once-per", "24h"]));
        clock.lend(&mut command);
        done(&mut command).is(0)
    };
    on(-50);
    assert_eq!(ran(&host), 1);
    for hours in [-50, 0, 30, 1000] {
        on(hours).says("has succeeded").says("s ago)");
    }
    assert_eq!(ran(&host), 1);
    let older = "UPDATE leasehold_once SET started = started - 86340000, ended = ended - 86340000";
    postgres.query(older).unwrap();
    on(-50);
    assert_eq!(ran(&host), 2);
    on(1000).says("has succeeded");
}

#[test]
fn of_fifty_processes_on_one_key_exactly_one_works() {
    let host = Host::new();
    let options = ["--once", "k", "--wait", "forever"];
    let spawn = || {
        let mut command = host.command(&line("n", &options));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let all: Vec<_> = (0..50).map(|_| spawn()).collect();
    let ended: Vec<Done> = all
        .into_iter()
        .map(|child| Done::from(child.wait_with_output().unwrap()).is(0))
        .collect();
    assert_eq!(ran(&host), 1);
    let skipped = ended
        .iter()
        .filter(|done| done.err.contains("has succeeded"));
    assert_eq!(skipped.count(), 49);
}

#[test]
fn a_run_that_was_killed_before_it_was_recorded_is_repeated() {
    let host = Host::new();
    let holding = host.hold("n", &["--once", "k", "--ttl", "3s"]);
    assert_eq!(state(&host, "k"), "running");
    common::signal(holding.pid(), Signal::KILL);
    run(&host, "n", &["--once", "k", "--wait", "30s"]).is(0);
    assert_eq!((ran(&host), state(&host, "k")), (1, "done".into()));
    assert_eq!(holding.end().code, None);
}

#[test]
fn a_lost_lock_records_nothing() {
    let host = Host::new();
    let holding = host.hold("n", &["--once", "k"]);
    host.run(&["break", "n"]).is(0);
    holding.wait().is(76);
    assert_eq!(state(&host, "k"), "running");
    run(&host, "n", &["--once", "k"]).is(0);
    assert_eq!((ran(&host), state(&host, "k")), (1, "done".into()));
}

#[test]
fn a_lock_that_is_lost_while_the_record_has_to_wait_records_nothing() {
    let host = Host::new();
    let holding = host.hold("n", &["--once", "k", "--ttl", "2s"]);
    let database = Connection::open(host.path().join("locks.db")).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The job ends under its lock, which can't be renewed, nor the success be recorded.
    let ended = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_secs(3));
            database.execute_batch("COMMIT").unwrap();
        });
        holding.end()
    });
    ended
        .is(76)
        .says("is not recorded: the lock was lost before");
    assert_eq!(state(&host, "k"), "running");
    run(&host, "n", &["--once", "k"]).is(0);
    assert_eq!(ran(&host), 1);
}

#[test]
fn a_success_is_recorded_when_the_store_comes_back_while_the_lock_lasts() {
    let redis = Redis::start(RedisEdition::Redis7).unwrap();
    let host = Host::on(redis.url());
    let holding = host.hold(
        "n",
        &["--once", "k", "--ttl", "20s", "--connect-timeout", "1s"],
    );
    redis.freeze().unwrap();
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| holding.end());
        std::thread::sleep(Duration::from_secs(4));
        redis.thaw().unwrap();
        ending.join().unwrap().is(0);
    });
    assert_eq!(state(&host, "k"), "done");
}

#[test]
fn a_frozen_run_that_wakes_after_a_newer_one_succeeded_records_nothing() {
    let postgres = Postgres::start().unwrap();
    let redis = Redis::start(RedisEdition::Redis7).unwrap();
    let mysql = Mysql::start(MysqlEdition::MariaDb).unwrap();
    let servers = [postgres.url(), redis.url(), mysql.url()].map(Host::on);
    for host in [Host::new()].into_iter().chain(servers) {
        let holding = host.hold("n", &["--once", "k", "--ttl", "3s"]);
        freeze(holding.pid()).unwrap();
        run(&host, "n", &["--once", "k", "--wait", "30s"]).is(0);
        let recorded = host.run(&["once", "list"]).is(0).out;
        thaw(holding.pid()).unwrap();
        holding.end().is(76);
        assert_eq!(ran(&host), 1);
        assert_eq!(host.run(&["once", "list"]).is(0).out, recorded);
    }
}

#[test]
fn a_job_whose_record_was_taken_away_is_told_that_it_counts_for_nothing() {
    let host = Host::new();
    let holding = host.hold("n", &["--once", "k"]);
    host.run(&["once", "forget", "k"]).is(0);
    let text = "the command succeeded, but \"k\" is not recorded";
    holding.end().is(76).says(text).says("taken away");
    // Nor does a store that is away when it is to be recorded pass for one that has it.
    let holding = host.hold("n", &["--once", "k", "--connect-timeout", "1s"]);
    let database = Connection::open(host.path().join("locks.db")).unwrap();
    database
        .execute_batch("ALTER TABLE leasehold_once RENAME TO away")
        .unwrap();
    holding.end().is(69).says(text);
}

#[test]
fn a_record_of_a_newer_token_than_the_locks_keeps_the_job_from_running() {
    let host = Host::new();
    host.run(&["run", "n", "--once", "k", "--", "false"]).is(1);
    let database = Connection::open(host.path().join("locks.db")).unwrap();
    for state in ["failed", "running"] {
        let ahead = "UPDATE leasehold_once SET token = 1000000, state = ?1, \
            ended = CASE ?1 WHEN 'failed' THEN started END";
        database.execute(ahead, [state]).unwrap();
        run(&host, "n", &["--once", "k"])
            .is(76)
            .says("with the token 1000000")
            .says("leasehold once forget k");
    }
    assert_eq!(ran(&host), 0);
    host.run(&["once", "forget", "k"]).is(0);
    run(&host, "n", &["--once", "k"]).is(0);
    assert_eq!(ran(&host), 1);
}

#[test]
fn a_prefix_keeps_keys_apart_and_is_not_shown() {
    let host = Host::new();
    let prefixed = format!("{}?prefix=eu/", host.store());
    run(&host, "n", &["--once", "k", "--store", &prefixed]).is(0);
    run(&host, "n", &["--once", "k"]).is(0);
    assert_eq!(ran(&host), 2);
    let listed = host.run(&["once", "list", "--json", "--store", &prefixed]);
    assert_eq!(listed.is(0).json()["key"], "k");
    host.run(&["once", "forget", "eu/k"]).is(0);
    host.run(&["once", "forget", "k", "--store", &prefixed])
        .is(1);
}

#[test]
fn a_store_without_records_is_refused_with_those_that_keep_them() {
    let host = Host::new();
    for store in [
        "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
        "redis+cluster://127.0.0.1:1",
        "etcd://127.0.0.1:1",
    ] {
        let options = ["--once-per", "24h", "--store", store];
        let refused = run(&host, "n", &options).is(78);
        refused
            .says("keeps no records")
            .says("sqlite://")
            .says("postgres://")
            .says("redis://");
        host.run(&["once", "list", "--store", store]).is(78);
    }
    let away = [
        "once",
        "list",
        "--connect-timeout",
        "300ms",
        "--store",
        "postgres://me@127.0.0.1:1/x",
    ];
    host.run(&away).is(69);
    run(&host, "n", &["--once-per", "0s"])
        .is(64)
        .says("no period");
    run(&host, "n", &["--once", "a//b"])
        .is(64)
        .says("empty segment");
    host.run(&["once", "forget", "a//b"]).is(64);
    assert_eq!(ran(&host), 0);
}

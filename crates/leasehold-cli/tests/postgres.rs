//! The command on a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{Host, done};
use leasehold_core::clock;
use leasehold_testkit::freezing::{freeze, thaw};
use leasehold_testkit::program::Program;
use leasehold_testkit::servers::{PgBouncer, Postgres};

#[test]
fn a_jobs_token_rises_and_what_needs_a_detached_hold_is_refused() {
    let postgres = Postgres::start().unwrap();
    let host = Host::on(postgres.url());
    let script = "echo $LEASEHOLD_NAME $LEASEHOLD_TOKEN; exit 3";
    let token = || -> u64 {
        let ran = host.run(&["run", "jobs/x", "--", "sh", "-c", script]).is(3);
        assert_eq!(ran.err, "");
        let words: Vec<&str> = ran.out.split_whitespace().collect();
        assert_eq!(words[0], "jobs/x");
        words[1].parse().unwrap()
    };
    let first = token();
    assert!(token() > first);
    host.run(&["acquire", "jobs/x"])
        .is(78)
        .says("use leasehold run NAME -- COMMAND");
    host.run(&["status", "jobs/x"]).is(1);
}

#[test]
fn a_busy_lock_is_75_and_the_holder_can_be_seen_and_broken() {
    let postgres = Postgres::start().unwrap();
    let host = Host::on(postgres.url());
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
fn a_stopped_leaseholds_lock_is_free_within_its_ttl_and_a_second_and_it_wakes_to_76() {
    let postgres = Postgres::start().unwrap();
    let host = Host::on(postgres.url());
    let holding = host.hold("x", &["--ttl", "3s"]);
    freeze(holding.pid()).unwrap();
    let stopped = clock::now();
    host.run(&["run", "x", "--wait", "30s", "--", "true"]).is(0);
    let free = clock::now().since(stopped).steady;
    // The command itself takes a moment, on a busy machine.
    assert!(free < Duration::from_secs(3 + 1 + 2), "free after {free:?}");
    thaw(holding.pid()).unwrap();
    holding.wait().is(76);
}

#[test]
fn a_pooler_that_gives_each_transaction_another_session_is_78_with_the_reason() {
    let postgres = Postgres::start().unwrap();
    let bouncer = PgBouncer::start(&postgres, "transaction", "").unwrap();
    let host = Host::on(bouncer.url());
    host.run(&["run", "x", "--", "touch", "ran"])
        .is(78)
        .says("transaction pooling");
    assert!(!host.path().join("ran").exists());
}

#[test]
fn a_psql_session_and_a_job_keep_each_other_out() {
    let postgres = Postgres::start().unwrap();
    let host = Host::on(format!("{}?key=hashtext", postgres.url()));
    let mut psql = Program::start(&mut postgres.psql("locks").unwrap());
    let mut ask = |sql: &str| {
        psql.tell(sql);
        psql.line_within(common::LONG).unwrap()
    };
    assert_eq!(ask("SELECT pg_try_advisory_lock(hashtext('job'));"), "t");
    host.run(&["run", "job", "--", "touch", "ran"]).is(75);
    assert!(!host.path().join("ran").exists());
    assert_eq!(ask("SELECT pg_advisory_unlock(hashtext('job'));"), "t");
    let holding = host.hold("job", &[]);
    assert_eq!(ask("SELECT pg_try_advisory_lock(hashtext('job'));"), "f");
    holding.end().is(0);
    assert_eq!(ask("SELECT pg_try_advisory_lock(hashtext('job'));"), "t");
}

#[test]
fn the_password_comes_from_where_postgresqls_own_programs_look_and_is_shown_nowhere() {
    let postgres = Postgres::start().unwrap();
    let file = postgres.socket_folder().join("pg_hba.conf");
    postgres
        .query("CREATE ROLE me LOGIN PASSWORD 'canary'; GRANT CREATE ON DATABASE locks TO me")
        .unwrap();
    let lines = format!(
        "COPY (VALUES ('host all postgres all trust'), ('host all all all scram-sha-256')) TO '{}'",
        file.display()
    );
    postgres.query(&lines).unwrap();
    postgres.query("SELECT pg_reload_conf()").unwrap();
    let host = Host::on(format!("postgres://me@{}/locks", postgres.address()));
    let refused = || host.run(&["run", "x", "--", "true"]).code != Some(0);
    common::eventually(refused);
    let script = "env | grep -v PASSWORD; cat /proc/$PPID/cmdline";
    let words = ["-v", "run", "x", "--", "sh", "-c", script];
    for variable in ["PGPASSWORD", "LEASEHOLD_PASSWORD"] {
        let ran = done(host.command(&words).env(variable, "canary")).is(0);
        assert!(!ran.out.contains("canary"), "{}", ran.out);
        assert!(!ran.err.contains("canary"), "{}", ran.err);
    }
    let wrong = host.command(&words).env("PGPASSWORD", "canary-2").output();
    assert_eq!(wrong.unwrap().status.code(), Some(77));
    host.run(&words).is(77).says("none was found in the URL");
}

/// The server frees the lock as soon as it sees the connection end.
#[test]
fn a_job_that_ignores_term_is_gone_when_its_leasehold_was_killed() {
    let postgres = Postgres::start().unwrap();
    let host = Host::on(postgres.url());
    let log = || std::fs::read_to_string(host.path().join("log")).unwrap_or_default();
    let stubborn = "trap '' TERM; while :; do echo a >> log; sleep 0.02; done";
    let mut first = host.command(&["run", "x", "--", "sh", "-c", stubborn]);
    let mut first = first.spawn().unwrap();
    common::eventually(|| log().contains('a'));
    first.kill().unwrap();
    first.wait().unwrap();
    let next = ["run", "x", "--wait", "10s", "--", "sh", "-c"];
    let next: Vec<&str> = next.into_iter().chain(["echo b >> log; sleep 1"]).collect();
    host.run(&next).is(0);
    let log = log();
    let (_, after) = log.split_once('b').unwrap();
    // With a second of grace there would be some forty.
    assert!(after.matches('a').count() < 10, "{log}");
}

#[test]
fn a_user_who_may_make_no_table_takes_one_that_the_printed_schema_made() {
    let postgres = Postgres::start().unwrap();
    postgres.query("CREATE ROLE me LOGIN").unwrap();
    let host = Host::on(format!("postgres://me@{}/locks", postgres.address()));
    for (line, table) in [
        (&["run", "x", "--", "true"][..], "locks"),
        (&["fence", "check", "stock", "7"], "fence"),
        (&["run", "x", "--once", "charge", "--", "true"], "once"),
    ] {
        host.run(line)
            .is(77)
            .says("leasehold schema postgres")
            .says("permission denied for");
        let made = host.run(&["schema", "postgres", table]).is(0).out;
        postgres.query(&made).unwrap();
        host.run(line).is(77).says("--role ROLE");
        let schema = ["schema", "postgres", table, "--role", "me"];
        let schema = host.run(&schema).is(0).out;
        // Twice does no harm.
        for _ in 0..2 {
            postgres.query(&schema).unwrap();
        }
        host.run(line).is(0);
    }
}

#[test]
fn doctor_looks_at_the_server() {
    let postgres = Postgres::start_with(&["fsync=off"], None).unwrap();
    let ran = Host::on(postgres.url()).run(&["doctor"]);
    for says in ["PostgreSQL 15", "fsync", "locks at once"] {
        assert!(ran.out.contains(says), "{says}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn a_server_that_is_not_there_is_69_and_the_job_does_not_run() {
    let host = Host::on("postgres://me@127.0.0.1:9/app");
    host.run(&["run", "x", "--", "touch", "ran"]).is(69);
    assert!(!host.path().join("ran").exists());
}

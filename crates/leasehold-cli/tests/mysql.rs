//! The command on real MariaDB and MySQL servers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{Host, done};
use leasehold_core::clock;
use leasehold_testkit::freezing::{freeze, thaw};
use leasehold_testkit::program::Program;
use leasehold_testkit::servers::{Authority, Mysql, MysqlEdition};

fn on_each(test: impl Fn(Mysql)) {
    for edition in MysqlEdition::ALL {
        test(Mysql::start(edition).unwrap());
    }
}

#[test]
fn a_jobs_token_rises_and_what_needs_a_detached_hold_is_refused() {
    on_each(|mysql| {
        let host = Host::on(mysql.url());
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
    });
}

#[test]
fn a_busy_lock_is_75_and_the_holder_can_be_seen_and_broken() {
    on_each(|mysql| {
        let host = Host::on(mysql.url());
        let holding = host.hold("Jobs/X", &["--note", "nightly"]);
        host.run(&["run", "Jobs/X", "--", "touch", "ran"])
            .is(75)
            .says("note \"nightly\"");
        assert!(!host.path().join("ran").exists());
        let list = host.run(&["list", "Jobs/"]).is(0);
        assert!(list.out.contains("\nJobs/X "), "{}", list.out);
        host.run(&["break", "Jobs/X"]).is(0);
        holding
            .wait()
            .is(76)
            .says("lost \"Jobs/X\": an operator took it away; the command is stopped");
    });
}

#[test]
fn a_stopped_leaseholds_lock_is_free_within_its_ttl_and_two_seconds_and_it_wakes_to_76() {
    on_each(|mysql| {
        let host = Host::on(mysql.url());
        let holding = host.hold("x", &["--ttl", "3s"]);
        freeze(holding.pid()).unwrap();
        let stopped = clock::now();
        host.run(&["run", "x", "--wait", "30s", "--", "true"]).is(0);
        let free = clock::now().since(stopped).steady;
        // The command itself takes a moment, on a busy machine.
        assert!(free < Duration::from_secs(3 + 2 + 2), "free after {free:?}");
        thaw(holding.pid()).unwrap();
        holding.wait().is(76);
    });
}

#[test]
fn a_session_of_the_servers_own_client_and_a_job_keep_each_other_out() {
    on_each(|mysql| {
        let host = Host::on(mysql.url());
        let mut client = Program::start(&mut mysql.client().unwrap());
        let mut ask = |sql: &str| {
            client.tell(sql);
            client.line_within(common::LONG).unwrap()
        };
        assert_eq!(ask("SELECT GET_LOCK('job', 0);"), "1");
        host.run(&["run", "job", "--", "touch", "ran"]).is(75);
        assert!(!host.path().join("ran").exists());
        assert_eq!(ask("SELECT RELEASE_LOCK('job');"), "1");
        let holding = host.hold("job", &[]);
        assert_eq!(ask("SELECT GET_LOCK('job', 0);"), "0");
        holding.end().is(0);
        assert_eq!(ask("SELECT GET_LOCK('job', 0);"), "1");
    });
}

#[test]
fn the_password_comes_from_where_the_servers_own_programs_look_and_is_shown_nowhere() {
    on_each(|mysql| {
        mysql
            .query("CREATE USER me IDENTIFIED BY 'canary'; GRANT ALL ON leasehold.* TO me")
            .unwrap();
        let scheme = mysql.edition().name();
        let host = Host::on(format!("{scheme}://me@{}", mysql.address()));
        let script = "env | grep -v -e PASSWORD -e MYSQL_PWD; cat /proc/$PPID/cmdline";
        let words = ["-v", "run", "x", "--", "sh", "-c", script];
        for variable in ["MYSQL_PWD", "LEASEHOLD_PASSWORD"] {
            let ran = done(host.command(&words).env(variable, "canary")).is(0);
            assert!(!ran.out.contains("canary"), "{}", ran.out);
            assert!(!ran.err.contains("canary"), "{}", ran.err);
        }
        let wrong = host.command(&words).env("MYSQL_PWD", "canary-2").output();
        assert_eq!(wrong.unwrap().status.code(), Some(77));
        // All of the login may stand there.
        let (ip, port) = (mysql.address().ip(), mysql.address().port());
        let bare = Host::on(format!("{scheme}://"));
        let options = format!("[client]\nuser=me\npassword=\"canary\"\nhost={ip}\nport={port}\n");
        std::fs::write(bare.path().join(".my.cnf"), options).unwrap();
        let ran = bare.run(&words).is(0);
        assert!(!ran.out.contains("canary") && !ran.err.contains("canary"));
    });
}

#[test]
fn a_user_who_may_make_no_table_takes_one_that_the_printed_schema_made() {
    on_each(|mysql| {
        mysql.query("CREATE USER me; CREATE DATABASE app").unwrap();
        let host = Host::on(mysql.url().replace("root", "me"));
        let run = ["run", "x", "--", "true"];
        host.run(&run)
            .is(77)
            .says("leasehold schema mysql --role USER")
            .says("denied");
        let schema = host.run(&["schema", "mysql", "--role", "me"]).is(0).out;
        // Twice does no harm.
        for _ in 0..2 {
            mysql.query(&schema).unwrap();
        }
        host.run(&run).is(0);

        let app = format!("{}/app", mysql.url().replace("root", "me"));
        let check = ["fence", "check", "stock", "7", "--store", &app];
        // He may not even see the database.
        host.run(&check).is(77);
        mysql.query("GRANT CREATE VIEW ON app.* TO me").unwrap();
        host.run(&check)
            .is(77)
            .says("leasehold schema mysql fence --role USER")
            .says("denied");
        let schema = ["schema", "mysql", "fence", "--role", "me@%"];
        let schema = host.run(&schema).is(0).out;
        for _ in 0..2 {
            mysql.query(&format!("USE app; {schema}")).unwrap();
        }
        host.run(&check).is(0);

        let once = [
            "run", "x", "--once", "charge", "--store", &app, "--", "true",
        ];
        host.run(&once)
            .is(77)
            .says("the command did not run")
            .says("leasehold schema mysql once --role USER")
            .says("denied");
        let schema = host.run(&["schema", "mysql", "once", "--role", "me"]).is(0);
        for _ in 0..2 {
            mysql.query(&format!("USE app; {}", schema.out)).unwrap();
        }
        host.run(&once).is(0);
        host.run(&["once", "forget", "charge", "--store", &app])
            .is(0);
    });
}

#[test]
fn tls_is_spoken_where_the_url_asks_for_it() {
    let authority = Authority::new().unwrap();
    for edition in MysqlEdition::ALL {
        let mysql = Mysql::start_with(edition, &[], Some(&authority.server())).unwrap();
        let url = |authority: &Authority| {
            let trusting = authority.trusting();
            format!("{}?ssl-mode=VERIFY_IDENTITY&{trusting}", mysql.url())
        };
        let run = ["run", "x", "--connect-timeout", "2s", "--", "true"];
        Host::on(url(&authority)).run(&run).is(0);
        let stranger = Authority::new().unwrap();
        let refused = Host::on(url(&stranger)).run(&run).is(69);
        refused.says("certificate");
    }
}

#[test]
fn doctor_looks_at_the_server() {
    for (edition, name) in [
        (MysqlEdition::MariaDb, "MariaDB 10.11"),
        (MysqlEdition::MySql, "MySQL 9"),
    ] {
        let settings = ["innodb-flush-log-at-trx-commit=0"];
        let mysql = Mysql::start_with(edition, &settings, None).unwrap();
        let ran = Host::on(mysql.url()).run(&["doctor"]);
        for says in [name, "innodb_flush_log_at_trx_commit is 0", "replica"] {
            assert!(ran.out.contains(says), "{says}: {}{}", ran.out, ran.err);
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_69_and_the_job_does_not_run() {
    let host = Host::on("mysql://me@127.0.0.1:9/app");
    host.run(&["run", "x", "--", "touch", "ran"]).is(69);
    assert!(!host.path().join("ran").exists());
}

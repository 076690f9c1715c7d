//! How a run ends, and what is recorded then.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use leasehold_testkit::servers::{Mysql, MysqlEdition, Postgres, Redis, RedisEdition};
use rusqlite::Connection;

use super::{ran, run, state};
use crate::common::Host;

fn records(host: &Host) -> Connection {
    Connection::open(host.path().join("locks.db")).unwrap()
}

#[test]
fn a_run_whose_begin_had_no_answer_finds_itself_and_works() {
    let host = Host::new();
    host.run(&["run", "n", "--once", "k", "--", "false"]).is(1);
    // As the next hold would have left it.
    let begun = "UPDATE leasehold_once SET token = token + 1, state = 'running', ended = NULL";
    assert_eq!(records(&host).execute(begun, []).unwrap(), 1);
    run(&host, "n", &["--once", "k"]).is(0);
    assert_eq!((ran(&host), state(&host, "k")), (1, "done".into()));
}

#[test]
fn a_job_that_did_not_end_by_itself_or_begin_has_failed() {
    let host = Host::new();
    let most = ["run", "n", "--once", "k", "--max-hold", "300ms"];
    let stopped = [&most[..], &["--", "sleep", "60"]].concat();
    host.run(&stopped).is(124);
    assert_eq!(state(&host, "k"), "failed");
    let broken = host.file("broken", "#!/nowhere\n");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&broken, all).unwrap();
    let code = host
        .run(&["run", "n", "--once", "other", "--", "./broken"])
        .code;
    assert!(matches!(code, Some(126 | 127)), "{code:?}");
    assert_eq!(state(&host, "other"), "failed");
}

#[test]
fn what_ends_a_run_that_was_overtaken_is_the_code_that_was_asked_for() {
    let host = Host::new();
    let options = ["--once", "k", "--lost-code", "9"];
    let holding = host.hold("n", &options);
    host.run(&["once", "forget", "k"]).is(0);
    holding.end().is(9).says("is not recorded");
    host.run(&["run", "n", "--once", "k", "--", "false"]).is(1);
    let ahead = "UPDATE leasehold_once SET token = 1000000";
    records(&host).execute(ahead, []).unwrap();
    run(&host, "n", &options).is(9);
    assert_eq!(ran(&host), 0);
}

/// The job ends while nobody can be asked, and its lease is over before that changes.
fn loses_its_lock(url: String, freeze: impl Fn(), thaw: impl Fn() + Send) {
    let host = Host::on(url);
    let holding = host.hold("n", &["--once", "k", "--ttl", "2s"]);
    freeze();
    let ended = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_secs(3));
            thaw();
        });
        holding.end()
    });
    let ended = ended.is(76);
    ended.says("is not recorded: the lock was lost before");
    assert_eq!(state(&host, "k"), "running");
    run(&host, "n", &["--once", "k", "--wait", "30s"]).is(0);
    assert_eq!((ran(&host), state(&host, "k")), (1, "done".into()));
}

#[test]
fn a_lock_that_is_lost_while_its_server_stands_still_records_nothing() {
    let postgres = Postgres::start().unwrap();
    let still = || postgres.freeze().unwrap();
    loses_its_lock(postgres.url(), still, || postgres.thaw().unwrap());
    for edition in MysqlEdition::ALL {
        let mysql = Mysql::start(edition).unwrap();
        let still = || mysql.freeze().unwrap();
        loses_its_lock(mysql.url(), still, || mysql.thaw().unwrap());
    }
    let redis = Redis::start(RedisEdition::Redis7).unwrap();
    let still = || redis.freeze().unwrap();
    loses_its_lock(redis.url(), still, || redis.thaw().unwrap());
}

/// Otherwise a key that is named after the day or the month would leave its record for ever.
fn makes_room(host: &Host, ask: impl Fn(&str) -> String) {
    run(host, "n", &["--once", "ever"]).is(0);
    run(host, "n", &["--once", "old", "--once-per", "24h"]).is(0);
    ask("UPDATE leasehold_once SET expires = 1 WHERE expires IS NOT NULL");
    run(host, "n", &["--once", "new"]).is(0);
    let left = ask("SELECT count(*) FROM leasehold_once");
    assert_eq!(left, "2", "of three records, one of which is over");
}

#[test]
fn a_success_that_is_recorded_makes_room() {
    let host = Host::new();
    makes_room(&host, |sql| {
        let database = records(&host);
        let mut asked = database.prepare(sql).unwrap();
        let rows = asked.query_map([], |row| row.get::<_, i64>(0)).unwrap();
        rows.map(|row| row.unwrap().to_string()).collect()
    });
    let postgres = Postgres::start().unwrap();
    makes_room(&Host::on(postgres.url()), |sql| {
        postgres.query(sql).unwrap()
    });
    let mysql = Mysql::start(MysqlEdition::MariaDb).unwrap();
    makes_room(&Host::on(mysql.url()), |sql| {
        let sql = format!("USE leasehold; {sql}");
        mysql.query(&sql).unwrap()
    });
}

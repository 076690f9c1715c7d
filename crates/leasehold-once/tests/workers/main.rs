//! Workers that are killed, frozen, late and many, in every kind of database.
//!
//! The test executable starts itself again as a worker, which is a process like any other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod databases;
mod rules;

use std::any::Any;
use std::io::{BufRead as _, BufReader, Write as _, stdin, stdout};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::Name;
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once};
use leasehold_testkit::freezing::{self, Pid};
use leasehold_testkit::servers::{Mysql, MysqlEdition, Postgres, Redis, RedisEdition};
use libtest_mimic::{Arguments, Trial};

use databases::Database;
use rules::RULES;

const ROLE: &str = "LEASEHOLD_TEST_WORKER";
const PLACE: &str = "LEASEHOLD_TEST_PLACE";
const TOKEN: &str = "LEASEHOLD_TEST_TOKEN";

/// What a case is called, and what it does in a database.
type Case = (&'static str, fn(&Site));

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        let mut database = databases::open(&std::env::var(PLACE).unwrap());
        let pass = pass(std::env::var(TOKEN).unwrap().parse().unwrap());
        match role.as_str() {
            "one of many" => one_of_many(&mut *database, &pass),
            "whole" => whole(&mut *database, &pass),
            "parted" => parted(&mut *database, &pass),
            other => panic!("no role {other}"),
        }
        return ExitCode::SUCCESS;
    }
    let trials = Kind::ALL.iter().flat_map(|kind| kind.trials()).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

const CASES: [Case; 3] = [
    ("of_fifty_processes_at_once_one_works", many),
    (
        "a_worker_killed_between_work_and_record_is_taken_over",
        killed_between,
    ),
    (
        "a_worker_that_wakes_after_a_newer_one_succeeded_stores_nothing",
        frozen,
    ),
];

/// What a database with transactions does as well.
const TRANSACTIONAL: [Case; 2] = [
    (
        "what_was_done_by_a_killed_worker_is_undone_and_done_once",
        killed_in_transaction,
    ),
    ("a_repeat_waits_for_the_transaction_of_the_first", waits),
];

/// A kind of database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sqlite,
    Postgres,
    Mysql(MysqlEdition),
    Redis(RedisEdition),
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Sqlite,
        Self::Postgres,
        Self::Mysql(MysqlEdition::MariaDb),
        Self::Mysql(MysqlEdition::MySql),
        Self::Redis(RedisEdition::Redis6),
        Self::Redis(RedisEdition::Valkey8),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql(edition) => edition.name(),
            Self::Redis(edition) => edition.name(),
        }
    }

    fn trials(self) -> Vec<Trial> {
        // One database for all, which is started by the first and ended with the last.
        let site = Arc::new(Mutex::new(None));
        let trial = |name: &str, case: Box<dyn Fn(&Site) + Send>| {
            let site = Arc::clone(&site);
            Trial::test(format!("{}::{name}", self.name()), move || {
                let mut site = site.lock().unwrap_or_else(PoisonError::into_inner);
                let site = site.get_or_insert_with(|| Site::new(self));
                site.open().prepare();
                case(site);
                Ok(())
            })
        };
        let transactional = match self {
            Self::Redis(_) => [].as_slice(),
            _ => &TRANSACTIONAL,
        };
        let cases = CASES.iter().chain(transactional);
        let cases = cases.map(|&(name, case)| trial(name, Box::new(case)));
        let rules =
            RULES.map(|(name, rule)| trial(name, Box::new(move |site| rule(&mut *site.open()))));
        cases.chain(rules).collect()
    }
}

/// A database of one's own.
struct Site {
    place: String,
    kind: Kind,
    _folder: tempfile::TempDir,
    _server: Box<dyn Any + Send>,
}

impl Site {
    fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (place, server): (String, Box<dyn Any + Send>) = match kind {
            Kind::Sqlite => (format!("{}/app.db", folder.path().display()), Box::new(())),
            Kind::Postgres => {
                let server = Postgres::start().unwrap();
                (server.url(), Box::new(server))
            }
            Kind::Mysql(edition) => {
                let server = Mysql::start(edition).unwrap();
                (server.url(), Box::new(server))
            }
            Kind::Redis(edition) => {
                let server = Redis::start(edition).unwrap();
                (server.url(), Box::new(server))
            }
        };
        let scheme = match kind {
            Kind::Redis(_) => "redis",
            kind => kind.name(),
        };
        Self {
            place: format!("{scheme}:{place}"),
            kind,
            _folder: folder,
            _server: server,
        }
    }

    fn open(&self) -> Box<dyn Database> {
        databases::open(&self.place)
    }

    fn start(&self, role: &str, token: u64) -> Worker {
        let child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, role)
            .env(PLACE, &self.place)
            .env(TOKEN, token.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Worker(child)
    }
}

/// A process that works; killed when dropped.
struct Worker(Child);

impl Worker {
    fn says(&mut self) -> String {
        let mut line = String::new();
        // One byte at a time, because what is read too much would be lost with the reader.
        BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        line.trim_end().to_owned()
    }

    fn go_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn freeze(&self) {
        freezing::freeze(Pid::from_child(&self.0)).unwrap();
    }

    fn thaw(&self) {
        freezing::thaw(Pid::from_child(&self.0)).unwrap();
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pass(token: u64) -> Pass {
    format!("charges:{token}").parse().unwrap()
}

fn once() -> Once {
    Once::new(Name::new("charge/4711").unwrap())
}

fn say(text: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{text}").unwrap();
    out.flush().unwrap();
}

fn wait_for_a_line() {
    stdin().lock().read_line(&mut String::new()).unwrap();
}

fn told(begun: &Begun) -> String {
    match begun {
        Begun::First => "first".into(),
        Begun::Done(success) => format!("done: {}", String::from_utf8_lossy(&success.result)),
        other => format!("{other:?}"),
    }
}

/// The role of a worker that starts when all others do.
fn one_of_many(database: &mut dyn Database, pass: &Pass) {
    say("ready");
    wait_for_a_line();
    let begun = database.whole(&once(), pass, &|| {
        std::thread::sleep(Duration::from_millis(50))
    });
    say(&told(&begun));
}

fn many(site: &Site) {
    // Tokens in no order: whoever comes first works, also where a newer one waits behind it. Where nobody can wait for a
    // transaction a newer one would take over; there all have the same.
    let parted = matches!(site.kind, Kind::Redis(_));
    let token = |number: u64| if parted { 7 } else { 1 + number * 7919 % 101 };
    let mut workers: Vec<(u64, Worker)> = (0..50)
        .map(token)
        .map(|token| (token, site.start("one of many", token)))
        .collect();
    for (_, worker) in &mut workers {
        assert_eq!(worker.says(), "ready");
    }
    for (_, worker) in &mut workers {
        worker.go_on();
    }
    let said: Vec<(u64, String)> = workers
        .iter_mut()
        .map(|(token, worker)| (*token, worker.says()))
        .collect();
    let first: Vec<u64> = said
        .iter()
        .filter(|(_, said)| said == "first")
        .map(|(token, _)| *token)
        .collect();
    assert_eq!(first.len(), 1, "{said:?}");
    assert_eq!(site.open().worked(), 1);
    let done = format!("done: {}", first[0]);
    for (token, said) in said.iter().filter(|(_, said)| said != "first") {
        let early = parted && said.starts_with("Running");
        assert!(*said == done || early, "{token}: {said}");
    }
}

/// The role of a worker that does all in one transaction.
fn whole(database: &mut dyn Database, pass: &Pass) {
    let begun = database.whole(&once(), pass, &|| {
        say("worked");
        wait_for_a_line();
    });
    say(&told(&begun));
}

fn killed_in_transaction(site: &Site) {
    let mut killed = site.start("whole", 7);
    assert_eq!(killed.says(), "worked");
    killed.kill();
    let mut database = site.open();
    assert_eq!(database.whole(&once(), &pass(8), &|| {}), Begun::First);
    assert_eq!(database.worked(), 1);
    assert_eq!(told(&database.whole(&once(), &pass(9), &|| {})), "done: 8");
    assert_eq!(database.worked(), 1);
}

fn waits(site: &Site) {
    let mut first = site.start("whole", 7);
    assert_eq!(first.says(), "worked");
    let mut repeat = site.start("whole", 8);
    std::thread::sleep(Duration::from_millis(300));
    first.go_on();
    assert_eq!(first.says(), "first");
    assert_eq!(repeat.says(), "done: 7");
    assert_eq!(site.open().worked(), 1);
}

/// The role of a worker whose work is elsewhere, between two transactions.
fn parted(database: &mut dyn Database, pass: &Pass) {
    assert_eq!(database.begin(&once(), pass).unwrap(), Begun::First);
    say("worked");
    wait_for_a_line();
    let finished = database.finish(&once(), pass, b"late").unwrap();
    say(&match finished {
        Finished::Stale(stale) => stale.to_string(),
        other => format!("{other:?}"),
    });
}

fn killed_between(site: &Site) {
    let mut killed = site.start("parted", 7);
    assert_eq!(killed.says(), "worked");
    killed.kill();
    let mut database = site.open();
    // Nobody can tell it from one that is still at it: only a newer lock says that it is over.
    for token in [6, 7] {
        let begun = database.begin(&once(), &pass(token)).unwrap();
        assert!(
            matches!(&begun, Begun::Running(attempt) if attempt.by == pass(7)),
            "{begun:?}"
        );
    }
    assert_eq!(database.begin(&once(), &pass(8)).unwrap(), Begun::First);
    assert_eq!(
        database.finish(&once(), &pass(8), b"8").unwrap(),
        Finished::Recorded
    );
    assert_eq!(told(&database.begin(&once(), &pass(9)).unwrap()), "done: 8");
}

fn frozen(site: &Site) {
    let mut frozen = site.start("parted", 7);
    assert_eq!(frozen.says(), "worked");
    frozen.freeze();
    let mut database = site.open();
    assert_eq!(database.begin(&once(), &pass(8)).unwrap(), Begun::First);
    assert_eq!(
        database.finish(&once(), &pass(8), b"8").unwrap(),
        Finished::Recorded
    );
    frozen.go_on();
    frozen.thaw();
    assert_eq!(
        frozen.says(),
        "stale: 8 has been seen, and this write has 7"
    );
    assert_eq!(told(&database.begin(&once(), &pass(9)).unwrap()), "done: 8");
}

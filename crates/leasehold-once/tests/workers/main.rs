//! Workers that are killed, frozen, late and many, in every kind of database.
//!
//! The test executable starts itself again as a worker, which is a process like any other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod database;

use std::any::Any;
use std::io::{BufRead as _, BufReader, Write as _, stdin, stdout};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold_core::Token;
use leasehold_fence::Mark;
use leasehold_once::{Begun, Finished};
use leasehold_testkit::servers::Postgres;
use libtest_mimic::{Arguments, Trial};
use rustix::process::{Pid, Signal, kill_process};

use database::Database;

const ROLE: &str = "LEASEHOLD_TEST_WORKER";
const PLACE: &str = "LEASEHOLD_TEST_PLACE";
const TOKEN: &str = "LEASEHOLD_TEST_TOKEN";

/// What a case is called, and what it does in a database.
type Case = (&'static str, fn(&Site));

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        let mut database = Database::open(&std::env::var(PLACE).unwrap());
        let mark = mark(std::env::var(TOKEN).unwrap().parse().unwrap());
        match role.as_str() {
            "one of many" => one_of_many(&mut database, mark),
            "whole" => whole(&mut database, mark),
            "parted" => parted(&mut database, mark),
            other => panic!("no role {other}"),
        }
        return ExitCode::SUCCESS;
    }
    let cases: [Case; 5] = [
        (
            "of_fifty_processes_at_once_one_works_and_all_get_its_result",
            many,
        ),
        (
            "what_was_done_by_a_killed_worker_is_undone_and_done_once",
            killed_in_transaction,
        ),
        (
            "a_worker_killed_between_work_and_record_is_taken_over",
            killed_between,
        ),
        (
            "a_worker_that_wakes_after_a_newer_one_succeeded_stores_nothing",
            frozen,
        ),
        ("a_repeat_waits_for_the_transaction_of_the_first", waits),
    ];
    let trials = Site::KINDS.iter().flat_map(|kind| {
        cases.map(|(name, case)| {
            Trial::test(format!("{kind}::{name}"), move || {
                case(&Site::new(kind));
                Ok(())
            })
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// A database of one's own.
struct Site {
    place: String,
    _folder: tempfile::TempDir,
    _server: Box<dyn Any>,
}

impl Site {
    const KINDS: [&str; 2] = ["sqlite", "postgres"];

    fn new(kind: &str) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (place, server): (String, Box<dyn Any>) = match kind {
            "postgres" => {
                let server = Postgres::start().unwrap();
                (server.url(), Box::new(server))
            }
            _ => (format!("{}/app.db", folder.path().display()), Box::new(())),
        };
        let site = Self {
            place: format!("{kind}:{place}"),
            _folder: folder,
            _server: server,
        };
        site.open().prepare();
        site
    }

    fn open(&self) -> Database {
        Database::open(&self.place)
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

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
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

fn mark(token: u64) -> Mark {
    Token::new(token).unwrap().into()
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
fn one_of_many(database: &mut Database, mark: Mark) {
    say("ready");
    wait_for_a_line();
    let begun = database.whole(mark, || std::thread::sleep(Duration::from_millis(50)));
    say(&told(&begun));
}

fn many(site: &Site) {
    // Tokens in no order: whoever comes first works, also where a newer one waits behind it.
    let mut workers: Vec<(u64, Worker)> = (0..50)
        .map(|number| 1 + number * 7919 % 101)
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
    let repeats = said.iter().filter(|(token, _)| *token != first[0]);
    for (_, said) in repeats {
        assert_eq!(*said, format!("done: {}", first[0]));
    }
    assert_eq!(site.open().worked(), 1);
}

/// The role of a worker that does all in one transaction.
fn whole(database: &mut Database, mark: Mark) {
    let begun = database.whole(mark, || {
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
    assert_eq!(database.whole(mark(8), || {}), Begun::First);
    assert_eq!(database.worked(), 1);
    assert_eq!(told(&database.whole(mark(9), || {})), "done: 8");
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
fn parted(database: &mut Database, mark: Mark) {
    assert_eq!(database.begin(mark), Begun::First);
    say("worked");
    wait_for_a_line();
    let finished = database.finish(mark, b"late");
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
        let begun = database.begin(mark(token));
        assert!(
            matches!(&begun, Begun::Running(attempt) if attempt.by == mark(7)),
            "{begun:?}"
        );
    }
    assert_eq!(database.begin(mark(8)), Begun::First);
    assert_eq!(database.finish(mark(8), b"8"), Finished::Recorded);
    assert_eq!(told(&database.begin(mark(9))), "done: 8");
}

fn frozen(site: &Site) {
    let mut frozen = site.start("parted", 7);
    assert_eq!(frozen.says(), "worked");
    frozen.signal(Signal::STOP);
    let mut database = site.open();
    assert_eq!(database.begin(mark(8)), Begun::First);
    assert_eq!(database.finish(mark(8), b"8"), Finished::Recorded);
    frozen.go_on();
    frozen.signal(Signal::CONT);
    assert_eq!(
        frozen.says(),
        "stale: 8 has been seen, and this write has 7"
    );
    assert_eq!(told(&database.begin(mark(9))), "done: 8");
}

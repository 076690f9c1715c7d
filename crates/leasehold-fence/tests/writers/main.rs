//! Writers that are frozen, killed, late and many, at every kind of resource.
//!
//! The test executable starts itself again as a writer, which is a process like any other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod durable;
mod holding;
mod places;

use std::any::Any;
use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Token, clock};
use leasehold_fence::{Checked, Mark, Seen};
use leasehold_testkit::servers::{Mysql, MysqlEdition, Postgres, Redis, RedisEdition};
use libtest_mimic::{Arguments, Trial};
use rusqlite::Connection;

use holding::{Hold, Writer};
use places::open;

const ROLE: &str = "LEASEHOLD_TEST_WRITER";
const PLACE: &str = "LEASEHOLD_TEST_PLACE";
const LOCKS: &str = "LEASEHOLD_TEST_LOCKS";

/// What a case is called, and what it does at a resource.
type Case = (&'static str, fn(&Site));

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        let place = std::env::var(PLACE).unwrap();
        match role.as_str() {
            "holder" => holder(&place, true),
            "unfenced holder" => holder(&place, false),
            "late" => late(&place),
            "restless" => restless(&place),
            "twice" => durable::twice(&place),
            other => panic!("no role {other}"),
        }
        return ExitCode::SUCCESS;
    }
    let cases: [Case; 6] = [
        (
            "without_a_fence_the_update_of_a_frozen_holders_successor_is_lost",
            lost_without,
        ),
        (
            "a_frozen_holders_write_is_refused_and_nothing_is_lost",
            kept_with,
        ),
        ("of_ten_thousand_stale_writes_none_is_accepted", many_late),
        (
            "writers_of_all_ages_at_once_leave_the_newest_write",
            all_at_once,
        ),
        (
            "a_writer_killed_at_any_moment_leaves_a_whole_write_and_its_mark",
            killed,
        ),
        (
            "a_holder_that_checked_before_it_read_is_not_overtaken",
            checked_before_reading,
        ),
    ];
    let of_files: Case = (
        "a_write_waits_for_the_disk_with_its_mark_before_its_contents",
        durable::mark_and_contents_are_waited_for,
    );
    let trials = Site::KINDS
        .iter()
        .flat_map(|kind| cases.map(|case| (*kind, case)));
    let trials = trials.chain([("file", of_files)]);
    let trials = trials.map(|(kind, (name, case))| {
        Trial::test(format!("{kind}::{name}"), move || {
            case(&Site::new(kind));
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// A resource of one's own, and the store of the lock that guards it.
struct Site {
    place: String,
    locks: String,
    folder: tempfile::TempDir,
    _server: Box<dyn Any>,
}

impl Site {
    const KINDS: [&str; 6] = ["file", "sqlite", "mysql", "mariadb", "postgres", "redis"];

    fn new(kind: &str) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().display();
        let (place, server): (String, Box<dyn Any>) = match kind {
            "mysql" => mysql(MysqlEdition::MySql),
            "mariadb" => mysql(MysqlEdition::MariaDb),
            "postgres" => {
                let server = Postgres::start().unwrap();
                (server.url(), Box::new(server))
            }
            "redis" => {
                let server = Redis::start(RedisEdition::Redis7).unwrap();
                (server.url(), Box::new(server))
            }
            _ => (format!("{path}/stock"), Box::new(())),
        };
        Self {
            place: format!("{kind}:{place}"),
            locks: format!("sqlite://{path}/locks.db"),
            folder,
            _server: server,
        }
    }

    fn start(&self, role: &str) -> Writer {
        self.start_with(role, |_| {})
    }

    fn start_with(&self, role: &str, more: impl Fn(&mut Command)) -> Writer {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .env(ROLE, role)
            .env(PLACE, &self.place)
            .env(LOCKS, &self.locks)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        more(&mut command);
        Writer(command.spawn().unwrap())
    }

    /// Freezes a holder, but not within a renewal: it would keep the lock's file locked, and nobody be the next holder.
    fn freeze(&self, holder: &Writer) {
        let path = self.locks.trim_start_matches("sqlite://");
        let locks = Connection::open(path).unwrap();
        locks.busy_timeout(Duration::from_millis(100)).unwrap();
        loop {
            holder.freeze();
            if locks.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {
                return;
            }
            holder.thaw();
        }
    }
}

/// A server, and its URL as the driver takes it.
fn mysql(edition: MysqlEdition) -> (String, Box<dyn Any>) {
    let server = Mysql::start(edition).unwrap();
    let url = format!("mysql://root@{}?prefer_socket=false", server.address());
    (url, Box::new(server))
}

fn mark(token: u64) -> Mark {
    Token::new(token).unwrap().into()
}

/// Adds one to the number under the lock, as the next holder.
fn add_one(site: &Site, fenced: bool) -> Mark {
    let hold = Hold::take(&site.locks);
    let mut place = open(&site.place);
    if fenced {
        assert_eq!(place.check(hold.mark()), Checked::Accepted);
    }
    let number = place.read();
    if fenced {
        assert_eq!(place.write(hold.mark(), number + 1), Checked::Accepted);
    } else {
        place.write_unfenced(number + 1);
    }
    let mark = hold.mark();
    hold.give_back();
    mark
}

/// The role of a holder that adds one to the number, and is frozen between reading and writing.
fn holder(place: &str, fenced: bool) {
    let hold = Hold::take(&std::env::var(LOCKS).unwrap());
    let mut place = open(place);
    if fenced {
        assert_eq!(place.check(hold.mark()), Checked::Accepted);
    }
    let number = place.read();
    say(&format!("read {number}"));
    wait_for_a_line();
    // The write was on its way when the process was frozen: nobody asks the guard any more.
    if fenced {
        match place.write(hold.mark(), number + 1) {
            Checked::Accepted => say("accepted"),
            Checked::Stale(stale) => say(&stale.to_string()),
        }
    } else {
        place.write_unfenced(number + 1);
        say("written");
    }
}

fn say(text: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{text}").unwrap();
    out.flush().unwrap();
}

fn wait_for_a_line() {
    stdin().lock().read_line(&mut String::new()).unwrap();
}

/// Freezes a holder, lets the next one add one, and lets the first go on; what the first says, and the other's mark.
fn overtaken(site: &Site, role: &str) -> (String, Mark) {
    let mut frozen = site.start(role);
    assert_eq!(frozen.says(), "read 0");
    site.freeze(&frozen);
    let next = add_one(site, role == "holder");
    assert_eq!(open(&site.place).read(), 1);
    frozen.go_on();
    frozen.thaw();
    (frozen.says(), next)
}

fn lost_without(site: &Site) {
    let (said, _) = overtaken(site, "unfenced holder");
    assert_eq!(said, "written");
    // Two have added one each.
    assert_eq!(
        open(&site.place).read(),
        1,
        "the update was not lost; then what is the fence for?"
    );
}

fn kept_with(site: &Site) {
    let (said, next) = overtaken(site, "holder");
    let mine = next.token().get() - 1;
    assert_eq!(
        said,
        format!("stale: {next} has been seen, and this write has {mine}")
    );
    assert_eq!(open(&site.place).read(), 1);
    // Whoever was refused takes the lock anew.
    let last = add_one(site, true);
    let mut place = open(&site.place);
    assert_eq!(place.read(), 2);
    assert_eq!(place.seen(), last.into());
}

const NEWEST: u64 = 1_000_000;
const LATE: u64 = 2500;

fn many_late(site: &Site) {
    let mut place = open(&site.place);
    assert_eq!(place.write(mark(NEWEST), 1), Checked::Accepted);
    let mut writers: Vec<Writer> = (0..2).map(|_| site.start("late")).collect();
    // The newest holder goes on among them.
    for number in 2..=20 {
        assert_eq!(place.write(mark(NEWEST), number), Checked::Accepted);
    }
    for writer in &mut writers {
        assert_eq!(writer.says(), format!("{} refused", 2 * LATE));
    }
    assert_eq!(place.read(), 20);
    assert_eq!(place.seen(), mark(NEWEST).into());
}

/// The role of a process that offers stale writes from two threads.
fn late(place: &str) {
    let offer = |thread: u64| {
        let mut place = open(place);
        let refused = (0..LATE).filter(|round| {
            let mine = mark(1 + (round * 7919 + thread * 104_729) % (NEWEST - 1));
            match place.write(mine, 0) {
                Checked::Accepted => false,
                Checked::Stale(stale) => {
                    assert_eq!((stale.seen, stale.yours), (mark(NEWEST).into(), mine));
                    true
                }
            }
        });
        refused.count()
    };
    let refused = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| scope.spawn(move || offer(thread)));
        threads
            .map(|thread| thread.join().unwrap())
            .iter()
            .sum::<usize>()
    });
    say(&format!("{refused} refused"));
}

fn all_at_once(site: &Site) {
    const WRITES: u64 = 40;
    let tokens = AtomicU64::new(0);
    let done = Arc::new(AtomicBool::new(false));
    let place = site.place.as_str();
    open(place);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut place = open(place);
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let now = place.read();
                assert!(now >= last, "{now} has replaced {last}");
                last = now;
            }
        });
        let writers = [(); 4].map(|()| {
            scope.spawn(|| {
                let mut place = open(place);
                for _ in 0..WRITES {
                    let token = tokens.fetch_add(1, Ordering::Relaxed) + 1;
                    match place.write(mark(token), token) {
                        Checked::Accepted => {}
                        Checked::Stale(stale) => assert!(stale.seen > mark(token).into()),
                    }
                }
            })
        });
        let ended = writers.map(|writer| writer.join());
        done.store(true, Ordering::Relaxed);
        watch.join().unwrap();
        for ended in ended {
            ended.unwrap();
        }
    });
    let mut place = open(place);
    assert_eq!(place.read(), 4 * WRITES);
    assert_eq!(place.seen(), mark(4 * WRITES).into());
}

fn killed(site: &Site) {
    const TIMES: u64 = 25;
    let mut place = open(&site.place);
    for _ in 0..TIMES {
        let mut writer = site.start("restless");
        assert_eq!(writer.says(), "writes");
        let pause = Duration::from_micros(clock::now().boot / 1000 % 40_000);
        std::thread::sleep(pause);
        writer.kill();
        // The number is the token that it was written with.
        let (number, seen) = (place.read(), place.seen());
        let token = seen.token().map_or(0, Token::get);
        assert!(
            number <= token,
            "{number} was written, and {seen} is what was seen"
        );
        assert!(
            token - number <= 1,
            "{number} was written last, and {seen} has been seen"
        );
    }
    assert!(place.read() >= TIMES, "only {} writes", place.read());
}

/// The role of a process that writes without end, each time as the next holder.
fn restless(place: &str) {
    let mut place = open(place);
    let seen = place.seen().token().map_or(0, Token::get);
    // The last write, which may not have been finished, again.
    let first = seen.max(1);
    assert_eq!(place.write(mark(first), first), Checked::Accepted);
    for token in first + 1.. {
        assert_eq!(place.write(mark(token), token), Checked::Accepted);
        if token == first + 1 {
            say("writes");
        }
    }
}

fn checked_before_reading(site: &Site) {
    let mut place = open(&site.place);
    assert_eq!(place.write(mark(6), 1), Checked::Accepted);
    // The new holder has read, and not checked: the old one still gets a write in, which the new one doesn't see.
    let read = place.read();
    assert_eq!(open(&site.place).write(mark(6), 2), Checked::Accepted);
    assert_eq!(place.write(mark(7), read + 1), Checked::Accepted);
    assert_eq!(place.read(), 2, "three writes, one of them lost");
    // With the check first it doesn't.
    assert_eq!(place.check(mark(8)), Checked::Accepted);
    let read = place.read();
    assert!(matches!(
        open(&site.place).write(mark(7), 3),
        Checked::Stale(_)
    ));
    assert_eq!(place.write(mark(8), read + 1), Checked::Accepted);
    assert_eq!((place.read(), place.seen()), (3, Seen::from(mark(8))));
}

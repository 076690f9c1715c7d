//! Records in an SQLite database.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use leasehold_core::{ErrorKind, Name};
use leasehold_fence::Mark;
use leasehold_once::sql::SQLITE;
use leasehold_once::{Begun, Finished, Once, State, Success, sqlite};
use rusqlite::Connection;

const HOUR: Duration = Duration::from_secs(3600);

fn open() -> Connection {
    let database = Connection::open_in_memory().unwrap();
    sqlite::prepare(&database).unwrap();
    sqlite::prepare(&database).unwrap();
    database
}

fn nightly() -> Once {
    Once::new(Name::new("nightly").unwrap())
}

fn mark(text: &str) -> Mark {
    text.parse().unwrap()
}

fn begin(database: &mut Connection, once: &Once, text: &str) -> Begun {
    let transaction = database.transaction().unwrap();
    let begun = sqlite::begin(&transaction, once, mark(text)).unwrap();
    transaction.commit().unwrap();
    begun
}

fn finish(database: &mut Connection, once: &Once, text: &str) -> Finished {
    let transaction = database.transaction().unwrap();
    let finished = sqlite::finish(&transaction, once, mark(text), text.as_bytes()).unwrap();
    transaction.commit().unwrap();
    finished
}

#[track_caller]
fn done(begun: Begun) -> Success {
    match begun {
        Begun::Done(success) => success,
        other => panic!("{other:?}"),
    }
}

/// Lets all that is recorded be so much older.
fn age(database: &Connection, by: Duration) {
    let by = i64::try_from(by.as_millis()).unwrap();
    let older = "UPDATE leasehold_once SET started = started - ?1, ended = ended - ?1, expires = expires - ?1";
    database.execute(older, [by]).unwrap();
}

#[test]
fn a_repeat_gets_the_result_of_the_first_and_its_times() {
    let mut database = open();
    let once = nightly();
    assert_eq!(sqlite::done(&database, &once).unwrap(), None);
    assert_eq!(begin(&mut database, &once, "3.41"), Begun::First);
    assert_eq!(sqlite::done(&database, &once).unwrap(), None);
    age(&database, 2 * HOUR);
    assert_eq!(finish(&mut database, &once, "3.41"), Finished::Recorded);
    for token in ["3.40", "3.41", "3.42", "4.1"] {
        let success = done(begin(&mut database, &once, token));
        assert_eq!(success.result, b"3.41");
        assert_eq!(success.mark, mark("3.41"));
        let took = success.ended.duration_since(success.started).unwrap();
        assert!(took >= 2 * HOUR && took < 3 * HOUR, "{took:?}");
        assert!(
            success.age >= took && success.age < 3 * HOUR,
            "{:?}",
            success.age
        );
        let seen = sqlite::done(&database, &once).unwrap().unwrap();
        assert_eq!(seen.result, success.result);
    }
    // An answer that was lost is asked for again.
    assert_eq!(finish(&mut database, &once, "3.41"), Finished::Recorded);
    assert!(matches!(
        finish(&mut database, &once, "3.40"),
        Finished::Stale(_)
    ));
    assert_eq!(finish(&mut database, &once, "3.42"), Finished::NotBegun);
    // Another key is another matter.
    let other = Once::new(Name::new("nightly/2").unwrap());
    assert_eq!(begin(&mut database, &other, "1"), Begun::First);
}

#[test]
fn a_newer_attempt_takes_over_and_the_older_one_stores_nothing() {
    let mut database = open();
    let once = nightly();
    assert_eq!(begin(&mut database, &once, "7"), Begun::First);
    for token in ["6", "7"] {
        let begun = begin(&mut database, &once, token);
        assert!(
            matches!(&begun, Begun::Running(attempt) if attempt.by == mark("7")),
            "{begun:?}"
        );
    }
    assert_eq!(begin(&mut database, &once, "8"), Begun::First);
    assert!(matches!(
        finish(&mut database, &once, "7"),
        Finished::Stale(_)
    ));
    assert!(!sqlite::fail(&database, once.key(), mark("7")).unwrap());
    assert_eq!(finish(&mut database, &once, "8"), Finished::Recorded);
    assert!(matches!(
        finish(&mut database, &once, "7"),
        Finished::Stale(_)
    ));
    assert_eq!(done(begin(&mut database, &once, "9")).result, b"8");
}

#[test]
fn what_failed_may_be_repeated_and_not_by_an_older_holder() {
    let mut database = open();
    let once = nightly();
    assert_eq!(begin(&mut database, &once, "7"), Begun::First);
    assert!(sqlite::fail(&database, once.key(), mark("7")).unwrap());
    assert!(matches!(begin(&mut database, &once, "6"), Begun::Stale(_)));
    assert_eq!(finish(&mut database, &once, "7"), Finished::NotBegun);
    assert_eq!(begin(&mut database, &once, "7"), Begun::First);
    assert!(sqlite::fail(&database, once.key(), mark("7")).unwrap());
    assert_eq!(begin(&mut database, &once, "8"), Begun::First);
    assert_eq!(finish(&mut database, &once, "8"), Finished::Recorded);
    // A success is not taken back.
    assert!(!sqlite::fail(&database, once.key(), mark("8")).unwrap());
    assert_eq!(done(begin(&mut database, &once, "9")).result, b"8");
}

#[test]
fn what_is_rolled_back_has_not_begun() {
    let mut database = open();
    let once = nightly();
    let transaction = database.transaction().unwrap();
    assert_eq!(
        sqlite::begin(&transaction, &once, mark("9")).unwrap(),
        Begun::First
    );
    let finished = sqlite::finish(&transaction, &once, mark("9"), b"").unwrap();
    assert_eq!(finished, Finished::Recorded);
    transaction.rollback().unwrap();
    assert_eq!(sqlite::list(&database, "").unwrap(), []);
    assert_eq!(begin(&mut database, &once, "8"), Begun::First);
}

#[test]
fn a_period_counts_from_the_start_of_the_last_success_with_a_tenth_as_slack() {
    let mut database = open();
    let once = nightly().per(24 * HOUR);
    assert_eq!(begin(&mut database, &once, "1"), Begun::First);
    // Begun at 02:00, ended at 02:10.
    age(&database, HOUR / 6);
    assert_eq!(finish(&mut database, &once, "1"), Finished::Recorded);
    // The other host's 02:00 is up to two hours later; and nobody's is at 23:00.
    age(&database, 2 * HOUR);
    assert_eq!(done(begin(&mut database, &once, "2")).result, b"1");
    age(&database, 19 * HOUR);
    assert_eq!(done(begin(&mut database, &once, "3")).result, b"1");
    // 02:00 of the next night: 23:50 after the end.
    age(&database, 24 * HOUR - 21 * HOUR - HOUR / 6);
    assert_eq!(begin(&mut database, &once, "4"), Begun::First);
    assert_eq!(finish(&mut database, &once, "4"), Finished::Recorded);
    assert_eq!(done(begin(&mut database, &once, "5")).result, b"4");
    // Who asks for no period is told of it whenever it was.
    age(&database, 40 * HOUR);
    assert_eq!(done(begin(&mut database, &nightly(), "6")).result, b"4");
}

#[test]
fn a_store_whose_clock_went_back_does_not_repeat() {
    let mut database = open();
    let once = nightly().per(24 * HOUR);
    assert_eq!(begin(&mut database, &once, "1"), Begun::First);
    assert_eq!(finish(&mut database, &once, "1"), Finished::Recorded);
    let ahead = "UPDATE leasehold_once SET started = started + 3600000";
    database.execute(ahead, []).unwrap();
    assert_eq!(done(begin(&mut database, &once, "2")).age, Duration::ZERO);
}

#[test]
fn a_record_is_forgotten_after_its_time_and_swept_in_parts() {
    let mut database = open();
    let once = nightly().keep(24 * HOUR);
    assert_eq!(begin(&mut database, &once, "9"), Begun::First);
    // One that is still at it after all that time finds its record.
    age(&database, 100 * HOUR);
    assert_eq!(finish(&mut database, &once, "9"), Finished::Recorded);
    age(&database, 23 * HOUR);
    assert_eq!(done(begin(&mut database, &once, "10")).result, b"9");
    age(&database, HOUR);
    assert_eq!(sqlite::done(&database, &once).unwrap(), None);
    assert_eq!(sqlite::list(&database, "").unwrap(), []);
    // As if there had never been one: an older token is no older than nothing.
    assert_eq!(begin(&mut database, &once, "3"), Begun::First);
    assert_eq!(finish(&mut database, &once, "9"), Finished::NotBegun);
    assert_eq!(finish(&mut database, &once, "3"), Finished::Recorded);

    for number in 0..5 {
        let other = Once::new(Name::new(&format!("x/{number}")).unwrap()).keep(HOUR);
        assert_eq!(begin(&mut database, &other, "1"), Begun::First);
        assert_eq!(finish(&mut database, &other, "1"), Finished::Recorded);
    }
    assert_eq!(sqlite::sweep(&database, 100).unwrap(), 0);
    age(&database, 2 * HOUR);
    assert_eq!(sqlite::sweep(&database, 3).unwrap(), 3);
    assert_eq!(sqlite::sweep(&database, 3).unwrap(), 2);
    // What has no end is kept.
    let kept = sqlite::list(&database, "").unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].key, "nightly");
}

#[test]
fn records_can_be_listed_by_prefix_and_forgotten() {
    let mut database = open();
    for key in ["b", "a/1", "a%", "A/2"] {
        let once = Once::new(Name::new(key).unwrap());
        assert_eq!(begin(&mut database, &once, "7"), Begun::First);
    }
    let keys = |database: &Connection, prefix: &str| -> Vec<String> {
        let found = sqlite::list(database, prefix).unwrap();
        found.into_iter().map(|record| record.key).collect()
    };
    assert_eq!(keys(&database, ""), ["A/2", "a%", "a/1", "b"]);
    assert_eq!(keys(&database, "a"), ["a%", "a/1"]);
    assert_eq!(keys(&database, "a%"), ["a%"]);
    let record = &sqlite::list(&database, "b").unwrap()[0];
    assert_eq!((record.mark, record.state), (mark("7"), State::Running));
    assert_eq!((record.ended, record.expires), (None, None));

    let once = Once::new(Name::new("b").unwrap());
    assert!(sqlite::forget(&database, once.key()).unwrap());
    assert!(!sqlite::forget(&database, once.key()).unwrap());
    // Who was at it has no record to store a result in.
    assert_eq!(finish(&mut database, &once, "7"), Finished::NotBegun);
    assert_eq!(begin(&mut database, &once, "1"), Begun::First);
}

#[test]
fn what_cannot_be_right_is_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut database = Connection::open(folder.path().join("app.db")).unwrap();
    let once = nightly();
    assert_eq!(sqlite::done(&database, &once).unwrap(), None);
    assert_eq!(sqlite::list(&database, "").unwrap(), []);
    assert!(!sqlite::forget(&database, once.key()).unwrap());
    let mut tried = |setup: &str, token: &str| {
        database.execute_batch(setup).unwrap();
        let transaction = database.transaction().unwrap();
        sqlite::begin(&transaction, &once, mark(token)).unwrap_err()
    };
    let error = tried("", "7");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("sqlite::prepare"), "{error}");
    let error = tried("", "9223372036854775808");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = tried("PRAGMA synchronous = NORMAL", "7");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("synchronous = FULL"), "{error}");
    // A row of somebody else's lets nobody in.
    let foreign = format!(
        "PRAGMA synchronous = FULL; {}; INSERT INTO leasehold_once VALUES ('nightly', 0, 1, 'done', -5, 5, x'', NULL)",
        leasehold_once::sql::SQLITE.table
    );
    let error = tried(&foreign, "7");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error
            .to_string()
            .contains("time that leasehold never writes"),
        "{error}"
    );
}

#[test]
fn a_transaction_that_read_before_somebody_else_wrote_is_told_why() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("app.db");
    let mut other = Connection::open(&path).unwrap();
    other.execute_batch("PRAGMA journal_mode = wal").unwrap();
    sqlite::prepare(&other).unwrap();
    let mut reads_first = Connection::open(&path).unwrap();
    reads_first.busy_timeout(Duration::from_millis(50)).unwrap();
    let transaction = reads_first.transaction().unwrap();
    assert_eq!(sqlite::list(&transaction, "").unwrap(), []);
    assert_eq!(begin(&mut other, &nightly(), "7"), Begun::First);
    let error = sqlite::begin(&transaction, &nightly(), mark("8")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error
            .to_string()
            .contains("begin the transaction with the attempt"),
        "{error}"
    );
}

#[test]
fn the_plain_statements_say_by_their_rows_what_came_of_it() {
    let database = open();
    let none = rusqlite::types::Null;
    let begin = |token: &dyn rusqlite::ToSql| {
        database.execute(SQLITE.begin, ("nightly", 0, token, none, none))
    };
    let finish = |token: i64| {
        let parameters = (b"receipt".as_slice(), none, "nightly", 0, token);
        database.execute(SQLITE.finish, parameters).unwrap()
    };
    assert_eq!(begin(&7).unwrap(), 1);
    assert_eq!(begin(&7).unwrap(), 0);
    // A number that came as text counts as the number, and what isn't one would be above every number.
    assert_eq!(begin(&"6").unwrap(), 0);
    assert_eq!(begin(&"10").unwrap(), 1);
    for token in [&"9x" as &dyn rusqlite::ToSql, &"", &10.5, &-1, &0, &none] {
        begin(token).unwrap_err();
    }
    assert_eq!((finish(7), finish(10), finish(10)), (0, 1, 0));
    assert_eq!(begin(&11).unwrap(), 0);
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(3)?, row.get(8)?));
    let row: (String, Vec<u8>) = database.query_row(SQLITE.read, ["nightly"], read).unwrap();
    assert_eq!(row, ("done".to_owned(), b"receipt".to_vec()));
}

//! Records in an SQLite database. What all databases do is in `workers`.

use std::time::Duration;

use leasehold_core::{ErrorKind, Name};
use leasehold_fence::Pass;
use leasehold_once::sql::SQLITE;
use leasehold_once::{Begun, Finished, Once, sqlite};
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

/// A hold of the one lock that the keys belong to.
fn pass(token: &str) -> Pass {
    format!("nights:{token}").parse().unwrap()
}

fn lock() -> Name {
    Name::new("nights").unwrap()
}

fn begin(database: &mut Connection, once: &Once, text: &str) -> Begun {
    let transaction = database.transaction().unwrap();
    let begun = sqlite::begin(&transaction, once, &pass(text)).unwrap();
    transaction.commit().unwrap();
    begun
}

fn finish(database: &mut Connection, once: &Once, text: &str) -> Finished {
    let transaction = database.transaction().unwrap();
    let finished = sqlite::finish(&transaction, once, &pass(text), text.as_bytes()).unwrap();
    transaction.commit().unwrap();
    finished
}

/// Lets all that is recorded be so much older.
fn age(database: &Connection, by: Duration) {
    let by = i64::try_from(by.as_millis()).unwrap();
    let older = "UPDATE leasehold_once SET started = started - ?1, ended = ended - ?1, expires = expires - ?1";
    database.execute(older, [by]).unwrap();
}

#[test]
fn what_is_rolled_back_has_not_begun() {
    let mut database = open();
    let once = nightly();
    let transaction = database.transaction().unwrap();
    assert_eq!(
        sqlite::begin(&transaction, &once, &pass("9")).unwrap(),
        Begun::First
    );
    let finished = sqlite::finish(&transaction, &once, &pass("9"), b"").unwrap();
    assert_eq!(finished, Finished::Recorded);
    transaction.rollback().unwrap();
    assert_eq!(sqlite::list(&database, "").unwrap(), []);
    assert_eq!(begin(&mut database, &once, "8"), Begun::First);
}

#[test]
fn records_whose_time_is_over_are_swept_in_parts() {
    let mut database = open();
    assert_eq!(begin(&mut database, &nightly(), "1"), Begun::First);
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
fn what_cannot_be_right_is_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut database = Connection::open(folder.path().join("app.db")).unwrap();
    let once = nightly();
    assert_eq!(sqlite::done(&database, &once, &lock()).unwrap(), None);
    assert_eq!(sqlite::list(&database, "").unwrap(), []);
    assert!(!sqlite::forget(&database, once.key()).unwrap());
    let mut tried = |setup: &str, token: &str| {
        database.execute_batch(setup).unwrap();
        let transaction = database.transaction().unwrap();
        sqlite::begin(&transaction, &once, &pass(token)).unwrap_err()
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
        "PRAGMA synchronous = FULL; {}; INSERT INTO leasehold_once VALUES ('nightly', 'nights', 0, 1, 'done', -5, 5, x'', NULL)",
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
fn a_success_that_a_power_cut_could_take_back_is_not_stored() {
    let mut database = open();
    assert_eq!(begin(&mut database, &nightly(), "7"), Begun::First);
    database
        .execute_batch("PRAGMA synchronous = NORMAL")
        .unwrap();
    let transaction = database.transaction().unwrap();
    let error = sqlite::finish(&transaction, &nightly(), &pass("7"), b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    transaction.commit().unwrap();
    database.execute_batch("PRAGMA synchronous = FULL").unwrap();
    assert_eq!(finish(&mut database, &nightly(), "7"), Finished::Recorded);
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
    let error = sqlite::begin(&transaction, &nightly(), &pass("8")).unwrap_err();
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
        database.execute(SQLITE.begin, ("nightly", "nights", 0, token, none, none))
    };
    let finish = |token: i64| {
        let parameters = (b"receipt".as_slice(), none, "nightly", "nights", 0, token);
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
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(4)?, row.get(9)?));
    let row: (String, Vec<u8>) = database.query_row(SQLITE.read, ["nightly"], read).unwrap();
    assert_eq!(row, ("done".to_owned(), b"receipt".to_vec()));
}

//! The fence in an SQLite database.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::{ErrorKind, Name, Token};
use leasehold_fence::sql::SQLITE;
use leasehold_fence::{Checked, Mark, Seen, Stale, sqlite};
use rusqlite::{Connection, TransactionBehavior};

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new(journal: &str) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("app.db");
        let place = Self {
            _folder: folder,
            path,
        };
        let database = place.open();
        let set: String = database
            .query_row(&format!("PRAGMA journal_mode = {journal}"), [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(set, journal);
        database
            .execute_batch("CREATE TABLE log (mark TEXT)")
            .unwrap();
        sqlite::prepare(&database).unwrap();
        sqlite::prepare(&database).unwrap();
        place
    }

    fn open(&self) -> Connection {
        let database = Connection::open(&self.path).unwrap();
        database.busy_timeout(Duration::from_millis(50)).unwrap();
        database
    }
}

fn stock() -> Name {
    Name::new("stock").unwrap()
}

fn mark(text: &str) -> Mark {
    text.parse().unwrap()
}

fn stale(seen: &str, yours: &str) -> Checked {
    Checked::Stale(Stale {
        seen: mark(seen).into(),
        yours: mark(yours),
    })
}

/// Offers a write; commits if it is accepted.
fn write(database: &mut Connection, text: &str) -> leasehold_core::Result<Checked> {
    let transaction = database.transaction().unwrap();
    let checked = sqlite::check(&transaction, &stock(), mark(text))?;
    if checked == Checked::Accepted {
        transaction
            .execute("INSERT INTO log VALUES (?1)", [text])
            .unwrap();
        transaction.commit().unwrap();
    }
    Ok(checked)
}

fn log(database: &Connection) -> Vec<String> {
    let mut rows = database
        .prepare("SELECT mark FROM log ORDER BY rowid")
        .unwrap();
    rows.query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

#[test]
fn the_newest_holder_writes_and_an_older_one_does_not() {
    for journal in ["wal", "delete"] {
        let place = Place::new(journal);
        let mut database = place.open();
        assert_eq!(sqlite::seen(&database, &stock()).unwrap(), Seen::default());
        for (text, came) in [
            ("7", Checked::Accepted),
            ("7", Checked::Accepted),
            ("6", stale("7", "6")),
            ("1.1", Checked::Accepted),
            ("9223372036854775807", stale("1.1", "9223372036854775807")),
            ("10.1", Checked::Accepted),
            ("9.9", stale("10.1", "9.9")),
        ] {
            assert_eq!(write(&mut database, text).unwrap(), came, "{text}");
        }
        assert_eq!(log(&place.open()), ["7", "7", "1.1", "10.1"]);
        assert_eq!(
            sqlite::seen(&place.open(), &stock()).unwrap(),
            mark("10.1").into()
        );
        let other = Name::new("other").unwrap();
        assert_eq!(sqlite::seen(&database, &other).unwrap(), Seen::default());
    }
}

#[test]
fn a_mark_is_undone_with_the_write_that_brought_it() {
    let place = Place::new("wal");
    let mut database = place.open();
    let transaction = database.transaction().unwrap();
    assert_eq!(
        sqlite::check(&transaction, &stock(), mark("9")).unwrap(),
        Checked::Accepted
    );
    transaction.rollback().unwrap();
    assert_eq!(write(&mut database, "8").unwrap(), Checked::Accepted);
}

#[test]
fn an_older_holder_that_was_accepted_first_is_waited_for() {
    for journal in ["wal", "delete"] {
        let place = Place::new(journal);
        let (mut older, mut newer) = (place.open(), place.open());
        let open = older.transaction().unwrap();
        assert_eq!(
            sqlite::check(&open, &stock(), mark("7")).unwrap(),
            Checked::Accepted
        );
        // The newer one can't come in between and read what is about to change.
        let error = write(&mut newer, "8").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        open.execute("INSERT INTO log VALUES ('7')", []).unwrap();
        open.commit().unwrap();
        assert_eq!(write(&mut newer, "8").unwrap(), Checked::Accepted);
        assert_eq!(write(&mut older, "7").unwrap(), stale("8", "7"));
        assert_eq!(log(&newer), ["7", "8"]);
    }
}

#[test]
fn a_transaction_that_read_before_somebody_else_wrote_is_refused_and_told_why() {
    let place = Place::new("wal");
    let (mut reads_first, mut other) = (place.open(), place.open());
    let transaction = reads_first.transaction().unwrap();
    let count: i64 = transaction
        .query_row("SELECT count(*) FROM log", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 0);
    assert_eq!(write(&mut other, "7").unwrap(), Checked::Accepted);
    let error = sqlite::check(&transaction, &stock(), mark("8")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error
            .to_string()
            .contains("begin the transaction with the check"),
        "{error}"
    );
    drop(transaction);
    // Begun as it says, it goes through.
    let transaction = reads_first
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    assert_eq!(
        sqlite::check(&transaction, &stock(), mark("8")).unwrap(),
        Checked::Accepted
    );
    transaction.commit().unwrap();
}

#[test]
fn a_database_that_does_not_wait_for_the_disk_is_refused() {
    let place = Place::new("wal");
    let mut database = place.open();
    for (level, fits) in [
        ("OFF", false),
        ("NORMAL", false),
        ("FULL", true),
        ("EXTRA", true),
    ] {
        database
            .execute_batch(&format!("PRAGMA synchronous = {level}"))
            .unwrap();
        match write(&mut database, "7") {
            Ok(checked) => assert!(fits && checked == Checked::Accepted, "{level}"),
            Err(error) => {
                assert!(
                    !fits && error.kind() == ErrorKind::Unsupported,
                    "{level}: {error}"
                );
                assert!(error.to_string().contains("synchronous = FULL"), "{error}");
            }
        }
        let transaction = database.transaction().unwrap();
        let advanced = sqlite::advance(&transaction, &stock(), 1);
        assert_eq!(advanced.is_ok(), fits, "{level}: {advanced:?}");
    }
}

#[test]
fn an_epoch_shuts_out_all_tokens_before_it_and_does_not_go_back() {
    let place = Place::new("wal");
    let mut database = place.open();
    assert_eq!(
        write(&mut database, "1800000000000000").unwrap(),
        Checked::Accepted
    );
    let mut advance = |epoch| {
        let transaction = database.transaction().unwrap();
        let seen = sqlite::advance(&transaction, &stock(), epoch).unwrap();
        transaction.commit().unwrap();
        seen
    };
    assert_eq!(advance(2), Seen::new(2, None));
    assert_eq!(advance(2), Seen::new(2, None));
    assert_eq!(advance(1), Seen::new(2, None));
    assert!(matches!(
        write(&mut place.open(), "1800000000000001").unwrap(),
        Checked::Stale(_)
    ));
    assert_eq!(write(&mut place.open(), "2.5").unwrap(), Checked::Accepted);
    assert_eq!(advance(2), Seen::new(2, Token::new(5)));
    assert_eq!(advance(u32::MAX), Seen::new(u32::MAX, None));
}

#[test]
fn the_plain_statements_take_no_text_for_a_number() {
    let place = Place::new("wal");
    let mut database = place.open();
    assert_eq!(write(&mut database, "7").unwrap(), Checked::Accepted);
    let offered = |token: &dyn rusqlite::ToSql| database.execute(SQLITE.check, ("stock", 0, token));
    // A number that came as text counts as the number.
    assert_eq!(offered(&"6").unwrap(), 0);
    assert_eq!(offered(&"10").unwrap(), 1);
    assert_eq!(offered(&10).unwrap(), 1);
    assert_eq!(offered(&"9").unwrap(), 0);
    // What isn't one would be above every number.
    for token in [
        &"9x" as &dyn rusqlite::ToSql,
        &"",
        &10.5,
        &b"11".as_slice(),
        &-1,
        &rusqlite::types::Null,
    ] {
        offered(token).unwrap_err();
    }
    assert_eq!(
        sqlite::seen(&database, &stock()).unwrap(),
        mark("10").into()
    );
}

#[test]
fn without_the_table_nothing_has_been_seen_and_nothing_is_accepted() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut database = Connection::open(folder.path().join("app.db")).unwrap();
    assert_eq!(sqlite::seen(&database, &stock()).unwrap(), Seen::default());
    let transaction = database.transaction().unwrap();
    let error = sqlite::check(&transaction, &stock(), mark("7")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("sqlite::prepare"), "{error}");
    let error = sqlite::check(&transaction, &stock(), mark("9223372036854775808")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

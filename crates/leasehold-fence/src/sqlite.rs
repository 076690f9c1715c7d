//! A fence in an SQLite database, for `rusqlite`.
//!
//! ```
//! use leasehold_core::Name;
//! use leasehold_fence::{Checked, Mark, sqlite};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::current_dir()?.join("../../target/tmp");
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join(format!("stock-{}.db", std::process::id()));
//! let mut database = rusqlite::Connection::open(&path)?;
//! database.execute_batch("CREATE TABLE stock (item TEXT PRIMARY KEY, count INTEGER)")?;
//! sqlite::prepare(&database)?;
//!
//! let (resource, mark): (Name, Mark) = ("stock".parse()?, "41".parse()?);
//! let transaction = database.transaction()?;
//! match sqlite::check(&transaction, &resource, mark)? {
//!     Checked::Accepted => {
//!         transaction.execute("INSERT INTO stock VALUES ('tea', 9)", [])?;
//!         transaction.commit()?;
//!     }
//!     // Dropping the transaction rolls it back.
//!     Checked::Stale(stale) => return Err(stale.into()),
//! }
//! # std::fs::remove_file(&path)?;
//! # Ok(())
//! # }
//! ```

use leasehold_core::{Error, ErrorKind, Name, Result};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Transaction};

use crate::mark::{Checked, Mark, Seen};
use crate::sql::{self, SQLITE};

/// `PRAGMA synchronous` from which on a commit waits for the disk.
const FULL: i64 = 2;

/// Makes the table for the marks, unless it is there. In a database that is used already this waits for its writers.
///
/// # Errors
/// As [`check`].
pub fn prepare(connection: &Connection) -> Result<()> {
    connection
        .execute_batch(SQLITE.table)
        .map_err(|error| fault(error).during("prepare"))
}

/// Accepts the mark for this transaction, or says that it is stale: roll back then. Call it before anything is read
/// that the transaction's writes depend on; from here to the commit no other fenced transaction comes in between.
///
/// # Errors
/// `Unavailable` when the database is locked for longer than the connection's busy timeout, or has been written by
/// others since this transaction read (begin it with the check, or `IMMEDIATE`); `Unsupported` where a commit doesn't
/// wait for the disk (`PRAGMA synchronous`), and for a token above SQL's integers; `Invalid` without the table.
pub fn check(transaction: &Transaction<'_>, resource: &Name, mark: Mark) -> Result<Checked> {
    let check = || -> Result<Checked> {
        check_durable(transaction)?;
        let (epoch, token) = sql::parameters(mark)?;
        let mut check = transaction.prepare_cached(SQLITE.check).map_err(fault)?;
        if check
            .execute((resource.as_str(), epoch, token))
            .map_err(fault)?
            == 1
        {
            return Ok(Checked::Accepted);
        }
        Ok(read(transaction, resource)?.check(mark))
    };
    check().map_err(|error| error.during("check").named(resource.as_str()))
}

/// The highest mark that the resource has seen; nothing where there is no table yet.
///
/// # Errors
/// As [`check`].
pub fn seen(connection: &Connection, resource: &Name) -> Result<Seen> {
    let seen = match connection.table_exists(None, sql::TABLE) {
        Ok(false) => Ok(Seen::default()),
        Ok(true) => read(connection, resource),
        Err(error) => Err(fault(error)),
    };
    seen.map_err(|error| error.during("show").named(resource.as_str()))
}

/// Begins an epoch: every write of an older one is stale once the transaction is committed. Answers what has been seen
/// afterwards, which is of a higher epoch where that has begun already; nothing is changed then, and nothing when it is
/// this one.
///
/// # Errors
/// As [`check`].
pub fn advance(transaction: &Transaction<'_>, resource: &Name, epoch: u32) -> Result<Seen> {
    let advance = || -> Result<Seen> {
        check_durable(transaction)?;
        let parameters = (resource.as_str(), i64::from(epoch));
        transaction
            .execute(SQLITE.advance, parameters)
            .map_err(fault)?;
        read(transaction, resource)
    };
    advance().map_err(|error| error.during("advance").named(resource.as_str()))
}

fn read(connection: &Connection, resource: &Name) -> Result<Seen> {
    let row = connection
        .prepare_cached(SQLITE.seen)
        .and_then(|mut seen| {
            let columns = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            seen.query_row([resource.as_str()], columns).optional()
        })
        .map_err(fault)?;
    row.map_or(Ok(Seen::default()), |(epoch, token)| {
        sql::seen(epoch, token)
    })
}

/// Refuses a connection whose commits don't wait for the disk: what a power cut takes back guards nothing.
///
/// # Errors
/// `Unsupported`, saying what to set; `Unavailable` when SQLite can't say.
pub fn check_durable(connection: &Connection) -> Result<()> {
    let level: i64 = connection
        .prepare_cached("PRAGMA synchronous")
        .and_then(|mut asked| asked.query_row([], |row| row.get(0)))
        .map_err(fault)?;
    if level >= FULL {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "a commit on this connection doesn't wait for the disk, so a power cut could take it back; set PRAGMA \
         synchronous = FULL before the transaction (or EXTRA, where there is no write-ahead log)",
    ))
}

fn fault(error: rusqlite::Error) -> Error {
    let missing = error.to_string().contains("no such table: leasehold_fence");
    let (kind, what) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            "another connection keeps the database locked, or has written since this transaction read; begin the \
             transaction with the check, and try the whole of it again",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            (ErrorKind::Unauthorized, "the database can't be written")
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => (
            ErrorKind::Invalid,
            "the file is no SQLite database, or damaged",
        ),
        _ if missing => (
            ErrorKind::Invalid,
            "the database has no table leasehold_fence; make it once with sqlite::prepare",
        ),
        Some(ErrorCode::ConstraintViolation) => (
            ErrorKind::Invalid,
            "the table leasehold_fence refuses the mark",
        ),
        _ => (ErrorKind::Unavailable, "SQLite refuses the statement"),
    };
    Error::new(kind, what).because(error)
}

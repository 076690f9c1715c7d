//! Records in an SQLite database, for `rusqlite`. The crate's first page has an example.

use leasehold_core::{Error, ErrorKind, Name, Result};
use leasehold_fence::Pass;
use leasehold_fence::sql::parameters;
use leasehold_fence::sqlite::check_durable;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Transaction};

use crate::record::{Begun, Finished, Once, Record, Success};
use crate::row::{ROUNDS, Row, span, undecided};
use crate::sql::{SQLITE, TABLE};

/// Makes the table for the records, unless it is there. In a database that is used already this waits for its writers.
///
/// # Errors
/// As [`begin`].
pub fn prepare(connection: &Connection) -> Result<()> {
    connection
        .execute_batch(SQLITE.table)
        .and_then(|()| connection.execute_batch(SQLITE.index))
        .map_err(|error| fault(error).during("prepare"))
}

/// Begins an attempt, or says why not: roll back then. Call it before anything is read that the work depends on; from
/// here to the commit no other attempt comes in between.
///
/// # Errors
/// `Unavailable` when the database is locked for longer than the connection's busy timeout, or has been written by
/// others since this transaction read (begin it with this call, or `IMMEDIATE`); `Unsupported` where a commit doesn't
/// wait for the disk (`PRAGMA synchronous`), and for a token above SQL's integers; `Invalid` without the table, or with
/// rows that leasehold never writes.
pub fn begin(transaction: &Transaction<'_>, once: &Once, pass: &Pass) -> Result<Begun> {
    let (key, lock) = (once.key().as_str(), pass.name().as_str());
    let begin = || -> Result<Begun> {
        check_durable(transaction)?;
        let (epoch, token) = parameters(pass.mark())?;
        let (kept, window) = (span(once.attempt_kept()), span(once.window()));
        for _ in 0..ROUNDS {
            let mut begin = transaction.prepare_cached(SQLITE.begin).map_err(fault)?;
            let first = begin
                .execute((key, lock, epoch, token, kept, window))
                .map_err(fault)?;
            if first == 1 {
                return Ok(Begun::First);
            }
            // What refused it may be over now, as time goes on between the two statements.
            if let Some(row) = read(transaction, key)?
                && let Some(refusal) = row.refusal(once, pass)?
            {
                return Ok(refusal);
            }
        }
        Err(undecided())
    };
    begin().map_err(|error| error.during("begin").named(key))
}

/// Stores the result of the attempt: it has happened once the transaction is committed. Unless it is recorded, roll
/// back.
///
/// # Errors
/// As [`begin`].
pub fn finish(
    transaction: &Transaction<'_>,
    once: &Once,
    pass: &Pass,
    result: &[u8],
) -> Result<Finished> {
    let (key, lock) = (once.key().as_str(), pass.name().as_str());
    let finish = || -> Result<Finished> {
        check_durable(transaction)?;
        let (epoch, token) = parameters(pass.mark())?;
        let mut finish = transaction.prepare_cached(SQLITE.finish).map_err(fault)?;
        let recorded = finish
            .execute((result, span(once.kept()), key, lock, epoch, token))
            .map_err(fault)?;
        if recorded == 1 {
            return Ok(Finished::Recorded);
        }
        read(transaction, key)?.map_or(Ok(Finished::NotBegun), |row| row.unfinished(pass))
    };
    finish().map_err(|error| error.during("finish").named(key))
}

/// Says that the attempt failed, so that nobody takes it for one under way. A newer attempt doesn't need that; another
/// one of the same mark does. Answers whether this attempt was the newest, and running.
///
/// # Errors
/// As [`begin`].
pub fn fail(connection: &Connection, key: &Name, pass: &Pass) -> Result<bool> {
    let fail = || -> Result<bool> {
        let (epoch, token) = parameters(pass.mark())?;
        let parameters = (key.as_str(), pass.name().as_str(), epoch, token);
        let failed = connection.execute(SQLITE.fail, parameters).map_err(fault)?;
        Ok(failed == 1)
    };
    fail().map_err(|error| error.during("fail").named(key.as_str()))
}

/// The success, if it has happened and still counts; nothing where there is no table yet. For looking only: who is to
/// work asks [`begin`].
///
/// # Errors
/// As [`begin`].
pub fn done(connection: &Connection, once: &Once, lock: &Name) -> Result<Option<Success>> {
    let key = once.key().as_str();
    let done = || -> Result<Option<Success>> {
        if !is_there(connection)? {
            return Ok(None);
        }
        read(connection, key)?.map_or(Ok(None), |row| row.success(once, lock))
    };
    done().map_err(|error| error.during("look").named(key))
}

/// All records whose keys begin with this, in the order of their keys; none where there is no table yet.
///
/// # Errors
/// As [`begin`].
pub fn list(connection: &Connection, prefix: &str) -> Result<Vec<Record>> {
    let list = || -> Result<Vec<Record>> {
        if !is_there(connection)? {
            return Ok(Vec::new());
        }
        let mut list = connection.prepare_cached(SQLITE.list).map_err(fault)?;
        let rows = list.query_map([prefix], columns).map_err(fault)?;
        rows.map(|row| row.map_err(fault)?.record()).collect()
    };
    list().map_err(|error| error.during("list"))
}

/// Forgets a key: the work may happen again, and an attempt that is at it can't store its result. Answers whether there
/// was a record.
///
/// # Errors
/// As [`begin`].
pub fn forget(connection: &Connection, key: &Name) -> Result<bool> {
    let forget = || -> Result<bool> {
        if !is_there(connection)? {
            return Ok(false);
        }
        let forgotten = connection
            .execute(SQLITE.forget, [key.as_str()])
            .map_err(fault)?;
        Ok(forgotten > 0)
    };
    forget().map_err(|error| error.during("forget").named(key.as_str()))
}

/// Deletes records whose time is over, at most so many; answers how many. They count no more without that, too: it is
/// for the room, and for outside of the work's transaction.
///
/// # Errors
/// As [`begin`].
pub fn sweep(connection: &Connection, most: u32) -> Result<usize> {
    connection
        .execute(SQLITE.sweep, [most])
        .map_err(|error| fault(error).during("sweep"))
}

fn is_there(connection: &Connection) -> Result<bool> {
    connection.table_exists(None, TABLE).map_err(fault)
}

fn read(connection: &Connection, key: &str) -> Result<Option<Row>> {
    connection
        .prepare_cached(SQLITE.read)
        .and_then(|mut read| read.query_row([key], columns).optional())
        .map_err(fault)
}

fn columns(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        key: row.get(0)?,
        lock: row.get(1)?,
        epoch: row.get(2)?,
        token: row.get(3)?,
        state: row.get(4)?,
        started: row.get(5)?,
        ended: row.get(6)?,
        expires: row.get(7)?,
        now: row.get(8)?,
        result: row.get(9)?,
    })
}

fn fault(error: rusqlite::Error) -> Error {
    let missing = error.to_string().contains("no such table: leasehold_once");
    let (kind, what) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            "another connection keeps the database locked, or has written since this transaction read; begin the \
             transaction with the attempt, and try the whole of it again",
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
            "the database has no table leasehold_once; make it once with sqlite::prepare",
        ),
        Some(ErrorCode::ConstraintViolation) => (
            ErrorKind::Invalid,
            "the table leasehold_once refuses the record",
        ),
        _ => (ErrorKind::Unavailable, "SQLite refuses the statement"),
    };
    Error::new(kind, what).because(error)
}

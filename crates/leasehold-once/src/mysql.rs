//! Records in a MySQL or MariaDB database, for `mysql_async`.
//!
//! ```no_run
//! use leasehold_fence::Pass;
//! use leasehold_once::{Begun, Once, mysql};
//! use mysql_async::TxOpts;
//! use mysql_async::prelude::Queryable as _;
//! # async fn example(mut conn: mysql_async::Conn) -> Result<(), Box<dyn std::error::Error>> {
//! mysql::prepare(&mut conn).await?;
//!
//! let (charge, pass): (_, Pass) = (Once::new("charge/4711/2026-11".parse()?), "charges:41".parse()?);
//! let mut transaction = conn.start_transaction(TxOpts::default()).await?;
//! let begun = mysql::begin(&mut transaction, &charge, &pass).await?;
//! if begun == Begun::First {
//!     transaction.query_drop("INSERT INTO invoices VALUES ('4711', 990)").await?;
//!     let _ = mysql::finish(&mut transaction, &charge, &pass, b"receipt 1").await?;
//!     transaction.commit().await?;
//!     return Ok(());
//! }
//! // Dropped, it would keep the row locked until the connection is used again.
//! transaction.rollback().await?;
//! match begun {
//!     Begun::First => {}
//!     Begun::Done(success) => println!("{:?}", success.result),
//!     Begun::Running(attempt) => return Err(attempt.to_string().into()),
//!     Begun::Stale(stale) => return Err(stale.into()),
//! }
//! # Ok(())
//! # }
//! ```

use std::sync::LazyLock;

use leasehold_core::{Error, ErrorKind, Name, Result};
use leasehold_fence::Pass;
use leasehold_fence::sql::parameters;
use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{Conn, Params, Transaction};

use crate::record::{Begun, Finished, Once, Record, Success};
use crate::row::{ROUNDS, Row, span, undecided};
use crate::sql::{MYSQL, mysql_now, mysql_text};

/// There is no such table.
const NO_TABLE: u16 = 1146;

/// Fails where the table isn't there.
const THERE: &str = "SELECT 1 FROM leasehold_once LIMIT 0";

/// Whether a commit waits for the disk: a success that a power cut takes back would happen again. Where there is a binary
/// log it is what a server goes by after a crash: a transaction that isn't in it is rolled back.
macro_rules! durable {
    () => {
        "@@GLOBAL.innodb_flush_log_at_trx_commit IN (1, 3) AND (@@GLOBAL.log_bin = 0 OR @@GLOBAL.sync_binlog = 1)"
    };
}

/// [`MYSQL`]'s `place` for a key that is new, which most are: it begins the attempt at once. Where there is a row it locks
/// it, and gives 1 in the place of a generated number; how many rows it affects depends on the connection.
const FIRST: &str = concat!(
    "INSERT INTO leasehold_once (`key`, lock_name, epoch, token, state, started, expires)
SELECT ",
    mysql_text!(),
    ", ",
    mysql_text!(),
    ", ?, ?, 'running', ",
    mysql_now!(),
    ", ",
    mysql_now!(),
    " + ? FROM DUAL WHERE ",
    durable!(),
    "
ON DUPLICATE KEY UPDATE leasehold_once.epoch = IF(LAST_INSERT_ID(1), leasehold_once.epoch, 0)"
);

const IS_DURABLE: &str = concat!("SELECT ", durable!());

/// A row as it is, and not as the transaction's snapshot has it.
static READ: LazyLock<String> = LazyLock::new(|| format!("{} FOR UPDATE", MYSQL.read));
/// [`MYSQL`]'s `begin`, where a commit waits for the disk.
static BEGIN: LazyLock<String> = LazyLock::new(|| format!("{} AND {}", MYSQL.begin, durable!()));

/// Makes the table for the records in the connection's database, unless it is there: then the user needs no right to
/// make one.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn prepare(conn: &mut Conn) -> Result<()> {
    let made = match conn.query_drop(THERE).await {
        Err(error) if code(&error) == NO_TABLE => conn.query_drop(MYSQL.table).await,
        there => there,
    };
    made.map_err(|error| fault(error).during("prepare"))
}

/// Begins an attempt, or says why not: roll back then. Call it before anything is read that the work depends on; from
/// here to the end of the transaction no other attempt comes in between, and one that asks waits. One round
/// trip for a new key, two for one that is there.
///
/// After an error write nothing: of some the server has rolled back the whole transaction, and takes what comes next by
/// itself.
///
/// # Errors
/// `Unavailable` when the server can't answer, keeps the transaction waiting for too long, or ends a deadlock by it: try
/// the whole transaction again; `Unsupported` where a commit doesn't wait for the disk, and for a token above SQL's
/// integers; `Unauthorized` when the user lacks a right; `Invalid` without the table, when the key belongs to another
/// lock, and with rows that leasehold never writes.
///
/// # Cancel safety
/// Dropped, the transaction can only be rolled back.
pub async fn begin(transaction: &mut Transaction<'_>, once: &Once, pass: &Pass) -> Result<Begun> {
    let (key, lock) = (once.key().as_str(), pass.name().as_str());
    let begin = async {
        let (epoch, token) = parameters(pass.mark())?;
        let (kept, window) = (span(once.attempt_kept()), span(once.window()));
        for _ in 0..ROUNDS {
            let parameters = (key, lock, epoch, token, kept);
            let first = transaction.exec_drop(FIRST, parameters).await;
            first.map_err(fault)?;
            let begun = match transaction.last_insert_id() {
                None => transaction.affected_rows(),
                Some(_) => {
                    let parameters = (
                        lock, epoch, token, kept, key, lock, window, epoch, token, epoch, token,
                    );
                    affected(transaction, &BEGIN, parameters).await?
                }
            };
            if begun == 1 {
                return Ok(Begun::First);
            }
            let row = read(transaction, &READ, key).await.map_err(fault)?;
            if let Some(row) = row
                && let Some(refusal) = columns(row)?.refusal(once, pass)?
            {
                return Ok(refusal);
            }
            // Or what refused it is over now, as time goes on between the statements.
            check_durable(transaction).await?;
        }
        Err(undecided())
    };
    begin
        .await
        .map_err(|error: Error| error.during("begin").named(key))
}

/// Stores the result of the attempt: it has happened once the transaction is committed. Unless it is recorded, roll
/// back.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, the transaction can only be rolled back.
pub async fn finish(
    transaction: &mut Transaction<'_>,
    once: &Once,
    pass: &Pass,
    result: &[u8],
) -> Result<Finished> {
    let (key, lock) = (once.key().as_str(), pass.name().as_str());
    let finish = async {
        let (epoch, token) = parameters(pass.mark())?;
        let parameters = (result, span(once.kept()), key, lock, epoch, token);
        if affected(transaction, MYSQL.finish, parameters).await? == 1 {
            return Ok(Finished::Recorded);
        }
        match read(transaction, &READ, key).await.map_err(fault)? {
            Some(row) => columns(row)?.unfinished(pass),
            None => Ok(Finished::NotBegun),
        }
    };
    finish
        .await
        .map_err(|error: Error| error.during("finish").named(key))
}

/// Says that the attempt failed, so that nobody takes it for one under way. A newer attempt doesn't need that; another
/// one of the same mark does. Answers whether this attempt was the newest, and running.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn fail(conn: &mut Conn, key: &Name, pass: &Pass) -> Result<bool> {
    let fail = async {
        let (epoch, token) = parameters(pass.mark())?;
        let parameters = (key.as_str(), pass.name().as_str(), epoch, token);
        Ok(affected(conn, MYSQL.fail, parameters).await? == 1)
    };
    fail.await
        .map_err(|error: Error| error.during("fail").named(key.as_str()))
}

/// The success, if it has happened and still counts; nothing where there is no table yet. For looking only: who is to
/// work asks [`begin`].
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Safe.
pub async fn done(
    connection: &mut impl Queryable,
    once: &Once,
    lock: &Name,
) -> Result<Option<Success>> {
    let key = once.key().as_str();
    let done = match read(connection, MYSQL.read, key).await {
        Err(error) if code(&error) == NO_TABLE => Ok(None),
        Err(error) => Err(fault(error)),
        Ok(None) => Ok(None),
        Ok(Some(row)) => columns(row).and_then(|row| row.success(once, lock)),
    };
    done.map_err(|error| error.during("look").named(key))
}

/// All records whose keys begin with this, in the order of their keys; none where there is no table yet.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Safe.
pub async fn list(connection: &mut impl Queryable, prefix: &str) -> Result<Vec<Record>> {
    let rows: mysql_async::Result<Vec<mysql_async::Row>> =
        connection.exec(MYSQL.list, (prefix,)).await;
    let list = match rows {
        Err(error) if code(&error) == NO_TABLE => Ok(Vec::new()),
        Err(error) => Err(fault(error)),
        Ok(rows) => rows.into_iter().map(|row| columns(row)?.record()).collect(),
    };
    list.map_err(|error| error.during("list"))
}

/// Forgets a key: the work may happen again, and an attempt that is at it can't store its result. Answers whether there
/// was a record.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn forget(conn: &mut Conn, key: &Name) -> Result<bool> {
    match conn.exec_drop(MYSQL.forget, (key.as_str(),)).await {
        Err(error) if code(&error) == NO_TABLE => Ok(false),
        Err(error) => Err(fault(error).during("forget").named(key.as_str())),
        Ok(()) => Ok(conn.affected_rows() > 0),
    }
}

/// Deletes records whose time is over, at most so many; answers how many. They count no more without that, too: it is
/// for the room, and for outside of the work's transaction. It waits for a transaction that begins one of them anew.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn sweep(conn: &mut Conn, most: u32) -> Result<u64> {
    let swept = affected(conn, MYSQL.sweep, (most,)).await;
    swept.map_err(|error| error.during("sweep"))
}

async fn check_durable(connection: &mut impl Queryable) -> Result<()> {
    let durable: Option<i64> = connection.query_first(IS_DURABLE).await.map_err(fault)?;
    if durable == Some(1) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "a commit on this server doesn't wait for the disk, so a power cut could take the record back; set \
         innodb_flush_log_at_trx_commit = 1, and sync_binlog = 1 where there is a binary log",
    ))
}

/// Runs a statement; answers how many rows it affected.
async fn affected(
    connection: &mut impl Queryable,
    statement: &str,
    parameters: impl Into<Params> + Send,
) -> Result<u64> {
    let done = connection.exec_iter(statement, parameters).await;
    let done = done.map_err(fault)?;
    let affected = done.affected_rows();
    done.drop_result().await.map_err(fault)?;
    Ok(affected)
}

async fn read(
    connection: &mut impl Queryable,
    statement: &str,
    key: &str,
) -> mysql_async::Result<Option<mysql_async::Row>> {
    connection.exec_first(statement, (key,)).await
}

fn columns(row: mysql_async::Row) -> Result<Row> {
    fn column<T: FromValue>(row: &mysql_async::Row, at: usize) -> Result<T> {
        match row.get_opt(at) {
            Some(Ok(value)) => Ok(value),
            _ => Err(Error::new(
                ErrorKind::Invalid,
                "the table leasehold_once has columns that leasehold never makes",
            )),
        }
    }
    Ok(Row {
        key: column(&row, 0)?,
        lock: column(&row, 1)?,
        epoch: column(&row, 2)?,
        token: column(&row, 3)?,
        state: column(&row, 4)?,
        started: column(&row, 5)?,
        ended: column(&row, 6)?,
        expires: column(&row, 7)?,
        now: column(&row, 8)?,
        result: column(&row, 9)?,
    })
}

/// The code of an error of the server's; 0 for any other.
fn code(error: &mysql_async::Error) -> u16 {
    match error {
        mysql_async::Error::Server(said) => said.code,
        _ => 0,
    }
}

fn fault(error: mysql_async::Error) -> Error {
    let (kind, what) = match code(&error) {
        // The second is of a MariaDB that holds a transaction to its snapshot.
        1213 | 1020 => (
            ErrorKind::Unavailable,
            "another attempt came before this one, whose transaction the server has rolled back and which has to be \
             tried again as a whole, with beginning first",
        ),
        // The others where the session bounds its statements, and that is shorter.
        1205 | 1969 | 3024 => (
            ErrorKind::Unavailable,
            "another attempt's transaction is open for longer than innodb_lock_wait_timeout, or a bound on statements, \
             lets this one wait",
        ),
        NO_TABLE => (
            ErrorKind::Invalid,
            "the database has no table leasehold_once; make it once with mysql::prepare, or by \
             `leasehold schema mysql once | mysql DATABASE`",
        ),
        1046 => (
            ErrorKind::Invalid,
            "the connection is in no database, and the table leasehold_once is looked for in its database",
        ),
        1044 | 1142 | 1143 => (
            ErrorKind::Unauthorized,
            "the user lacks a right: he needs SELECT, INSERT, UPDATE and DELETE on the table leasehold_once, which \
             `leasehold schema mysql once --role USER | mysql DATABASE` makes and grants",
        ),
        1264 | 3819 | 4025 => (
            ErrorKind::Invalid,
            "the table leasehold_once refuses the record",
        ),
        1290 | 1792 | 1836 => (
            ErrorKind::Unavailable,
            "the server or the transaction is read-only",
        ),
        _ => (
            ErrorKind::Unavailable,
            "the server gave no answer, or refused the statement",
        ),
    };
    Error::new(kind, what).because(error)
}

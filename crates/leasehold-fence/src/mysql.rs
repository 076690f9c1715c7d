//! A fence in a MySQL or MariaDB database, for `mysql_async`.
//!
//! ```no_run
//! use leasehold_core::Name;
//! use leasehold_fence::{Checked, Mark, mysql};
//! use mysql_async::TxOpts;
//! use mysql_async::prelude::Queryable as _;
//! # async fn example(mut conn: mysql_async::Conn) -> Result<(), Box<dyn std::error::Error>> {
//! mysql::prepare(&mut conn).await?;
//!
//! let (resource, mark): (Name, Mark) = ("stock".parse()?, "41".parse()?);
//! let mut transaction = conn.start_transaction(TxOpts::default()).await?;
//! match mysql::check(&mut transaction, &resource, mark).await? {
//!     Checked::Accepted => {
//!         transaction.query_drop("UPDATE stock SET count = count - 1").await?;
//!         transaction.commit().await?;
//!     }
//!     Checked::Stale(stale) => {
//!         // Dropped, it would keep the row locked until the connection is used again.
//!         transaction.rollback().await?;
//!         return Err(stale.into());
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use leasehold_core::{Error, ErrorKind, Name, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Transaction};

use crate::mark::{Checked, Mark, Seen};
use crate::sql::{self, MYSQL};

/// There is no such table.
const NO_TABLE: u16 = 1146;

/// Fails where the table isn't there.
const THERE: &str = "SELECT 1 FROM leasehold_fence LIMIT 0";

/// Whether a commit waits for the disk. Where there is a binary log it is what a server goes by after a crash: a
/// transaction that isn't in it is rolled back.
macro_rules! durable {
    () => {
        "@@GLOBAL.innodb_flush_log_at_trx_commit IN (1, 3) AND (@@GLOBAL.log_bin = 0 OR @@GLOBAL.sync_binlog = 1)"
    };
}

/// [`MYSQL`]'s check, which says [`ACCEPTED`] in the place of a generated number where the row was there, the mark is
/// accepted, and a commit waits for the disk. Where it doesn't say so, the verdict has to be asked.
///
/// The token is assigned by then: a stale mark is one of a lower epoch, or isn't the one in the row.
const CHECK: &str = concat!(
    "INSERT INTO leasehold_fence (resource, epoch, token) VALUES (CONVERT(? USING utf8mb4), ?, ?)
ON DUPLICATE KEY UPDATE
    token = IF((epoch, token) < (VALUES(epoch), VALUES(token)), VALUES(token), token),
    epoch = IF(LAST_INSERT_ID(epoch <= VALUES(epoch) AND token = VALUES(token) AND ",
    durable!(),
    ") = 1, VALUES(epoch), GREATEST(epoch, VALUES(epoch)))"
);
const ACCEPTED: u64 = 1;

/// [`MYSQL`]'s verdict, and whether a commit waits for the disk.
const VERDICT: &str = concat!(
    "SELECT epoch, token, ",
    durable!(),
    " FROM leasehold_fence WHERE resource = CONVERT(? USING utf8mb4) FOR UPDATE"
);

/// Makes the table for the marks in the connection's database, unless it is there: then the user needs no right to make
/// one.
///
/// # Errors
/// As [`check`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn prepare(conn: &mut Conn) -> Result<()> {
    let made = match conn.query_drop(THERE).await {
        Err(error) if code(&error) == NO_TABLE => conn.query_drop(MYSQL.table).await,
        there => there,
    };
    made.map_err(|error| fault(&error).during("prepare"))
}

/// Accepts the mark for this transaction, or says that it is stale: roll back then. Call it before anything is read
/// that the transaction's writes depend on; from here to the commit no other fenced transaction comes in between. One
/// round trip; another for a stale mark, and for the first of a resource. `LAST_INSERT_ID()` is another afterwards.
///
/// After an error write nothing: of some the server has rolled back the whole transaction, and takes what comes next by
/// itself.
///
/// # Errors
/// `Unavailable` when the server can't answer, keeps the transaction waiting for too long, or ends a deadlock by it: try
/// the whole transaction again; `Unsupported` where a commit doesn't wait for the disk, and for a token above SQL's
/// integers; `Unauthorized` when the user lacks a right; `Invalid` without the table.
///
/// # Cancel safety
/// Dropped, the transaction can only be rolled back.
pub async fn check(
    transaction: &mut Transaction<'_>,
    resource: &Name,
    mark: Mark,
) -> Result<Checked> {
    let checked = async {
        let (epoch, token) = sql::parameters(mark)?;
        let parameters = (resource.as_str(), epoch, token);
        let raised = transaction.exec_drop(CHECK, parameters).await;
        raised.map_err(|error| fault(&error))?;
        if transaction.last_insert_id() == Some(ACCEPTED) {
            return Ok(Checked::Accepted);
        }
        Ok::<_, Error>(verdict(transaction, resource).await?.check(mark))
    };
    checked
        .await
        .map_err(|error| error.during("check").named(resource.as_str()))
}

/// The highest mark that the resource has seen; nothing where there is no table yet.
///
/// # Errors
/// As [`check`].
///
/// # Cancel safety
/// Safe.
pub async fn seen(connection: &mut impl Queryable, resource: &Name) -> Result<Seen> {
    let row: mysql_async::Result<Option<Row>> = connection
        .exec_first(MYSQL.seen, (resource.as_str(),))
        .await;
    let seen = match row {
        Ok(Some(row)) => of(&row),
        Ok(None) => Ok(Seen::default()),
        Err(error) if code(&error) == NO_TABLE => Ok(Seen::default()),
        Err(error) => Err(fault(&error)),
    };
    seen.map_err(|error| error.during("show").named(resource.as_str()))
}

/// Begins an epoch: every write of an older one is stale once the transaction is committed. Answers what has been seen
/// afterwards, which is of a higher epoch where that has begun already; nothing is changed then, and nothing when it is
/// this one.
///
/// # Errors
/// As [`check`].
///
/// # Cancel safety
/// Dropped, the transaction can only be rolled back.
pub async fn advance(
    transaction: &mut Transaction<'_>,
    resource: &Name,
    epoch: u32,
) -> Result<Seen> {
    let advanced = async {
        let parameters = (resource.as_str(), i64::from(epoch));
        let begun = transaction.exec_drop(MYSQL.advance, parameters).await;
        begun.map_err(|error| fault(&error))?;
        verdict(transaction, resource).await
    };
    advanced
        .await
        .map_err(|error| error.during("advance").named(resource.as_str()))
}

/// What has been seen, this transaction's own mark included. A mark that a power cut takes back lets older writes in.
async fn verdict(transaction: &mut Transaction<'_>, resource: &Name) -> Result<Seen> {
    let row: Option<Row> = transaction
        .exec_first(VERDICT, (resource.as_str(),))
        .await
        .map_err(|error| fault(&error))?;
    let row = row.ok_or_else(|| no_mark("doesn't keep what is written to it"))?;
    if column(&row, 2)? == 1 {
        return of(&row);
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "a commit on this server doesn't wait for the disk, so a power cut could take the mark back; set \
         innodb_flush_log_at_trx_commit = 1, and sync_binlog = 1 where there is a binary log",
    ))
}

fn of(row: &Row) -> Result<Seen> {
    sql::seen(column(row, 0)?, column(row, 1)?)
}

fn column(row: &Row, at: usize) -> Result<i64> {
    match row.get_opt(at) {
        Some(Ok(number)) => Ok(number),
        _ => Err(no_mark("has something that is no number")),
    }
}

fn no_mark(what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the table {} {what}", sql::TABLE),
    )
}

/// The code of an error of the server's; 0 for any other.
fn code(error: &mysql_async::Error) -> u16 {
    match error {
        mysql_async::Error::Server(said) => said.code,
        _ => 0,
    }
}

fn fault(error: &mysql_async::Error) -> Error {
    let (kind, what) = match code(error) {
        // The second is of a MariaDB that holds a transaction to its snapshot.
        1213 | 1020 => (
            ErrorKind::Unavailable,
            "another fenced transaction came before this one, which the server has rolled back and which has to be \
             tried again as a whole, with the check first",
        ),
        // The others where the session bounds its statements, and that is shorter.
        1205 | 1969 | 3024 => (
            ErrorKind::Unavailable,
            "another fenced transaction of this resource is open for longer than innodb_lock_wait_timeout, or a bound \
             on statements, lets this one wait",
        ),
        NO_TABLE => (
            ErrorKind::Invalid,
            "the database has no table leasehold_fence; make it once with mysql::prepare, or by \
             `leasehold schema mysql fence | mysql DATABASE`",
        ),
        1046 => (
            ErrorKind::Invalid,
            "the connection is in no database, and the table leasehold_fence is looked for in its database",
        ),
        1044 | 1142 | 1143 => (
            ErrorKind::Unauthorized,
            "the user lacks a right: he needs SELECT, INSERT and UPDATE on the table leasehold_fence, which \
             `leasehold schema mysql fence --role USER | mysql DATABASE` makes and grants",
        ),
        1264 | 3819 | 4025 => (
            ErrorKind::Invalid,
            "the table leasehold_fence refuses the mark",
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
    let said = match error {
        mysql_async::Error::Server(said) => format!("{} ({})", said.message, said.code),
        other => other.to_string(),
    };
    Error::new(kind, what).because(said)
}

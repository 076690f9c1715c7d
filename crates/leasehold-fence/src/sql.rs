//! The statements for the caller's own transaction, for any language that can send SQL.
//!
//! One row for each resource keeps the mark. In the transaction that writes, *before anything is read that the write
//! depends on*:
//!
//! 1. [`check`](Statements::check), with resource, epoch and token. It locks the row until the transaction ends, so no
//!    two transactions of one resource overlap from here on.
//! 2. One row affected: accepted; go on, and commit. None: stale; roll back, and don't write. On MySQL and MariaDB the
//!    rows say nothing: there [`verdict`](Statements::verdict) follows.
//!
//! The row lock is what makes this a fence. An older holder that was accepted has the row until it commits, and a newer
//! one waits for that and reads what it wrote; a newer one that came first has raised the mark.

use leasehold_core::{Error, ErrorKind, Result, Token};

use crate::mark::{Mark, Seen};

/// The table that keeps the marks, in every database.
pub const TABLE: &str = "leasehold_fence";

/// The statements for one kind of database, each with its parameters in the order they are named.
///
/// As integers the parameters and columns are what they are as a [`Mark`]; a token of 0 is none of this epoch yet.
#[derive(Clone, Copy, Debug)]
pub struct Statements {
    /// Makes the table where there is none. No parameters.
    pub table: &'static str,
    /// Accepts a mark and locks its row: resource, epoch, token. Affects one row if it is accepted and none if it is
    /// stale, where there is no verdict.
    pub check: &'static str,
    /// What has been seen after the check, as epoch and token: resource. The mark is accepted if it is this one, and
    /// stale if this one is higher. It is there where the rows that were affected don't tell.
    pub verdict: Option<&'static str>,
    /// What has been seen, as epoch and token; no row is nothing: resource.
    pub seen: &'static str,
    /// Begins an epoch, unless it has begun or is over: resource, epoch.
    pub advance: &'static str,
}

/// The statements for SQLite 3.24 or newer.
///
/// A transaction that began with a read and writes then fails with `SQLITE_BUSY` when somebody else has written in
/// between, and no waiting helps (`SQLITE_BUSY_SNAPSHOT`). With the check as its first statement it can't; nor with
/// `BEGIN IMMEDIATE`. Rows are as durable as the database is: `PRAGMA synchronous` must be `FULL` or `EXTRA`.
pub const SQLITE: Statements = Statements {
    table: "CREATE TABLE IF NOT EXISTS leasehold_fence (
    resource TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL CHECK (typeof(epoch) = 'integer' AND epoch BETWEEN 0 AND 4294967295),
    token INTEGER NOT NULL CHECK (typeof(token) = 'integer' AND token >= 0)
)",
    check: "INSERT INTO leasehold_fence (resource, epoch, token) VALUES (?, ?, ?)
ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, token = excluded.token
WHERE (leasehold_fence.epoch, leasehold_fence.token) <= (excluded.epoch, excluded.token)",
    verdict: None,
    seen: "SELECT epoch, token FROM leasehold_fence WHERE resource = ?",
    advance: "INSERT INTO leasehold_fence (resource, epoch, token) VALUES (?, ?, 0)
ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, token = 0
WHERE leasehold_fence.epoch < excluded.epoch",
};

/// The statements for PostgreSQL.
///
/// At READ COMMITTED a check that waited goes on, and later statements see what was waited for. Above it fails with a
/// serialization failure whenever it waited, and the transaction has to be tried again. `synchronous_commit` must not be
/// `off`.
pub const POSTGRES: Statements = Statements {
    table: "CREATE TABLE IF NOT EXISTS leasehold_fence (
    resource text COLLATE \"C\" PRIMARY KEY,
    epoch bigint NOT NULL CHECK (epoch BETWEEN 0 AND 4294967295),
    token bigint NOT NULL CHECK (token >= 0)
)",
    check: "INSERT INTO leasehold_fence (resource, epoch, token) VALUES ($1, $2, $3)
ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, token = excluded.token
WHERE (leasehold_fence.epoch, leasehold_fence.token) <= (excluded.epoch, excluded.token)",
    verdict: None,
    seen: "SELECT epoch, token FROM leasehold_fence WHERE resource = $1",
    advance: "INSERT INTO leasehold_fence (resource, epoch, token) VALUES ($1, $2, 0)
ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch, token = 0
WHERE leasehold_fence.epoch < excluded.epoch",
};

/// The statements for MySQL 8.0, MariaDB 10.6 and newer.
///
/// How many rows are affected depends on the connection (`CLIENT_FOUND_ROWS`), and a holder that shows the same mark again
/// changes none. The verdict reads the row that the check has locked, as it is and not as the transaction's snapshot has
/// it. A resource's name is compared by its bytes in UTF-8, whatever the connection's character set.
///
/// Above READ COMMITTED a transaction reads as of its first plain `SELECT`: that must not come before the check, and the
/// transaction not begin `WITH CONSISTENT SNAPSHOT`. A statement that ends a deadlock, and one that commits by itself, such as
/// any that makes or changes a table, ends the transaction, and what follows isn't fenced.
/// `innodb_flush_log_at_trx_commit` must be 1, and `sync_binlog` too where there is a binary log.
pub const MYSQL: Statements = Statements {
    table: "CREATE TABLE IF NOT EXISTS leasehold_fence (
    resource VARBINARY(200) NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL CHECK (epoch BETWEEN 0 AND 4294967295),
    token BIGINT NOT NULL CHECK (token >= 0)
) ENGINE=InnoDB",
    // The token before the epoch: what is assigned first is what the next expression reads.
    check: "INSERT INTO leasehold_fence (resource, epoch, token) VALUES (CONVERT(? USING utf8mb4), ?, ?)
ON DUPLICATE KEY UPDATE
    token = IF((epoch, token) < (VALUES(epoch), VALUES(token)), VALUES(token), token),
    epoch = GREATEST(epoch, VALUES(epoch))",
    verdict: Some(
        "SELECT epoch, token FROM leasehold_fence WHERE resource = CONVERT(? USING utf8mb4) FOR UPDATE",
    ),
    seen: "SELECT epoch, token FROM leasehold_fence WHERE resource = CONVERT(? USING utf8mb4)",
    advance: "INSERT INTO leasehold_fence (resource, epoch, token) VALUES (CONVERT(? USING utf8mb4), ?, 0)
ON DUPLICATE KEY UPDATE
    token = IF(epoch < VALUES(epoch), 0, token),
    epoch = GREATEST(epoch, VALUES(epoch))",
};

/// A mark as the statements' parameters.
///
/// # Errors
/// `Unsupported` for a token above 9223372036854775807, where SQL's integers end. No store of leasehold gives one.
pub fn parameters(mark: Mark) -> Result<(i64, i64)> {
    let token = mark.token();
    let number = i64::try_from(token.get()).map_err(|_| {
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "the token {token} is above {}, where SQL's integers end",
                i64::MAX
            ),
        )
    })?;
    Ok((i64::from(mark.epoch()), number))
}

/// What the columns say.
///
/// # Errors
/// `Unsupported` for numbers that no mark has: somebody else has written to the table.
pub fn seen(epoch: i64, token: i64) -> Result<Seen> {
    let read = |epoch, token| Some((u32::try_from(epoch).ok()?, u64::try_from(token).ok()?));
    let (known, number) = read(epoch, token).ok_or_else(|| {
        let what =
            format!("the table {TABLE} has epoch {epoch} and token {token}, which is no mark");
        Error::new(ErrorKind::Unsupported, what)
    })?;
    Ok(Seen::new(known, Token::new(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_sql_cannot_hold_is_refused_and_never_wrapped() {
        let mark = |text: &str| text.parse::<Mark>().unwrap();
        let most = parameters(mark("4294967295.9223372036854775807")).unwrap();
        assert_eq!(most, (4_294_967_295, i64::MAX));
        for text in ["9223372036854775808", "18446744073709551615"] {
            let error = parameters(mark(text)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn columns_that_are_no_mark_are_an_error() {
        assert_eq!(seen(0, 0).unwrap(), Seen::default());
        assert_eq!(seen(3, 0).unwrap(), Seen::new(3, None));
        assert_eq!(seen(3, 41).unwrap(), Seen::new(3, Token::new(41)));
        for (epoch, token) in [(-1, 1), (4_294_967_296, 1), (0, -1)] {
            assert_eq!(
                seen(epoch, token).unwrap_err().kind(),
                ErrorKind::Unsupported
            );
        }
    }
}

//! The statements for the caller's own transaction, for any language that can send SQL.
//!
//! One row for each key keeps the newest attempt: its mark, how it stands with it, when it started and ended, and its
//! result. Times are milliseconds since 1970 by the database's clock, spans are milliseconds.
//!
//! 1. [`begin`](Statements::begin). One row affected: this is the first; work. None: [`read`](Statements::read) says
//!    why. The row is locked until the transaction ends.
//! 2. [`finish`](Statements::finish), with the result. One row affected: recorded, with the commit. None: a newer attempt
//!    has taken over; roll back.
//!
//! Work on the same database belongs between the two in one transaction: then a repeat waits for the first one, and a
//! crash takes back all of it. For other work `begin` and `finish` have a transaction each, and a lock keeps attempts
//! apart.

/// The table that keeps the records, in every database.
pub const TABLE: &str = "leasehold_once";

/// The statements for one kind of database, each with its parameters in the order they are named.
///
/// Epoch and token are as for a fence: the token is the hold's, and the epoch is 0 unless one was begun.
#[derive(Clone, Copy, Debug)]
pub struct Statements {
    /// Makes the table where there is none. No parameters.
    pub table: &'static str,
    /// Makes the index that [`sweep`](Self::sweep) uses, where there is none. No parameters.
    pub index: &'static str,
    /// Makes a row that counts as none where there is none, and locks it: key. It comes before `begin`, where it is there.
    pub place: Option<&'static str>,
    /// Begins an attempt and locks its row: key, lock, epoch, token, the span after which the attempt is forgotten if it
    /// doesn't end (null: never), the age from which on a success no longer counts (null: it always does). Affects one
    /// row if it is the first.
    pub begin: &'static str,
    /// Records a success: result, the span after which it is forgotten (null: never), key, lock, epoch, token. Affects no row
    /// unless this attempt is the newest and still running.
    pub finish: &'static str,
    /// Records that an attempt failed, for showing: key, lock, epoch, token. A repeat needs it only with the same token.
    pub fail: &'static str,
    /// What is recorded, if it isn't forgotten: key. Answers key, lock, epoch, token, state, started, ended, expires, the
    /// clock's time, result.
    pub read: &'static str,
    /// As `read` without results, of all keys that begin with this: prefix.
    pub list: &'static str,
    /// Forgets a key: key.
    pub forget: &'static str,
    /// Deletes records whose time is over: the most of them.
    pub sweep: &'static str,
}

macro_rules! sqlite_now {
    () => {
        "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    };
}

/// The statements for SQLite 3.24 or newer. Its clock is that of the host, the only one that has the file.
///
/// A transaction begins with `begin`, or with `BEGIN IMMEDIATE`: one that reads first fails with `SQLITE_BUSY` when
/// somebody else has written in between. `PRAGMA synchronous` must be `FULL` or `EXTRA`.
pub const SQLITE: Statements = Statements {
    table: "CREATE TABLE IF NOT EXISTS leasehold_once (
    key TEXT NOT NULL PRIMARY KEY,
    lock_name TEXT NOT NULL,
    epoch INTEGER NOT NULL CHECK (typeof(epoch) = 'integer' AND epoch BETWEEN 0 AND 4294967295),
    token INTEGER NOT NULL CHECK (typeof(token) = 'integer' AND token > 0),
    state TEXT NOT NULL CHECK (state IN ('running', 'failed', 'done')),
    started INTEGER NOT NULL,
    ended INTEGER CHECK ((ended IS NULL) = (state = 'running')),
    result BLOB CHECK ((result IS NOT NULL) = (state = 'done')),
    expires INTEGER CHECK (typeof(expires) IN ('integer', 'null'))
)",
    index: "CREATE INDEX IF NOT EXISTS leasehold_once_expires ON leasehold_once (expires) WHERE expires IS NOT NULL",
    place: None,
    begin: concat!(
        "INSERT INTO leasehold_once (key, lock_name, epoch, token, state, started, expires)
VALUES (?, ?, ?, ?, 'running', ",
        sqlite_now!(),
        ", ",
        sqlite_now!(),
        " + ?)
ON CONFLICT (key) DO UPDATE SET lock_name = excluded.lock_name, epoch = excluded.epoch, token = excluded.token, state = 'running',
    started = excluded.started, ended = NULL, result = NULL, expires = excluded.expires
WHERE leasehold_once.expires <= excluded.started
    OR leasehold_once.lock_name = excluded.lock_name
    AND (leasehold_once.state <> 'done' OR leasehold_once.started <= excluded.started - ?)
    AND ((leasehold_once.epoch, leasehold_once.token) < (excluded.epoch, excluded.token)
        OR leasehold_once.state <> 'running'
        AND (leasehold_once.epoch, leasehold_once.token) = (excluded.epoch, excluded.token))"
    ),
    finish: concat!(
        "UPDATE leasehold_once SET state = 'done', ended = ",
        sqlite_now!(),
        ", result = ?, expires = ",
        sqlite_now!(),
        " + ?
WHERE key = ? AND lock_name = ? AND epoch = ? AND token = ? AND state = 'running'"
    ),
    fail: concat!(
        "UPDATE leasehold_once SET state = 'failed', ended = ",
        sqlite_now!(),
        "
WHERE key = ? AND lock_name = ? AND epoch = ? AND token = ? AND state = 'running'"
    ),
    read: concat!(
        "SELECT key, lock_name, epoch, token, state, started, ended, expires, ",
        sqlite_now!(),
        ", result
FROM leasehold_once WHERE key = ? AND (expires IS NULL OR expires > ",
        sqlite_now!(),
        ")"
    ),
    list: concat!(
        "SELECT key, lock_name, epoch, token, state, started, ended, expires, ",
        sqlite_now!(),
        ", NULL
FROM leasehold_once WHERE instr(key, ?) = 1 AND (expires IS NULL OR expires > ",
        sqlite_now!(),
        ")
ORDER BY key"
    ),
    forget: "DELETE FROM leasehold_once WHERE key = ?",
    sweep: concat!(
        "DELETE FROM leasehold_once WHERE key IN (
    SELECT key FROM leasehold_once WHERE expires <= ",
        sqlite_now!(),
        " LIMIT ?)"
    ),
};

// Not the transaction's time, which is from before the wait for the row.
macro_rules! postgres_now {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}

/// The statements for PostgreSQL 11 or newer.
///
/// At READ COMMITTED a `begin` that waited goes on, and sees what it waited for. Above it fails with a serialization
/// failure whenever it waited, and the transaction has to be tried again. `synchronous_commit` must not be `off`.
pub const POSTGRES: Statements = Statements {
    table: "CREATE TABLE IF NOT EXISTS leasehold_once (
    key text COLLATE \"C\" PRIMARY KEY,
    lock_name text COLLATE \"C\" NOT NULL,
    epoch bigint NOT NULL CHECK (epoch BETWEEN 0 AND 4294967295),
    token bigint NOT NULL CHECK (token > 0),
    state text NOT NULL CHECK (state IN ('running', 'failed', 'done')),
    started bigint NOT NULL,
    ended bigint CHECK ((ended IS NULL) = (state = 'running')),
    result bytea CHECK ((result IS NOT NULL) = (state = 'done')),
    expires bigint
)",
    index: "CREATE INDEX IF NOT EXISTS leasehold_once_expires ON leasehold_once (expires) WHERE expires IS NOT NULL",
    place: None,
    begin: concat!(
        "INSERT INTO leasehold_once (key, lock_name, epoch, token, state, started, expires)
VALUES ($1, $2, $3, $4, 'running', ",
        postgres_now!(),
        ", ",
        postgres_now!(),
        " + $5)
ON CONFLICT (key) DO UPDATE SET lock_name = excluded.lock_name, epoch = excluded.epoch, token = excluded.token, state = 'running',
    started = ",
        postgres_now!(),
        ", ended = NULL, result = NULL, expires = ",
        postgres_now!(),
        " + $5
WHERE leasehold_once.expires <= ",
        postgres_now!(),
        "
    OR leasehold_once.lock_name = excluded.lock_name
    AND (leasehold_once.state <> 'done' OR leasehold_once.started <= ",
        postgres_now!(),
        " - $6)
    AND ((leasehold_once.epoch, leasehold_once.token) < (excluded.epoch, excluded.token)
        OR leasehold_once.state <> 'running'
        AND (leasehold_once.epoch, leasehold_once.token) = (excluded.epoch, excluded.token))"
    ),
    finish: concat!(
        "UPDATE leasehold_once SET state = 'done', ended = ",
        postgres_now!(),
        ", result = $1, expires = ",
        postgres_now!(),
        " + $2
WHERE key = $3 AND lock_name = $4 AND epoch = $5 AND token = $6 AND state = 'running'"
    ),
    fail: concat!(
        "UPDATE leasehold_once SET state = 'failed', ended = ",
        postgres_now!(),
        "
WHERE key = $1 AND lock_name = $2 AND epoch = $3 AND token = $4 AND state = 'running'"
    ),
    read: concat!(
        "SELECT key, lock_name, epoch, token, state, started, ended, expires, ",
        postgres_now!(),
        ", result
FROM leasehold_once WHERE key = $1 AND (expires IS NULL OR expires > ",
        postgres_now!(),
        ")"
    ),
    list: concat!(
        "SELECT key, lock_name, epoch, token, state, started, ended, expires, ",
        postgres_now!(),
        ", NULL::bytea
FROM leasehold_once WHERE starts_with(key, $1) AND (expires IS NULL OR expires > ",
        postgres_now!(),
        ")
ORDER BY key"
    ),
    forget: "DELETE FROM leasehold_once WHERE key = $1",
    // Once, before the deleting, and of rows that nobody is at: it waits for no transaction.
    sweep: "DELETE FROM leasehold_once WHERE key = ANY (ARRAY(
    SELECT key FROM leasehold_once WHERE expires <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint
    LIMIT $1 FOR UPDATE SKIP LOCKED))",
};

// Not `NOW`, which has an hour twice where the session's time zone ends its summer.
macro_rules! mysql_now {
    () => {
        "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000)"
    };
}

macro_rules! mysql_text {
    () => {
        "CONVERT(? USING utf8mb4)"
    };
}

#[cfg(feature = "mysql")]
pub(crate) use {mysql_now, mysql_text};

/// The statements for MySQL 8.0, MariaDB 10.6 and newer.
///
/// Two of them ask for their parameters in another order, as no parameter can be used twice:
/// - `place`: key.
/// - `begin`: lock, epoch, token, the span after which the attempt is forgotten, key, lock, the age from which on a
///   success no longer counts, epoch, token, epoch, token.
///
/// Keys and locks are compared by their bytes in UTF-8, whatever the connection's character set. Above READ COMMITTED,
/// `read` after a `begin` that was refused needs `FOR UPDATE` at its end, as it would else read as of the transaction's
/// first plain `SELECT`. After an error write nothing: of some the server has rolled back the whole transaction, and takes
/// what comes next by itself. `innodb_flush_log_at_trx_commit` must be 1, and `sync_binlog` too where there is a binary
/// log.
pub const MYSQL: Statements = Statements {
    table: "CREATE TABLE IF NOT EXISTS leasehold_once (
    `key` VARBINARY(200) NOT NULL PRIMARY KEY,
    lock_name VARBINARY(200) NOT NULL,
    epoch BIGINT NOT NULL CHECK (epoch BETWEEN 0 AND 4294967295),
    token BIGINT NOT NULL CHECK (token >= 0),
    state VARCHAR(7) CHARACTER SET ascii COLLATE ascii_bin NOT NULL CHECK (state IN ('running', 'failed', 'done')),
    started BIGINT NOT NULL,
    ended BIGINT,
    result LONGBLOB,
    expires BIGINT,
    KEY leasehold_once_expires (expires)
) ENGINE=InnoDB",
    index: "",
    place: Some(concat!(
        "INSERT INTO leasehold_once (`key`, lock_name, epoch, token, state, started, ended, expires)
VALUES (",
        mysql_text!(),
        ", '', 0, 0, 'failed', 0, 0, 0)
ON DUPLICATE KEY UPDATE `key` = `key`"
    )),
    begin: concat!(
        "UPDATE leasehold_once SET lock_name = ",
        mysql_text!(),
        ", epoch = ?, token = ?, state = 'running', started = ",
        mysql_now!(),
        ", ended = NULL, result = NULL, expires = ",
        mysql_now!(),
        " + ?
WHERE `key` = ",
        mysql_text!(),
        " AND (expires <= ",
        mysql_now!(),
        "
    OR lock_name = ",
        mysql_text!(),
        "
    AND (state <> 'done' OR started <= ",
        mysql_now!(),
        " - ?)
    AND ((epoch, token) < (?, ?) OR state <> 'running' AND (epoch, token) = (?, ?)))"
    ),
    finish: concat!(
        "UPDATE leasehold_once SET state = 'done', ended = ",
        mysql_now!(),
        ", result = ?, expires = ",
        mysql_now!(),
        " + ?
WHERE `key` = ",
        mysql_text!(),
        " AND lock_name = ",
        mysql_text!(),
        " AND epoch = ? AND token = ? AND state = 'running'"
    ),
    fail: concat!(
        "UPDATE leasehold_once SET state = 'failed', ended = ",
        mysql_now!(),
        "
WHERE `key` = ",
        mysql_text!(),
        " AND lock_name = ",
        mysql_text!(),
        " AND epoch = ? AND token = ? AND state = 'running'"
    ),
    read: concat!(
        "SELECT `key`, lock_name, epoch, token, state, started, ended, expires, ",
        mysql_now!(),
        ", result
FROM leasehold_once WHERE `key` = ",
        mysql_text!(),
        " AND (expires IS NULL OR expires > ",
        mysql_now!(),
        ")"
    ),
    list: concat!(
        "SELECT `key`, lock_name, epoch, token, state, started, ended, expires, ",
        mysql_now!(),
        ", NULL
FROM leasehold_once WHERE LOCATE(CAST(",
        mysql_text!(),
        " AS BINARY), `key`) = 1 AND (expires IS NULL OR expires > ",
        mysql_now!(),
        ")
ORDER BY `key`"
    ),
    forget: concat!(
        "DELETE FROM leasehold_once WHERE `key` = ",
        mysql_text!()
    ),
    sweep: concat!(
        "DELETE FROM leasehold_once WHERE expires <= ",
        mysql_now!(),
        " ORDER BY expires LIMIT ?"
    ),
};

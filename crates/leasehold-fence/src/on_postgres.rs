//! What the adapters of PostgreSQL's drivers have in common.

use std::sync::LazyLock;

use leasehold_core::ErrorKind;

use crate::sql::POSTGRES;

/// Put behind a statement that changes a row, it has the transaction wait for the disk, whatever the session is set to.
/// The statement answers a row for each that it changed.
pub const DURABLE: &str = "RETURNING set_config('synchronous_commit', \
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)";

/// Answers a row where the table is there.
pub(crate) const THERE: &str = "SELECT 1 WHERE to_regclass('leasehold_fence') IS NOT NULL";

/// Answers a row where the mark is accepted.
pub(crate) static CHECK: LazyLock<String> =
    LazyLock::new(|| format!("{}\n{DURABLE}", POSTGRES.check));
pub(crate) static ADVANCE: LazyLock<String> =
    LazyLock::new(|| format!("{}\n{DURABLE}", POSTGRES.advance));

/// The code of a table that isn't there.
pub(crate) const NO_TABLE: &str = "42P01";

/// What a code means for who makes the table; as [`meaning`].
pub(crate) fn meaning_for_maker(code: &str) -> (ErrorKind, &'static str) {
    match code {
        "42501" => (
            ErrorKind::Unauthorized,
            "the role may not make the table leasehold_fence; let one that may run \
             `leasehold schema postgres fence --role ROLE | psql` in this database",
        ),
        code => meaning(code),
    }
}

/// What a code means for us; that of an error which isn't the server's is empty.
pub(crate) fn meaning(code: &str) -> (ErrorKind, &'static str) {
    match code {
        "40001" | "40P01" => (
            ErrorKind::Unavailable,
            "another fenced transaction came before this one, which has to be tried again as a whole; at READ \
             COMMITTED, and with the check first, it would have waited",
        ),
        NO_TABLE => (
            ErrorKind::Invalid,
            "the database has no table leasehold_fence; make it once with prepare, or by \
             `leasehold schema postgres fence | psql`",
        ),
        "42501" => (
            ErrorKind::Unauthorized,
            "the role lacks a right: it needs SELECT, INSERT and UPDATE on the table leasehold_fence, which \
             `leasehold schema postgres fence --role ROLE | psql` grants",
        ),
        "23514" => (
            ErrorKind::Invalid,
            "the table leasehold_fence refuses the mark",
        ),
        "25006" => (
            ErrorKind::Unavailable,
            "the server or the transaction is read-only",
        ),
        _ => (
            ErrorKind::Unavailable,
            "PostgreSQL gave no answer, or refused the statement",
        ),
    }
}

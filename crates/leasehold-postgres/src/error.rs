//! From PostgreSQL's errors to ours, and what each means for a statement.

use leasehold_core::{Error, ErrorKind};
use tokio_postgres::error::{DbError, SqlState};

/// A statement that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No answer in time: it may take effect, now or later, but before whatever is sent after it on its connection.
    Unanswered(Error),
    /// The connection is gone, and with it the session: at once, or when the server notices.
    Closed(Error),
    /// There is no table yet.
    NoTable,
    /// The server refused it. A lock that it took before stays taken.
    Refused(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unanswered(error) | Failure::Closed(error) | Failure::Refused(error) => error,
            Failure::NoTable => Self::new(
                ErrorKind::Unavailable,
                "the table leasehold.locks is gone as soon as it is made",
            ),
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(said) = error.as_db_error() {
            return refused(said);
        }
        let text = if error.is_closed() {
            "the connection to the server is gone"
        } else {
            "the server can't be reached"
        };
        Self::Closed(Error::new(ErrorKind::Unavailable, text).because(shown(&error)))
    }
}

/// An error's text with its causes, none of which has a password in it.
fn shown(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// What the server said no to.
fn refused(said: &DbError) -> Failure {
    let code = said.code();
    if [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code) {
        return Failure::NoTable;
    }
    let (kind, text) = meaning(code);
    let error = Error::new(kind, text).because(format!("{} ({})", said.message(), code.code()));
    let ended = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    let fatal = matches!(said.severity(), "FATAL" | "PANIC");
    if fatal || ended.contains(code) {
        Failure::Closed(error)
    } else {
        Failure::Refused(error)
    }
}

/// What a code means for us.
fn meaning(code: &SqlState) -> (ErrorKind, &'static str) {
    use ErrorKind::{Invalid, Unauthorized, Unavailable, Unsupported};
    let text = code.code();
    match text {
        "28000" | "28P01" => (
            Unauthorized,
            "the server refuses this user; are user and password right, and does pg_hba.conf let him in?",
        ),
        "42501" => (
            Unauthorized,
            "this role may not do that: it needs USAGE on the schema leasehold and SELECT, INSERT and UPDATE on \
             leasehold.locks, which `leasehold schema postgres | psql` makes",
        ),
        "3D000" => (Invalid, "the server has no such database"),
        "25006" => (Unavailable, "the server takes no writes; is it a standby?"),
        "40P01" => (
            Unavailable,
            "the server found a deadlock and chose this wait to end it; take locks in one order everywhere",
        ),
        "53300" => (
            Unavailable,
            "the server has no connection left; raise max_connections",
        ),
        "53200" => (
            Unavailable,
            "the server's lock table is full; raise max_locks_per_transaction",
        ),
        "57014" => (
            Unavailable,
            "the server ended the statement, as it took too long or somebody cancelled it",
        ),
        "57P01" | "57P02" | "57P03" | "57P05" => (Unavailable, "the server ended the session"),
        "08P01" => (
            Unsupported,
            "the server or a pooler before it doesn't speak PostgreSQL as it should",
        ),
        // Serialization, resources, operators, the system, and connections.
        _ if ["08", "40", "53", "57", "58"]
            .iter()
            .any(|class| text.starts_with(class)) =>
        {
            (Unavailable, "the server can't do it now")
        }
        _ => (Unsupported, "the server refused the statement"),
    }
}

/// The error of a statement without an answer.
pub(crate) fn unanswered() -> Failure {
    Failure::Unanswered(Error::new(
        ErrorKind::Ambiguous,
        "the server gave no answer in time",
    ))
}

/// An answer that can't be.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(
        ErrorKind::Bug,
        format!("the server's answer lacks {what}; is it PostgreSQL?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_code_means_is_said() {
        for (code, kind) in [
            ("28P01", ErrorKind::Unauthorized),
            ("3D000", ErrorKind::Invalid),
            ("40P01", ErrorKind::Unavailable),
            ("40001", ErrorKind::Unavailable),
            ("57P03", ErrorKind::Unavailable),
            ("42804", ErrorKind::Unsupported),
        ] {
            assert_eq!(meaning(&SqlState::from_code(code)).0, kind, "{code}");
        }
    }
}

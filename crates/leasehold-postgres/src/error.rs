//! From PostgreSQL's errors to ours, and what each means for a statement.

use leasehold_core::advisory::Failure;
use leasehold_core::{Error, ErrorKind};

/// What became of a statement that this driver says failed.
pub(crate) fn failed(error: tokio_postgres::Error) -> Failure {
    if let Some(said) = error.as_db_error() {
        let fatal = matches!(said.severity(), "FATAL" | "PANIC");
        return refused(said.code().code(), said.message(), fatal);
    }
    let because = shown(&error);
    // The driver has no other sign of it.
    let (kind, text) = if because.contains("password missing") {
        (
            ErrorKind::Unauthorized,
            "the server asks for a password, and none was found in the URL, PGPASSWORD, PGPASSFILE or ~/.pgpass",
        )
    } else if error.is_closed() {
        (
            ErrorKind::Unavailable,
            "the connection to the server is gone",
        )
    } else {
        (ErrorKind::Unavailable, "the server can't be reached")
    };
    Failure::Closed(Error::new(kind, text).because(because))
}

/// What became of a statement that sqlx says failed.
#[cfg(feature = "sqlx")]
pub(crate) fn failed_in_sqlx(error: sqlx::Error) -> Failure {
    use sqlx::postgres::{PgDatabaseError, PgSeverity};
    let said = error.as_database_error();
    match said.and_then(|said| said.try_downcast_ref::<PgDatabaseError>()) {
        Some(said) => {
            let fatal = matches!(said.severity(), PgSeverity::Fatal | PgSeverity::Panic);
            refused(said.code(), said.message(), fatal)
        }
        None => Failure::Closed(
            Error::new(ErrorKind::Unavailable, "the server can't be reached").because(error),
        ),
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
fn refused(code: &str, message: &str, fatal: bool) -> Failure {
    if ["42P01", "3F000"].contains(&code) {
        return Failure::NoTable;
    }
    let (kind, text) = meaning(code);
    let error = Error::new(kind, text).because(format!("{message} ({code})"));
    // The last is of a transaction in which nothing was said for too long.
    let ended = ["57P01", "57P02", "57P03", "25P03"];
    if fatal || ended.contains(&code) {
        Failure::Closed(error)
    } else if code == "55P03" {
        Failure::NotInTime(error)
    } else {
        Failure::Refused(error)
    }
}

/// What a code means for us.
fn meaning(code: &str) -> (ErrorKind, &'static str) {
    use ErrorKind::{Invalid, Unauthorized, Unavailable, Unsupported};
    match code {
        "28000" | "28P01" => (
            Unauthorized,
            "the server refuses this user; are user and password right, and does pg_hba.conf let him in?",
        ),
        "42501" => (
            Unauthorized,
            "this role may not do that: it needs USAGE on the schema leasehold and SELECT, INSERT and UPDATE on \
             leasehold.locks; `leasehold schema postgres --role ROLE | psql` makes the table and grants them",
        ),
        "3D000" => (Invalid, "the server has no such database"),
        "25006" => (Unavailable, "the server takes no writes; is it a standby?"),
        // What our statements inside transactions come to on purpose.
        "22P02" => (
            Invalid,
            "a lock inside a transaction takes one that is READ COMMITTED, on the primary: what others see is older than \
             the lock",
        ),
        "25P02" => (
            Invalid,
            "the transaction is aborted by an earlier error; end it",
        ),
        "55P03" => (
            Unavailable,
            "the wait for the lock took longer than the transaction's lock_timeout",
        ),
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
            .any(|class| code.starts_with(class)) =>
        {
            (Unavailable, "the server can't do it now")
        }
        _ => (Unsupported, "the server refused the statement"),
    }
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
            assert_eq!(meaning(code).0, kind, "{code}");
        }
    }
}

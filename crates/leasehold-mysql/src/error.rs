//! From the server's errors to ours, and what each means for a statement.

use leasehold_core::advisory::Failure;
use leasehold_core::{Error, ErrorKind};
use mysql_async::{DriverError, IoError, ServerError};

/// A deadlock of rows or of the table.
const DEADLOCK: u16 = 1213;

/// What became of a statement that the driver says failed.
pub(crate) fn failure(error: mysql_async::Error) -> Failure {
    match error {
        mysql_async::Error::Server(said) => refused(&said),
        other => Failure::Closed(failed(&other)),
    }
}

/// The error of a connection that isn't there, or not any more.
pub(crate) fn failed(error: &mysql_async::Error) -> Error {
    use mysql_async::Error::{Driver, Io, Server};
    let (kind, text) = match error {
        Server(said) => meaning(said.code),
        Driver(DriverError::NoClientSslFlagFromServer) => (
            ErrorKind::Unavailable,
            "the server speaks no TLS; write ssl-mode=DISABLED where the way to it is safe",
        ),
        Driver(DriverError::ConnectionClosed) => (
            ErrorKind::Unavailable,
            "the connection to the server is gone",
        ),
        Driver(DriverError::UnknownAuthPlugin { .. } | DriverError::CleartextPluginDisabled) => (
            ErrorKind::Unauthorized,
            "the server asks this user for more than a password, as it does of some that it doesn't know",
        ),
        Io(error) if is_tls(error) => (
            ErrorKind::Unavailable,
            "no TLS comes about; is the server's certificate for this host and by a CA that is trusted?",
        ),
        Io(_) => (
            ErrorKind::Unavailable,
            "the server can't be reached, or went away",
        ),
        _ => (ErrorKind::Unsupported, "the server's answer can't be read"),
    };
    Error::new(kind, text).because(shown(error))
}

fn is_tls(error: &IoError) -> bool {
    match error {
        IoError::Tls(_) => true,
        // Of a handshake that fails.
        IoError::Io(error) => error
            .get_ref()
            .is_some_and(|error| error.is::<rustls::Error>()),
    }
}

/// An error's text with its causes, none of which has a password in it.
fn shown(error: &mysql_async::Error) -> String {
    // Twice the driver says of it no more than that it is one of input or output.
    let error: &(dyn std::error::Error + 'static) = match error {
        mysql_async::Error::Io(IoError::Io(error)) => error,
        mysql_async::Error::Io(IoError::Tls(error)) => error,
        other => other,
    };
    let mut text = error.to_string();
    let mut cause = error.source();
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
fn refused(said: &ServerError) -> Failure {
    // There is no database, or no table in it.
    if [1049, 1146].contains(&said.code) {
        return Failure::NoTable;
    }
    let (kind, text) = meaning(said.code);
    let error = Error::new(kind, text).because(format!("{} ({})", said.message, said.code));
    // Statements of others that stand alone can make one, too.
    if said.code == DEADLOCK {
        return Failure::Undone(error);
    }
    // It shuts down, has killed the session, or was told nothing for too long.
    if [1053, 1152, 1184, 1927, 4031].contains(&said.code) {
        Failure::Closed(error)
    } else {
        Failure::Refused(error)
    }
}

/// What a code means for us.
fn meaning(code: u16) -> (ErrorKind, &'static str) {
    use ErrorKind::{Invalid, Unauthorized, Unavailable, Unsupported};
    match code {
        1045 | 1130 | 1698 | 1820 | 1862 | 3118 | 3955 | 4151 => (
            Unauthorized,
            "the server refuses this user; are user and password right, and may he come from here?",
        ),
        1044 => (
            Unauthorized,
            "this user has no right in that database; for locks, whose table is leasehold.locks, \
             `leasehold schema mysql --role USER | mysql` makes it and grants what is needed, and in the database of a fence \
             or of records `leasehold schema mysql fence|once --role USER | mysql DATABASE` does",
        ),
        1142 | 1143 | 1227 => (
            Unauthorized,
            "this user may not do that: he needs SELECT, INSERT and UPDATE on leasehold.locks; \
             `leasehold schema mysql --role USER | mysql` makes the table and grants them",
        ),
        1049 => (Invalid, "the server has no such database"),
        1290 | 1792 | 1836 => (Unavailable, "the server takes no writes; is it a replica?"),
        DEADLOCK => (
            Unavailable,
            "the server undid this again and again because of deadlocks; who writes to leasehold.locks by hand?",
        ),
        3058 => (
            Unavailable,
            "the server found a deadlock and chose this statement to end it; take locks in one order everywhere",
        ),
        1205 => (
            Unavailable,
            "somebody keeps the name's row in leasehold.locks locked; who writes to that table by hand?",
        ),
        1040 | 1203 | 1226 => (
            Unavailable,
            "the server has no connection left; raise max_connections or this user's limit",
        ),
        1317 | 1969 | 3024 => (
            Unavailable,
            "the server ended the statement, as it took too long or somebody killed it",
        ),
        1053 | 1152 | 1184 | 1927 | 4031 => (Unavailable, "the server ended the session"),
        1235 => (
            Unsupported,
            "the server gives no locks; is it a node of a Galera cluster?",
        ),
        1665 => (
            Unsupported,
            "binlog_format is STATEMENT, which can't carry what leasehold writes; set ROW or MIXED",
        ),
        1021 | 1037 | 1041 | 1114 | 1129 => (Unavailable, "the server can't do it now"),
        _ => (Unsupported, "the server refused the statement"),
    }
}

/// The error of a statement that there is no connection for any more.
pub(crate) fn closed() -> Failure {
    Failure::Closed(Error::new(
        ErrorKind::Unavailable,
        "the connection to the server is gone",
    ))
}

/// An answer that can't be.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(
        ErrorKind::Bug,
        format!("the server's answer lacks {what}; is it MySQL or MariaDB?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: u16) -> Failure {
        refused(&ServerError {
            code,
            message: "said".into(),
            state: "HY000".into(),
        })
    }

    #[test]
    fn why_a_server_is_not_reached_is_said_once() {
        let refused = std::io::Error::other("Connection refused");
        let text = failed(&mysql_async::Error::from(refused)).to_string();
        assert_eq!(
            text,
            "the server can't be reached, or went away: Connection refused"
        );
    }

    #[test]
    fn what_a_code_means_is_said() {
        for (code, kind) in [
            (1045, ErrorKind::Unauthorized),
            (3058, ErrorKind::Unavailable),
            (1665, ErrorKind::Unsupported),
            (1064, ErrorKind::Unsupported),
        ] {
            let Failure::Refused(error) = said(code) else {
                panic!("{code} is no refusal");
            };
            assert_eq!(error.kind(), kind, "{code}");
        }
        assert!(matches!(said(1213), Failure::Undone(_)));
        assert!(matches!(said(1146), Failure::NoTable));
        assert!(matches!(said(1049), Failure::NoTable));
        assert!(matches!(said(4031), Failure::Closed(_)));
        assert!(matches!(said(1927), Failure::Closed(_)));
    }
}

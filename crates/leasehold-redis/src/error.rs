//! From the driver's errors to ours.

use leasehold_core::{Error, ErrorKind};
use redis::{ErrorKind as Kind, RedisError, ServerErrorKind};

const LACKS_RIGHT: &str =
    "the user lacks a right; leasehold-redis's README has the access rule it needs";

pub(crate) const OF_A_CLUSTER: &str =
    "the server is a node of a cluster; write redis+cluster:// for redis://";
pub(crate) const A_SENTINEL: &str =
    "the server is a sentinel; write redis+sentinel://…?master=NAME for redis://";

/// An error of a request that was sent: without an answer it may have taken effect.
pub(crate) fn sent(error: RedisError) -> Error {
    if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
        return Error::new(
            ErrorKind::Ambiguous,
            "the connection to the server broke before it answered",
        )
        .because(text(&error));
    }
    answered(&error)
}

/// An error while connecting: nothing was sent.
pub(crate) fn connecting(error: RedisError) -> Error {
    if certificate_refused(&error) {
        return Error::new(
            ErrorKind::Unavailable,
            "the server's certificate isn't trusted; name its CA with ?ca-file=…, and the host as the certificate \
             does",
        )
        .because(text(&error));
    }
    if speaks_no_tls(&error) {
        return Error::new(
            ErrorKind::Invalid,
            "the server doesn't speak TLS at this port; write redis:// for rediss://, or name its port for TLS",
        );
    }
    if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
        return Error::new(
            ErrorKind::Unavailable,
            "the server can't be reached; is it running, and are its address and the scheme right (rediss:// or \
             redlocks:// where it speaks TLS, redis:// or redlock:// where it doesn't)?",
        )
        .because(text(&error));
    }
    if text(&error).contains("refused to switch database") {
        return no_such_database(&error);
    }
    answered(&error)
}

fn no_such_database(error: &RedisError) -> Error {
    if is_unknown_command(error) {
        return Error::new(
            ErrorKind::Invalid,
            "the server has no databases; leave the path out of the URL, and if it is a sentinel write \
             redis+sentinel://…?master=NAME",
        );
    }
    let text = text(error);
    if text.contains("out of range") {
        return Error::new(
            ErrorKind::Invalid,
            "the server has no database of this number; name a lower one in the URL's path, or raise the server's \
             setting `databases` (16 by default)",
        );
    }
    if text.contains("cluster mode") {
        return Error::new(ErrorKind::Invalid, OF_A_CLUSTER);
    }
    answered(error)
}

/// An error of a sentinel, which only answers questions.
pub(crate) fn asking_sentinel(error: RedisError) -> Error {
    if is_unknown_command(&error) {
        return Error::new(
            ErrorKind::Invalid,
            "a server that is named as a sentinel is none; write redis:// for redis+sentinel://, or name the \
             sentinels (port 26379 by default)",
        );
    }
    let error = connecting(error);
    let what = if error.kind() == ErrorKind::Unauthorized {
        "a sentinel refuses its user or password, or the right to SENTINEL MASTER; ?sentinel-user=… and \
         ?sentinel-password-file=… are for the sentinels"
    } else {
        "a sentinel can't be asked for the master"
    };
    Error::new(error.kind(), what).because(error)
}

/// An error of a node that is asked for the map of slots.
pub(crate) fn asking_cluster(error: RedisError) -> Error {
    if text(&error).contains("cluster support disabled") {
        return Error::new(
            ErrorKind::Invalid,
            "the server is no node of a cluster; write redis:// for redis+cluster://",
        );
    }
    if is_unknown_command(&error) {
        return Error::new(
            ErrorKind::Invalid,
            "the server is no node of a cluster; is it a sentinel? then write redis+sentinel://…?master=NAME",
        );
    }
    connecting(error)
}

/// Whether the server is of a kind that doesn't have the command at all.
fn is_unknown_command(error: &RedisError) -> bool {
    text(error).contains("unknown command")
}

/// Whether a replica refused to write. Older servers tell it of a script in the text alone.
pub(crate) fn is_read_only(error: &RedisError) -> bool {
    error.kind() == Kind::Server(ServerErrorKind::ReadOnly)
        || error.kind() == Kind::Server(ServerErrorKind::ResponseError)
            && text(error).contains("READONLY")
}

/// Whether it was this side that ended a TLS handshake. The driver hands the cause on as text alone.
fn certificate_refused(error: &RedisError) -> bool {
    error.is_io_error() && text(error).contains("invalid peer certificate")
}

/// Whether what came back was no TLS at all. Most servers without it say nothing, though.
fn speaks_no_tls(error: &RedisError) -> bool {
    error.is_io_error() && text(error).contains("InvalidContentType")
}

/// Whether a script was refused a command or a key; no code of its own tells that in older servers.
fn lacks_right(error: &RedisError) -> bool {
    let text = text(error);
    [
        "ACL failure in script",
        "can't run this command or subcommand",
        "can't access at least one of the keys",
    ]
    .iter()
    .any(|sign| text.contains(sign))
}

/// An error that the server answered.
fn answered(error: &RedisError) -> Error {
    let (kind, what) = match error.kind() {
        Kind::AuthenticationFailed => (
            ErrorKind::Unauthorized,
            "the server refuses the user or the password",
        ),
        Kind::Server(ServerErrorKind::NoPerm) => (ErrorKind::Unauthorized, LACKS_RIGHT),
        _ if lacks_right(error) => (ErrorKind::Unauthorized, LACKS_RIGHT),
        Kind::Server(ServerErrorKind::BusyLoading) => (
            ErrorKind::Unavailable,
            "the server is still loading its data",
        ),
        _ if is_read_only(error) => (
            ErrorKind::Unavailable,
            "the server is a read-only replica; locks need the master",
        ),
        Kind::Server(ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown) => {
            (ErrorKind::Unavailable, "the server has no master")
        }
        Kind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            (ErrorKind::Invalid, OF_A_CLUSTER)
        }
        Kind::Server(ServerErrorKind::TryAgain) => (
            ErrorKind::Unavailable,
            "the lock's keys are being moved to another node",
        ),
        Kind::InvalidClientConfig => (
            ErrorKind::Invalid,
            "the connection's settings can't be right",
        ),
        _ if text(error).contains("COUNTER is at its end") => (
            ErrorKind::Unsupported,
            "the lock's counter, leasehold:f:{…}, stands so high that it can't rise any more, so there is no token; \
             delete it, if whatever checks tokens may see lower ones again, or choose another name",
        ),
        _ if text(error).contains("WRONGTYPE") => (
            ErrorKind::Unsupported,
            "a key beside the lock's, leasehold:f:{…} and the like, holds something that isn't leasehold's; delete \
             it, or choose another name, or a prefix with ?prefix=…",
        ),
        _ => match error.code() {
            Some("NOAUTH" | "WRONGPASS") => (
                ErrorKind::Unauthorized,
                "the server wants a user and a password",
            ),
            Some("OOM" | "MISCONF" | "BUSY") => {
                (ErrorKind::Unavailable, "the server accepts no writes now")
            }
            _ => (ErrorKind::Unavailable, "the server refused the request"),
        },
    };
    Error::new(kind, what).because(text(error))
}

/// The driver's text. It never holds a password: the driver doesn't put one there, and a test looks.
fn text(error: &RedisError) -> String {
    error.to_string()
}

//! From ZooKeeper's codes to errors, and what each means for a request that writes.

use leasehold_core::{Error, ErrorKind};

/// A request that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No definite answer: it may take effect, now or later.
    Unanswered(Error),
    /// The session has ended, and with it all of its nodes.
    SessionOver,
    /// There is no such node.
    NoNode,
    /// It is there already.
    NodeExists,
    /// The server refused it: it has no effect.
    Refused(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let unavailable = |text: &str| Self::new(ErrorKind::Unavailable, text);
        match failure {
            Failure::Unanswered(error) | Failure::Refused(error) => error,
            Failure::SessionOver => unavailable("the session has ended"),
            Failure::NoNode => unavailable("a node that was to be there isn't"),
            Failure::NodeExists => unavailable("a node that wasn't to be there is"),
        }
    }
}

/// What a server's code means; none for success.
pub(crate) fn failure(code: i32) -> Option<Failure> {
    let refused = |kind, text: &str| Failure::Refused(Error::new(kind, text));
    Some(match code {
        0 => return None,
        -101 => Failure::NoNode,
        -110 => Failure::NodeExists,
        -112 => Failure::SessionOver,
        -102 | -114 | -115 => refused(
            ErrorKind::Unauthorized,
            "the node's access list refuses us; are user and password in the URL those of its maker?",
        ),
        -108 => refused(
            ErrorKind::Invalid,
            "the node of this name is another client's, and ephemeral: it can't be a lock",
        ),
        -6 => refused(
            ErrorKind::Unsupported,
            "the server doesn't know the request; leasehold needs ZooKeeper 3.6 or newer",
        ),
        -8 => refused(
            ErrorKind::Invalid,
            "the server takes this for no name of a node",
        ),
        -125 => refused(
            ErrorKind::Unavailable,
            "the quota of nodes or bytes is used up; see listquota in zkCli.sh",
        ),
        -127 => refused(ErrorKind::Unavailable, "the server is overloaded"),
        // Connection and session troubles among them, which say nothing about the request.
        _ => unanswered(&format!("the server answered with code {code}")),
    })
}

pub(crate) fn unanswered(what: &str) -> Failure {
    Failure::Unanswered(Error::new(
        ErrorKind::Ambiguous,
        format!("the server gave no definite answer: {what}"),
    ))
}

/// An answer that can't be.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(
        ErrorKind::Bug,
        format!("the server's answer lacks {what}; is it ZooKeeper?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_surely_refused_has_no_effect() {
        // Lost connections, timeouts, moved sessions, inner errors.
        for code in [-1, -2, -3, -4, -7, -118, -999] {
            let failure = failure(code);
            assert!(matches!(failure, Some(Failure::Unanswered(_))), "{code}");
        }
        for code in [-6, -8, -102, -108, -114, -115, -125, -127] {
            assert!(matches!(failure(code), Some(Failure::Refused(_))), "{code}");
        }
        assert!(failure(0).is_none());
    }
}

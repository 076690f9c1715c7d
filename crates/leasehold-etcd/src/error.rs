//! From gRPC's errors to ours, and what each means for a request that writes.

use std::error::Error as StdError;

use leasehold_core::{Error, ErrorKind};
use tonic::{Code, ConnectError, Status};

/// A request that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was sent.
    Unsent(Error),
    /// No definite answer: it may take effect, now or later.
    Unanswered(Error),
    /// The server refused it: it has no effect.
    Refused(Error),
    /// The server refused it because the lease that it names doesn't exist.
    LeaseGone,
    /// The server refused it because the token that stands for user and password doesn't count any more.
    TokenGone(Error),
}

impl Failure {
    /// Whether the request may still take effect.
    pub(crate) fn may_land(&self) -> bool {
        matches!(self, Self::Unanswered(_))
    }

    /// Whether another member may do better.
    pub(crate) fn is_of_the_member(&self) -> bool {
        matches!(self, Self::Unsent(_) | Self::Unanswered(_))
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsent(error)
            | Failure::Unanswered(error)
            | Failure::Refused(error)
            | Failure::TokenGone(error) => error,
            Failure::LeaseGone => Self::new(ErrorKind::Unavailable, "the lease has ended"),
        }
    }
}

/// What a status means for the request that got it.
pub(crate) fn failure(status: &Status) -> Failure {
    if let Some(error) = connecting(status) {
        return Failure::Unsent(error);
    }
    let text = status.message().to_owned();
    let error = |kind, what: &str| Error::new(kind, what).because(text.clone());
    match status.code() {
        Code::NotFound if text.contains("lease not found") => Failure::LeaseGone,
        // Old members say one thing and new ones the other.
        _ if text.contains("invalid auth token")
            || text.contains("revision of auth store is old") =>
        {
            Failure::TokenGone(error(
                ErrorKind::Unauthorized,
                "the server refuses the token it gave for the password",
            ))
        }
        Code::Unauthenticated | Code::PermissionDenied => Failure::Refused(error(
            ErrorKind::Unauthorized,
            "the user lacks a right; leasehold-etcd's README has the roles it needs",
        )),
        Code::InvalidArgument if text.contains("user name is empty") => Failure::Refused(error(
            ErrorKind::Unauthorized,
            "the server wants a user and a password",
        )),
        Code::InvalidArgument if text.contains("authentication failed") => Failure::Refused(error(
            ErrorKind::Unauthorized,
            "the server refuses the user or the password",
        )),
        Code::ResourceExhausted => Failure::Refused(error(
            ErrorKind::Unavailable,
            "the server accepts no writes now; is its space used up (etcdctl alarm list)?",
        )),
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => Failure::Refused(error(
            ErrorKind::Unavailable,
            "the server refused the request",
        )),
        // The server says so also of requests that it goes on working at.
        _ => Failure::Unanswered(error(
            ErrorKind::Ambiguous,
            "the server gave no definite answer",
        )),
    }
}

/// The error of a connection that could not be made.
fn connecting(status: &Status) -> Option<Error> {
    let mut cause: Option<&(dyn StdError + 'static)> = status.source();
    let mut connect = false;
    let mut text = String::new();
    while let Some(error) = cause {
        connect |= error.is::<ConnectError>();
        text = error.to_string();
        if text.contains("invalid peer certificate") {
            return Some(
                Error::new(
                    ErrorKind::Unavailable,
                    "the server's certificate isn't trusted; name its CA with ?ca-file=…, and the host as the \
                     certificate does",
                )
                .because(text),
            );
        }
        cause = error.source();
    }
    connect.then(|| unreachable(&text))
}

/// The error of a member that can't be reached.
pub(crate) fn unreachable(text: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "no server can be reached; is it running, and are host and port right?",
    )
    .because(text.to_owned())
}

/// An answer that can't be.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(
        ErrorKind::Bug,
        format!("the server's answer lacks {what}; is it etcd?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_surely_refused_has_no_effect() {
        for code in [
            Code::Unavailable,
            Code::DeadlineExceeded,
            Code::Cancelled,
            Code::Unknown,
            Code::Internal,
            Code::Aborted,
            Code::DataLoss,
        ] {
            assert!(failure(&Status::new(code, "x")).may_land(), "{code:?}");
        }
        for code in [
            Code::InvalidArgument,
            Code::PermissionDenied,
            Code::ResourceExhausted,
            Code::FailedPrecondition,
        ] {
            assert!(!failure(&Status::new(code, "x")).may_land(), "{code:?}");
        }
    }

    #[test]
    fn a_lease_that_is_gone_and_a_token_that_is_are_told_apart() {
        let lease = Status::new(Code::NotFound, "etcdserver: requested lease not found");
        assert!(matches!(failure(&lease), Failure::LeaseGone));
        let token = Status::new(Code::Unauthenticated, "etcdserver: invalid auth token");
        assert!(matches!(failure(&token), Failure::TokenGone(_)));
        let wrong = Status::new(
            Code::InvalidArgument,
            "etcdserver: authentication failed, invalid user ID or password",
        );
        let Failure::Refused(error) = failure(&wrong) else {
            panic!("a wrong password is a refusal");
        };
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
    }
}

//! From HTTP's errors to ours, and what each means for a request that writes.

use std::error::Error as StdError;

use http::StatusCode;
use leasehold_core::{Error, ErrorKind};

/// A request that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was sent.
    Unsent(Error),
    /// No definite answer: it may take effect, now or later.
    Unanswered(Error),
    /// It was refused: it has no effect.
    Refused(Error),
}

impl Failure {
    /// Whether the request may still take effect.
    pub(crate) fn may_land(&self) -> bool {
        matches!(self, Self::Unanswered(_))
    }

    /// Whether another agent may do better.
    pub(crate) fn is_of_the_agent(&self) -> bool {
        match self {
            Self::Unsent(_) | Self::Unanswered(_) => true,
            Self::Refused(error) => error.kind() == ErrorKind::Unavailable,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsent(error) | Failure::Unanswered(error) | Failure::Refused(error) => error,
        }
    }
}

/// What a status means that is neither a success nor an answer to what was asked.
pub(crate) fn failure(status: StatusCode, body: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(body);
    // Enough to recognise it; a page of a proxy's would be long.
    let text: String = text.trim().chars().take(200).collect();
    let error = |kind, what: &str| Error::new(kind, what).because(text.clone());
    match status {
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Failure::Refused(unauthorized(&text)),
        StatusCode::TOO_MANY_REQUESTS => Failure::Refused(error(
            ErrorKind::Unavailable,
            "the agent takes no more connections from this host; raise its limits.http_max_conns_per_client",
        )),
        _ if status.is_redirection() => Failure::Refused(error(
            ErrorKind::Unsupported,
            "the server sends us elsewhere, and a lock isn't taken elsewhere; name Consul's own address",
        )),
        _ if status.is_client_error() => Failure::Refused(error(
            ErrorKind::Unsupported,
            &format!("the server refused the request with {status}; is it Consul, 1.8 or newer?"),
        )),
        // Consul itself takes this error for one after which nothing can have changed.
        _ if text.contains("No cluster leader") => Failure::Refused(error(
            ErrorKind::Unavailable,
            "the cluster has no leader; are most of its servers up?",
        )),
        _ if text.contains("No path to datacenter") => Failure::Refused(error(
            ErrorKind::Unavailable,
            "the agent knows no way to that datacenter",
        )),
        // A server that has just started, or whose node was taken out of the catalog.
        _ if text.contains("Missing node registration") => Failure::Refused(error(
            ErrorKind::Unavailable,
            "the agent's node isn't in the catalog yet, and a session needs that",
        )),
        _ if text.contains("Invalid Session TTL") => Failure::Refused(error(
            ErrorKind::Invalid,
            "the TTL is out of the cluster's bounds (session_ttl_min)",
        )),
        // The server says so also of requests that it goes on working at.
        _ => Failure::Unanswered(error(
            ErrorKind::Ambiguous,
            "the server gave no definite answer",
        )),
    }
}

/// The error of a token that isn't enough.
pub(crate) fn unauthorized(text: &str) -> Error {
    Error::new(
        ErrorKind::Unauthorized,
        "the token is unknown or lacks a right; leasehold-consul's README has the policy it needs",
    )
    .because(text.to_owned())
}

/// What an error of the connection means.
pub(crate) fn broken(error: &hyper_util::client::legacy::Error) -> Failure {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    if !error.is_connect() {
        return Failure::Unanswered(
            Error::new(ErrorKind::Ambiguous, "the connection broke").because(text),
        );
    }
    if text.contains("InvalidContentType") {
        let what = "the server doesn't speak TLS at this port; its HTTPS port is often 8501, and consul:// is for the other";
        return Failure::Unsent(Error::new(ErrorKind::Unavailable, what).because(text));
    }
    Failure::Unsent(if text.contains("invalid peer certificate") {
        Error::new(
            ErrorKind::Unavailable,
            "the server's certificate isn't trusted; name its CA with ?ca-file=…, and the host as the certificate does",
        )
        .because(text)
    } else {
        Error::new(
            ErrorKind::Unavailable,
            "no server can be reached; is it running, and are host and port right?",
        )
        .because(text)
    })
}

/// An answer that can't be.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(
        ErrorKind::Bug,
        format!("the server's answer lacks {what}; is it Consul?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_surely_refused_has_no_effect() {
        for (status, body) in [
            (500, "rpc error making call: EOF"),
            (500, "leadership lost while committing log"),
            (502, ""),
            (504, "gateway timeout"),
        ] {
            let failure = failure(StatusCode::from_u16(status).unwrap(), body.as_bytes());
            assert!(failure.may_land(), "{status} {body}");
        }
        for (status, body, kind) in [
            (500, "No cluster leader", ErrorKind::Unavailable),
            (
                500,
                "rpc error making call: Invalid Session TTL '1', must be between [10s=24h0m0s]",
                ErrorKind::Invalid,
            ),
            (500, "Missing node registration", ErrorKind::Unavailable),
            (500, "No path to datacenter", ErrorKind::Unavailable),
            (403, "ACL not found", ErrorKind::Unauthorized),
            (429, "", ErrorKind::Unavailable),
            (301, "", ErrorKind::Unsupported),
            (400, "", ErrorKind::Unsupported),
        ] {
            let failure = failure(StatusCode::from_u16(status).unwrap(), body.as_bytes());
            assert!(!failure.may_land(), "{status} {body}");
            assert_eq!(Error::from(failure).kind(), kind, "{status} {body}");
        }
    }
}

//! From SQLite's errors to leasehold's.

use leasehold_core::{Error, ErrorKind};
use rusqlite::ErrorCode;

/// An error that can be told to everybody whose job was in the transaction that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    /// The disk is full, or a quota or file size limit reached, which SQLite doesn't tell from other faults.
    pub(crate) may_be_full: bool,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            may_be_full: false,
        }
    }

    /// The error of a commit: a write that failed there may have reached the disk all the same.
    pub(crate) fn of_commit(error: rusqlite::Error) -> Self {
        let unclear = matches!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure));
        let failure = Self::from(error);
        if unclear {
            Self {
                kind: ErrorKind::Ambiguous,
                ..failure
            }
        } else {
            failure
        }
    }

    /// A file or folder operation that failed.
    pub(crate) fn of_file(what: &str, path: &std::path::Path, error: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let kind = match error {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => ErrorKind::Unauthorized,
            _ => ErrorKind::Unavailable,
        };
        Self::new(kind, format!("{what} {}: {error}", path.display()))
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let (kind, what) = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
                ErrorKind::Unavailable,
                "another process keeps the file locked and doesn't let go; is one of its users stopped in the \
                 middle of a write?",
            ),
            Some(ErrorCode::DiskFull) => (
                ErrorKind::Unavailable,
                "there is no room left where the file is, and nothing was changed; free some",
            ),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
                ErrorKind::Unauthorized,
                "the file can't be written; see its owner and mode, and those of its folder",
            ),
            Some(ErrorCode::CannotOpen) => (
                ErrorKind::Unavailable,
                "the file or one of those beside it (-wal, -shm) can't be opened; see their owners and modes, and \
                 those of the folder",
            ),
            Some(ErrorCode::NotADatabase) => (
                ErrorKind::Invalid,
                "the file is not an SQLite database; name another one",
            ),
            Some(ErrorCode::DatabaseCorrupt) => (
                ErrorKind::Invalid,
                "the file is damaged; stop its users, move it away and begin with a new one",
            ),
            Some(ErrorCode::SystemIoFailure) => {
                (ErrorKind::Unavailable, "the file can't be read or written")
            }
            Some(ErrorCode::OutOfMemory) => (ErrorKind::Unavailable, "there is no memory left"),
            _ => (ErrorKind::Bug, "SQLite refuses a statement"),
        };
        Self {
            kind,
            message: format!("{what} ({error})"),
            may_be_full: matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure)
            ),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::new(failure.kind, failure.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

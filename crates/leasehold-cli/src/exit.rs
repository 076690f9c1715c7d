//! The exit codes and the failures they stand for: the one place that knows both.

use leasehold::{Error, ErrorKind};

/// `status`: nobody holds it. `break`, `once forget`: there was nothing to take away.
pub(crate) const FREE: u8 = 1;
/// `doctor`: something is bad.
pub(crate) const BAD: u8 = 1;
/// The command line or a lock's name can't be right.
pub(crate) const USAGE: u8 = 64;
/// The store can't be reached or gives no answer.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A defect of leasehold, or the system refused it something basic.
pub(crate) const INTERNAL: u8 = 70;
/// Somebody else holds the lock.
pub(crate) const BUSY: u8 = 75;
/// The lock was held and is no longer, or is not the one that was meant; or a newer holder has been at the resource.
pub(crate) const LOST: u8 = 76;
/// The store refuses the credentials.
pub(crate) const REFUSED: u8 = 77;
/// The configuration can't be right, or the store can't do what was asked.
pub(crate) const CONFIG: u8 = 78;
/// `--max-hold` was reached.
pub(crate) const MAX_HOLD: u8 = 124;
/// The command can't be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// What a shell adds to the number of the signal that ended a process.
pub(crate) const SIGNAL: u8 = 128;

/// Why the command ends without having done what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) operation: Option<String>,
    pub(crate) store: Option<String>,
    pub(crate) name: Option<String>,
}

impl Failure {
    fn new(code: u8, kind: ErrorKind, message: String) -> Self {
        Self {
            code,
            kind: kind.as_str(),
            message,
            operation: None,
            store: None,
            name: None,
        }
    }

    /// The command line can't be right.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, ErrorKind::Invalid, message.into())
    }

    /// The configuration can't be right.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(CONFIG, ErrorKind::Invalid, message.into())
    }

    /// The store gave no answer.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(UNAVAILABLE, ErrorKind::Unavailable, message.into())
    }

    /// The system refused something basic.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL, ErrorKind::Bug, message.into())
    }

    /// The job's program can't be started.
    pub(crate) fn program(code: u8, message: String) -> Self {
        Self::new(code, ErrorKind::Invalid, message)
    }

    pub(crate) fn during(mut self, operation: &str) -> Self {
        self.operation.get_or_insert_with(|| operation.to_owned());
        self
    }

    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name.get_or_insert_with(|| name.to_owned());
        self
    }

    pub(crate) fn on(mut self, store: &str) -> Self {
        self.store.get_or_insert_with(|| store.to_owned());
        self
    }

    /// Whether the store gave no answer that says anything, and may give one when asked again.
    pub(crate) fn is_outage(&self) -> bool {
        self.code == UNAVAILABLE && !self.is_unreplicated()
    }

    /// Whether it was granted and given back for want of replicas.
    fn is_unreplicated(&self) -> bool {
        self.kind == ErrorKind::Unreplicated.as_str()
    }

    /// A store that can't be used as configured, however its URL was given.
    pub(crate) fn connecting(error: &Error) -> Self {
        let mut failure = Self::from(error);
        if error.kind() == ErrorKind::Invalid {
            failure.code = CONFIG;
        }
        failure.during("connect")
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid => USAGE,
            ErrorKind::Unsupported => CONFIG,
            ErrorKind::Unavailable | ErrorKind::Unreplicated | ErrorKind::Ambiguous => UNAVAILABLE,
            ErrorKind::Unauthorized => REFUSED,
            ErrorKind::Lost => LOST,
            // Bug, and kinds to come, which get a code of their own when they do.
            _ => INTERNAL,
        };
        let mut message = error.message().to_owned();
        if let Some(source) = std::error::Error::source(error) {
            message = format!("{message}: {source}");
        }
        let mut failure = Self::new(code, error.kind(), message);
        failure.operation = error.operation().map(str::to_owned);
        failure.store = error.store().map(str::to_owned);
        failure.name = error.name().map(str::to_owned);
        failure
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [u8; 12] = [
        FREE,
        USAGE,
        UNAVAILABLE,
        INTERNAL,
        BUSY,
        LOST,
        REFUSED,
        CONFIG,
        MAX_HOLD,
        NOT_EXECUTABLE,
        NOT_FOUND,
        SIGNAL,
    ];

    /// The first cells of the table under "## Exit codes", up to the next heading.
    fn documented() -> Vec<String> {
        let readme = include_str!("../README.md");
        let section = readme.split("## Exit codes").nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        section
            .lines()
            .filter_map(|line| {
                line.strip_prefix("| ")?
                    .split(" |")
                    .next()
                    .map(str::to_owned)
            })
            .skip(1)
            .collect()
    }

    #[test]
    fn the_readme_has_every_exit_code_and_no_other() {
        let mut expected = vec!["the job's own".to_owned(), "0".to_owned()];
        expected.extend(ALL.iter().map(|code| match *code {
            SIGNAL => "128+n".into(),
            code => code.to_string(),
        }));
        let mut documented: Vec<String> = documented()
            .into_iter()
            .filter(|cell| !cell.starts_with('-'))
            .collect();
        documented.sort();
        expected.sort();
        assert_eq!(documented, expected);
    }

    #[test]
    fn every_kind_of_error_has_its_code() {
        for (kind, code) in [
            (ErrorKind::Invalid, 64),
            (ErrorKind::Unsupported, 78),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::Unreplicated, 69),
            (ErrorKind::Ambiguous, 69),
            (ErrorKind::Unauthorized, 77),
            (ErrorKind::Lost, 76),
            (ErrorKind::Bug, 70),
        ] {
            assert_eq!(Failure::from(Error::new(kind, "x")).code, code, "{kind:?}");
        }
        assert_eq!(
            Failure::connecting(&Error::new(ErrorKind::Invalid, "x")).code,
            78
        );
    }
}

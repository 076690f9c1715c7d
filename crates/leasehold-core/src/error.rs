//! The one error type.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What went wrong, coarsely: what a program decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name, URL, duration or option that can't be right. Nothing was sent.
    Invalid,
    /// This store can't do what was asked. Nothing was sent.
    Unsupported,
    /// The store can't be reached or can't answer. The request has had no effect, or none that lasts.
    Unavailable,
    /// Too few replicas had the grant in time; it was given back.
    Unreplicated,
    /// The store refuses the credentials or the rights they carry.
    Unauthorized,
    /// The lock was held and is no longer.
    Lost,
    /// No definite answer: the request may have taken effect. leasehold cleans up behind it.
    Ambiguous,
    /// A defect of leasehold.
    Bug,
}

impl ErrorKind {
    /// The kind in one lower-case word, as the command's JSON has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
            Self::Unreplicated => "unreplicated",
            Self::Unauthorized => "unauthorized",
            Self::Lost => "lost",
            Self::Ambiguous => "ambiguous",
            Self::Bug => "bug",
        }
    }
}

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: what happened, in which operation, on which store and name, and what to do next.
///
/// Being busy is not an error: see [`Lock::try_acquire`](crate::Lock::try_acquire).
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    operation: Option<&'static str>,
    store: Option<Arc<str>>,
    name: Option<Box<str>>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    answered: bool,
}

impl Error {
    /// An error of `kind`; `message` says what happened and, where one can, what to do next.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                message: message.into(),
                operation: None,
                store: None,
                name: None,
                source: None,
                answered: false,
            }),
        }
    }

    /// Adds the operation, for example `acquire`, unless one is set.
    #[must_use]
    pub fn during(mut self, operation: &'static str) -> Self {
        self.inner.operation.get_or_insert(operation);
        self
    }

    /// Adds the store's redacted URL, unless one is set.
    #[must_use]
    pub fn on(mut self, store: &Arc<str>) -> Self {
        self.inner.store.get_or_insert_with(|| store.clone());
        self
    }

    /// Adds the lock's name, unless one is set.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.inner.name.get_or_insert_with(|| name.into());
        self
    }

    /// Adds the error that caused this one. Its text must hold no secret.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// It is what the store answered, or a part of it: who waits goes on, at the first request too.
    #[must_use]
    pub fn answered(mut self) -> Self {
        self.inner.answered = true;
        self
    }

    /// Whether the store, or a part of it, did answer, so that it is there.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.inner.answered || self.inner.kind == ErrorKind::Unreplicated
    }

    /// What went wrong, coarsely.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.inner.kind,
            ErrorKind::Unavailable | ErrorKind::Unreplicated | ErrorKind::Ambiguous
        )
    }

    /// What happened, without operation, store and name.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// The operation that failed, for example `acquire`.
    #[must_use]
    pub fn operation(&self) -> Option<&str> {
        self.inner.operation
    }

    /// The store's URL without secrets.
    #[must_use]
    pub fn store(&self) -> Option<&str> {
        self.inner.store.as_deref()
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.inner.name.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            message,
            operation,
            store,
            name,
            source,
            ..
        } = &*self.inner;
        match (operation, name) {
            (Some(operation), Some(name)) => write!(f, "{operation} \"{name}\": ")?,
            (Some(operation), None) => write!(f, "{operation}: ")?,
            (None, Some(name)) => write!(f, "\"{name}\": ")?,
            (None, None) => {}
        }
        f.write_str(message)?;
        // Part of the text, because most callers print an error and not its sources.
        if let Some(source) = source {
            write!(f, ": {source}")?;
        }
        if let Some(store) = store {
            write!(f, " (store {store})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({}: {self})", self.inner.kind.as_str())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

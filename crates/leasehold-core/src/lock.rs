//! A named lock and how it is to be held.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Wait, acquire};
use crate::claim::{Claim, Owner};
use crate::client::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::holder::{Identity, NOTE_BYTES_MAX};
use crate::lease::Drift;
use crate::name::Name;

/// The TTL of a lock that sets none.
const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// A named lock on one store. Cheap to clone; holds nothing by itself.
///
/// Not re-entrant: two acquisitions of one name exclude each other, also within one task.
#[derive(Clone, Debug)]
pub struct Lock {
    pub(crate) store: Arc<Store>,
    pub(crate) name: Name,
    pub(crate) ttl: Duration,
    pub(crate) renews: bool,
    pub(crate) hold_at_least: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) drift: Drift,
    identity: Arc<Identity>,
}

impl Lock {
    pub(crate) fn new(store: Arc<Store>, name: Name) -> Self {
        Self {
            store,
            name,
            ttl: TTL_DEFAULT,
            renews: true,
            hold_at_least: Duration::ZERO,
            max_hold: None,
            drift: Drift::default(),
            identity: Identity::of_this_process(),
        }
    }

    /// How long a hold lasts without renewal, and so how long a dead holder may keep the others out. The
    /// default is 30 s. The store's bounds are checked by the acquisition.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Whether the hold is renewed until its release, as it is by default. Without, it ends with its TTL.
    #[must_use]
    pub fn renew(mut self, renews: bool) -> Self {
        self.renews = renews;
        self
    }

    /// Keeps others out for at least this long from the grant, also when the guard is released or dropped
    /// before: for work that is over so fast that a host whose clock runs behind would do it again. A store
    /// without [`detached`](crate::backend::Capabilities::detached) holds refuses it.
    #[must_use]
    pub fn hold_at_least(mut self, least: Duration) -> Self {
        self.hold_at_least = least;
        self
    }

    /// The longest time to hold: then the hold is lost, renewals or not.
    #[must_use]
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.max_hold = Some(most);
        self
    }

    /// A text for others to see beside the holder; at most 200 bytes.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.identity).note = Some(note.into());
        self
    }

    /// The program others see as the holder, instead of this process's own.
    #[must_use]
    pub fn program(mut self, program: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.identity).program = program.into();
        self
    }

    /// How unlike the clocks of this host and the store may run.
    #[must_use]
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// The name with the client's prefix: the key that the store excludes by.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Takes the lock if it is free; `None` when it is busy. Never waits for another holder.
    ///
    /// # Errors
    /// When the store can't be asked or doesn't answer; a try that may have taken effect is cleaned up in the
    /// background. `Invalid` or `Unsupported` for settings this store can't do.
    ///
    /// # Cancel safety
    /// Dropped before its end it leaves nothing behind: whatever the store made of it is released in the
    /// background.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        acquire(self, Wait::No).await
    }

    /// Takes the lock, waiting at most `wait` for it; `None` when that is over.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire). Once the store has answered, or one of several servers that are too
    /// few, an outage is waited out; one that lasts when the time is over is the error.
    ///
    /// # Cancel safety
    /// As [`try_acquire`](Self::try_acquire); the place in the queue is given up.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>> {
        acquire(self, Wait::AtMost(wait)).await
    }

    /// Takes the lock, waiting for it as long as it takes.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire). Once the store has answered, an outage is waited out.
    ///
    /// # Cancel safety
    /// As [`acquire_within`](Self::acquire_within).
    pub async fn acquire(&self) -> Result<Guard> {
        let guard = acquire(self, Wait::Forever).await?;
        guard.ok_or_else(|| {
            Error::new(ErrorKind::Bug, "a wait without end came to an end")
                .named(self.name.as_str())
        })
    }

    /// A claim of this lock by a new owner.
    pub(crate) fn claim(&self, waits: bool) -> Result<Claim> {
        Ok(Claim {
            name: self.name.clone(),
            owner: Owner::random()?,
            ttl: self.ttl,
            waits,
            identity: self.identity.clone(),
        })
    }

    /// Refuses settings that can't be right, before anything is sent.
    pub(crate) fn check(&self) -> Result<()> {
        let capabilities = self.store.backend.info().capabilities;
        let refuse = |kind, what: String| Err(Error::new(kind, what));
        self.store.check_ttl(self.ttl)?;
        if self.drift.usable(self.ttl).is_zero() {
            return refuse(
                ErrorKind::Invalid,
                format!(
                    "a TTL of {:?} leaves nothing after the drift margin",
                    self.ttl
                ),
            );
        }
        if self.max_hold.is_some_and(|most| most.is_zero()) {
            return refuse(ErrorKind::Invalid, "a longest hold of zero".into());
        }
        if !self.hold_at_least.is_zero() && !capabilities.detached {
            return refuse(
                ErrorKind::Unsupported,
                "this store can't keep a hold after its release (hold at least)".into(),
            );
        }
        match &self.identity.note {
            Some(note) if note.len() > NOTE_BYTES_MAX => refuse(
                ErrorKind::Invalid,
                format!(
                    "the note has {} bytes, the most is {NOTE_BYTES_MAX}",
                    note.len()
                ),
            ),
            _ => Ok(()),
        }
    }
}

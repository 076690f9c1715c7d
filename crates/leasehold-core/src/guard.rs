//! The holder's side of a hold.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Armed;
use crate::backend::{LossReason, Release, Renewal};
use crate::claim::{Owner, Token};
use crate::detached::Detached;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Hold;
use crate::keeper::within;
use crate::name::Name;
use crate::plan::HoldState;

/// A held lock. It is renewed in the background until it is released or dropped.
///
/// Dropping releases in the background, from any thread and outside a runtime too;
/// [`release`](Self::release) says what came of it.
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard {
    hold: Arc<Hold>,
    released: bool,
}

/// A look at a hold from elsewhere: cheap to clone, keeps nothing held.
#[derive(Clone)]
pub struct Held {
    hold: Arc<Hold>,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self {
            hold,
            released: false,
        }
    }

    /// The key that is held: the name with the client's prefix.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.hold.terms.name
    }

    /// The fencing token: hand it to the resource with every write.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.terms.token
    }

    /// What it takes to extend or release this hold from elsewhere, with [`Client::resume`](crate::Client::resume).
    /// A secret: whoever knows it can end the hold.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.hold.terms.owner
    }

    /// What the store's own tools give a command that runs under a lock, as environment variables: etcd's key and its
    /// revision, for example. Empty on most stores.
    #[must_use]
    pub fn environment(&self) -> &[(&'static str, String)] {
        &self.hold.terms.environment
    }

    /// How long the hold lasts unless it is renewed, by the most pessimistic clock; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Whether it is held at this moment. Computed from the clock, so it is right also on the first line
    /// after a suspend; stale one instruction later, which is what the token is for.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How the hold stands.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.hold.state()
    }

    /// A look at this hold that can be given away.
    #[must_use]
    pub fn held(&self) -> Held {
        Held {
            hold: self.hold.clone(),
        }
    }

    /// Waits until the hold is lost.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn lost(&self) -> LossReason {
        match self.hold.over().await {
            HoldState::Lost(reason) => reason,
            // Releasing takes the guard, so nobody is left to ask.
            _ => std::future::pending().await,
        }
    }

    /// Makes the hold last at least `ttl` from now, once; renewals go on as before and never shorten it.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the lock is no longer held; `Unsupported` when the store can't do this `ttl`;
    /// `Ambiguous` or `Unavailable` when it gave no answer, and then nothing is counted on.
    ///
    /// # Cancel safety
    /// Dropped before its end, the hold may or may not last longer in the store; this process doesn't count
    /// on it.
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        let explain = |error| self.hold.explain(error, "extend");
        let terms = &self.hold.terms;
        terms
            .store
            .check_extension(ttl, terms.ttl)
            .map_err(explain)?;
        let renewal = match self.hold.borrow_when_back().await {
            Some(mut borrowed) => {
                let patience = (self.hold.terms.ttl / 3).max(Duration::from_secs(1));
                within(patience, borrowed.renew(ttl))
                    .await
                    .map_err(explain)?
            }
            None => Renewal::Lost(LossReason::Unreachable),
        };
        self.hold.settle(Ok(renewal));
        match self.hold.state() {
            HoldState::Lost(reason) => Err(explain(lost(reason))),
            _ => Ok(()),
        }
    }

    /// Runs `work` while the lock is held; it is dropped at its next await the moment the lock is lost. The
    /// work needs to be neither `Send` nor `'static`.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the lock was lost before the work was done, also where the work was done but
    /// too late.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`; the lock stays with the guard.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let reason = tokio::select! {
            biased;
            reason = self.lost() => reason,
            done = work => {
                if self.is_held() {
                    return Ok(done);
                }
                match self.state() {
                    HoldState::Lost(reason) => reason,
                    _ => LossReason::Expired,
                }
            }
        };
        Err(self.hold.explain(lost(reason), "run"))
    }

    /// Gives the lock back and says what came of it.
    ///
    /// # Errors
    /// When the store gave no answer: the release is unconfirmed and goes on in the background until the
    /// answer is definite or the TTL is over.
    ///
    /// # Cancel safety
    /// Dropped before its end, the release goes on in the background.
    pub async fn release(mut self) -> Result<Release> {
        let keep = self.hold.keep();
        self.give_up(keep)
            .await
            .map_err(|error| self.hold.explain(error, "release"))
    }

    /// Lets go of the hold without giving it back: it lasts `ttl` from now and ends by time alone, whatever becomes
    /// of this process. Whoever knows its owner can extend or release it with
    /// [`Client::resume`](crate::Client::resume).
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the lock is no longer held, `Unsupported` for a store without
    /// [`detached`](crate::backend::Capabilities::detached) holds; without an answer the lock ends by its TTL.
    ///
    /// # Cancel safety
    /// Dropped before its end, the hold ends by time alone, and nobody knows its owner.
    pub async fn detach(mut self, ttl: Duration) -> Result<Detached> {
        let hold = self.hold.clone();
        let explain = |error| hold.explain(error, "detach");
        if !hold.terms.store.backend.info().capabilities.detached {
            return Err(explain(Error::new(
                ErrorKind::Unsupported,
                "this store's holds end with the process that has them; use a guard, or the command's run",
            )));
        }
        hold.terms.store.check_ttl(ttl).map_err(explain)?;
        match self.give_up(ttl).await.map_err(explain)? {
            Release::Freed => Ok(Detached {
                name: hold.terms.name.clone(),
                owner: hold.terms.owner,
                token: hold.terms.token,
            }),
            Release::Expired => Err(explain(lost(LossReason::Expired))),
            Release::Another => Err(explain(lost(LossReason::Stolen))),
            Release::Broken => Err(explain(lost(LossReason::Broken))),
        }
    }

    /// Ends renewals, then the hold after `keep`.
    async fn give_up(&mut self, keep: Duration) -> Result<Release> {
        self.hold.end();
        let Some(contender) = self
            .hold
            .borrow_when_back()
            .await
            .and_then(crate::hold::Borrowed::keep)
        else {
            return Ok(Release::Expired);
        };
        self.released = true;
        Armed::release_of(&self.hold, contender, keep)
            .release()
            .await
    }
}

fn lost(reason: LossReason) -> Error {
    Error::new(ErrorKind::Lost, format!("the lock is lost: {reason}"))
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        self.hold.end();
        if let Some(contender) = self.hold.abandon() {
            drop(Armed::release_of(&self.hold, contender, self.hold.keep()));
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("token", &self.token())
            .field("state", &self.state())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl Held {
    /// The key that is held: the name with the client's prefix.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.hold.terms.name
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.terms.token
    }

    /// As [`Guard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// As [`Guard::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// As [`Guard::state`].
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.hold.state()
    }

    /// Why the last renewal had no answer, in words for people; none where it had one.
    ///
    /// Of a hold that was lost as [`Unreachable`](LossReason::Unreachable) it says what the store's trouble was.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.hold.trouble()
    }

    /// Waits until the hold is over: the reason it was lost for, or `None` when it was released.
    ///
    /// # Cancel safety
    /// Safe: nothing is changed.
    pub async fn lost(&self) -> Option<LossReason> {
        match self.hold.over().await {
            HoldState::Lost(reason) => Some(reason),
            _ => None,
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("name", self.name())
            .field("token", &self.token())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

//! What a store implements: [`Backend`] and [`Contender`].
//!
//! ```text
//! acquire ── contend(claim) ──► Contender ── try_acquire … poll_changed ──► Granted
//! keeper  ── renew, renew, … release ──► Contender        (the same object, handed over)
//! ```
//!
//! A backend holds no timers, makes no retries and decides nothing about time: the wait loop and the keeper
//! do. It answers what the store said, with the moment the answered request was *sent*.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;

use crate::claim::{Claim, Owner, Token};
use crate::clock::Moment;
use crate::error::Result;
use crate::holder::Holder;
pub use crate::holder::Inspection;
use crate::name::Name;

/// How far a store's tokens can be trusted to rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenGrade {
    /// Rises unless the server loses its memory while clocks disagree.
    BestEffort,
    /// On the disk of one server before it is handed out.
    Durable,
    /// Held by a majority before it is handed out.
    Quorum,
}

/// What a store can do. Every field has a row in the store's README, compared by a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// How far its tokens can be trusted.
    pub token: TokenGrade,
    /// Waiters are served in the order they came.
    pub ordered: bool,
    /// Waiters are told of a release; without, they look again from time to time.
    pub push: bool,
    /// A dead process's holds are free at once, not only when their TTL is over.
    pub frees_dead_at_once: bool,
    /// A hold can stay for a while after its process let go of it (`release` with `keep`).
    pub detached: bool,
    /// A hold can be made to last longer than the TTL it was taken with.
    pub extends: bool,
    /// Listing locks looks through everything that the server keeps, other people's data too.
    pub list_scans: bool,
    /// The shortest TTL.
    pub ttl_min: Duration,
    /// The longest TTL.
    pub ttl_max: Duration,
}

/// A store: what it is, where, and what it can do.
#[derive(Clone, Debug)]
pub struct BackendInfo {
    /// The store's name in lower case, for example `sqlite`.
    pub store: &'static str,
    /// Its URL without secrets, as errors and messages show it.
    pub url: Arc<str>,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// One store, connected.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// What it is and can do; costs nothing.
    fn info(&self) -> &BackendInfo;

    /// Starts an attempt. Writes nothing to the store, so that dropping this future leaves nothing.
    ///
    /// # Errors
    /// When the claim asks for what the store can't do, or no connection can be had.
    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>>;

    /// A hold that `owner` has, perhaps taken by another process, to be renewed or released. Sends nothing; only
    /// for a store with [`detached`](Capabilities::detached) holds.
    ///
    /// # Errors
    /// `Unsupported` for a store without.
    async fn resume(&self, name: Name, owner: Owner) -> Result<Box<dyn Contender>>;

    /// What of this server's settings makes its locks less safe than its README says.
    ///
    /// # Errors
    /// When the store gives no answer.
    async fn check(&self) -> Result<Vec<Finding>>;

    /// Who holds a lock and who waits for it. Changes nothing.
    ///
    /// # Errors
    /// When the store gives no answer.
    async fn inspect(&self, name: &Name) -> Result<Inspection>;

    /// All locks held now whose name begins with `prefix`, in the order of their names.
    ///
    /// # Errors
    /// When the store gives no answer.
    async fn list(&self, prefix: &str) -> Result<Vec<Inspection>>;

    /// Takes the lock away from its holder, whoever that is: the holder's contender answers
    /// [`LossReason::Broken`] from then on. With `token`, only while the hold has that token.
    ///
    /// # Errors
    /// When the store gives no answer; then the hold may or may not be broken.
    async fn break_hold(&self, name: &Name, token: Option<Token>) -> Result<Broken>;

    /// A descriptor that keeps this process's holds from being freed early as long as any process has it
    /// open: what a child must inherit so that its parent's death alone doesn't free the lock. `None` where
    /// holds end by time alone.
    fn inherit(&self) -> Option<OwnedFd>;

    /// Ends connections in good order. Holds still there end by their TTL.
    async fn close(&self);
}

/// One thing looked at by [`Backend::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it is.
    pub verdict: Verdict,
    /// What was looked at and what was found, for example `maxmemory-policy is allkeys-lru`.
    pub what: String,
    /// What that means and what to change; empty where nothing is to be done.
    pub advice: String,
}

/// How a setting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Locks hold, but less than they could, or it couldn't be found out.
    Warning,
    /// Locks may be lost while they are held.
    Bad,
}

impl Verdict {
    /// The verdict in one lower-case word, as JSON has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// One acquisition, from the first try to the release, with all that takes: a place in a queue, a node, a
/// key, a connection.
///
/// Any future of it may be dropped at any point; the calls after it must still be right, and
/// [`release`](Self::release) must then still leave nothing behind: a try that was sent and not answered is
/// the contender's to remember. Dropping the contender itself releases nothing.
#[async_trait]
pub trait Contender: Debug + Send {
    /// Asks for the lock. Idempotent: asked again by the owner of the hold it answers the same token.
    /// A grant that came by message is answered without a round trip.
    ///
    /// # Errors
    /// `Ambiguous` when it may have taken effect; any other kind when it has not.
    async fn try_acquire(&mut self) -> Result<Attempt>;

    /// Ready when it is worth acting: while waiting, try again; while held, renew now. Relative to the send
    /// of the last request, so what happens between two calls isn't missed. A store that tells nothing
    /// stays pending.
    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// What this store's own tools give a command that runs under a hold, as environment variables; asked once, after
    /// the grant. Empty where there is no such custom.
    fn environment(&self) -> Vec<(&'static str, String)>;

    /// Makes the hold last at least `ttl` from now; never shortens it and never makes one where there is none.
    /// Harmless when it lands late, also after the release.
    ///
    /// # Errors
    /// When the store gave no answer: the hold may or may not have been renewed. `Unsupported` when the
    /// store can't do this `ttl`.
    async fn renew(&mut self, ttl: Duration) -> Result<Renewal>;

    /// Ends the attempt or the hold. Idempotent: while queued, while held, after an unknown outcome. With
    /// `keep` not zero, the hold stays that much longer, by time alone, and nobody has to renew it; its owner can
    /// still [`resume`](Backend::resume) it.
    ///
    /// # Errors
    /// When there is no definite answer: call again.
    async fn release(&mut self, keep: Duration) -> Result<Release>;
}

/// What a store says to a try.
#[derive(Clone, Debug)]
pub enum Attempt {
    /// The lock is held.
    Granted(Grant),
    /// Somebody else holds it, or comes first.
    Busy(Busy),
}

/// A grant.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// Higher than that of any grant of this name before.
    pub token: Token,
    /// When the request that the store processed was sent, not the newest one.
    pub since: Moment,
    /// What the store really gives, counted from no earlier than `since`.
    pub ttl: Duration,
}

/// Who is in the way.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    /// The holder, where the store says so.
    pub holder: Option<Holder>,
    /// How many come before this attempt in the queue, where there is one.
    pub position: Option<u32>,
    /// When to try again without having been told.
    pub retry_in: Option<Duration>,
}

/// What a store says to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The hold was ours without a break and lasts `ttl` from `since`, the moment the request was sent.
    Renewed {
        /// When the request that the store processed was sent.
        since: Moment,
        /// What the store really gives.
        ttl: Duration,
    },
    /// The hold is gone.
    Lost(LossReason),
}

/// Why a hold ended before its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// Its time was over.
    Expired,
    /// The store had it no more though its time wasn't over: it was deleted, or the store has lost its memory.
    Gone,
    /// Somebody else has it.
    Stolen,
    /// The session that it hung on is gone.
    SessionLost,
    /// The store confirmed no renewal until the time was over.
    Unreachable,
    /// It reached the longest time it was to be held.
    MaxHold,
    /// An operator took it away.
    Broken,
}

impl LossReason {
    /// The reason in lower-case words, as JSON has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::Stolen => "stolen",
            Self::SessionLost => "session_lost",
            Self::Unreachable => "unreachable",
            Self::MaxHold => "max_hold",
            Self::Broken => "broken",
        }
    }
}

impl std::fmt::Display for LossReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Expired => "its time was over",
            Self::Gone => "it was gone from the store before its time",
            Self::Stolen => "somebody else has it",
            Self::SessionLost => "the session it hung on is gone",
            Self::Unreachable => "no renewal was confirmed before its time was over",
            Self::MaxHold => "it reached the longest time it was to be held",
            Self::Broken => "an operator took it away",
        })
    }
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// It was ours and is free now, or free after the time it is kept.
    Freed,
    /// It had ended before: the work overran its lease.
    Expired,
    /// It had ended before, and somebody else has it.
    Another,
    /// An operator had taken it away, and nobody has it; only from a store that remembers.
    Broken,
}

impl Release {
    /// The outcome in one lower-case word, as JSON has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Freed => "freed",
            Self::Expired => "expired",
            Self::Another => "another",
            Self::Broken => "broken",
        }
    }
}

/// What breaking a hold found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// This hold was there and is no longer.
    Ended(Holder),
    /// The lock was free.
    Free,
    /// It is held with another token than the one asked for; nothing was changed.
    OtherToken(Holder),
}

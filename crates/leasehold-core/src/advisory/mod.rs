//! Advisory locks: those that a server's session takes, waits for and gives back by statements, and that end with it.
//!
//! ```text
//! contender ── Seat ──► Session ──► Link ──► a session of the server's, that many holds share
//!     └─ Waiting ── Lent ──► Session ──► Link ──► one that holds nothing while it waits
//! ```
//!
//! A store says through [`Link`] which statements those are, and through [`AdvisoryStore`] what its server remembers of
//! holds. All the rest is here: a session holds or waits, never both; what a try without an answer took is given back on
//! the same session; the attempts of one client at one lock take turns, as a session may take a lock twice.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::OwnedSemaphorePermit;

use crate::claim::{Claim, Token};
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::holder::{Holder, Inspection};
use crate::name::Name;
use crate::session::{Pulse, Session, SessionStore};

mod contender;
mod desk;
mod locks;
mod renewal;
mod waiting;

pub use desk::Desk;
pub use locks::Locks;

/// How many beats in a row that have no answer fit into a session.
const BEATS: u32 = 6;
/// How long a beat may take at least to be answered.
const BEAT_MIN: Duration = Duration::from_millis(250);
/// How long an unlock may take to be answered.
const UNLOCK: Duration = Duration::from_secs(2);

/// A connection, which is a session of its own at the server and does what it is asked in order. It ends when it is dropped.
///
/// A lock is called by what the server knows it by ([`Locks::contend`]), not by its name.
#[async_trait]
pub trait Link: Debug + Send + Sync + 'static {
    /// Whether it is known to be gone.
    fn is_closed(&self) -> bool;

    /// Tries a lock, and counts the grant.
    ///
    /// # Errors
    /// When it may have taken the lock without having counted, or hasn't done anything.
    async fn attempt(&self, lock: &Name, claim: &Claim) -> Result<Tried, Failure>;

    /// Waits for a lock; answers whether it was granted, or the wait is to begin anew. It is sent at the first poll.
    ///
    /// # Errors
    /// When nothing is waited for any more.
    async fn wait(self: Arc<Self>, lock: Name) -> Result<bool, Failure>;

    /// Counts the grant of a lock that was waited for.
    ///
    /// # Errors
    /// As [`attempt`](Self::attempt).
    async fn count(&self, lock: &Name, claim: &Claim) -> Result<Tried, Failure>;

    /// Gives a lock back; answers whether the session had it.
    ///
    /// # Errors
    /// When it may have it still.
    async fn unlock(&self, lock: &Name) -> Result<bool, Failure>;

    /// Has the server hear of us.
    ///
    /// # Errors
    /// `Refused` when somebody else heard it.
    async fn beat(&self) -> Result<(), Failure>;
}

/// A store of such locks.
#[async_trait]
pub trait AdvisoryStore: SessionStore<Live = Arc<Self::Link>, Made = Token> {
    /// Its connections.
    type Link: Link;

    /// The TTL of the session that a hold of `ttl` hangs on; never shorter.
    fn session_ttl(&self, ttl: Duration) -> Duration;

    /// One of the locks that this client may have; none where there is no end of them.
    ///
    /// # Errors
    /// When it has them all.
    fn permit(&self) -> Result<Option<OwnedSemaphorePermit>>;

    /// A connection to look through.
    ///
    /// # Errors
    /// When there is none.
    async fn desk(&self) -> Result<Arc<Self::Link>>;

    /// Makes the table that tokens are counted in, if nobody has meanwhile.
    ///
    /// # Errors
    /// When it isn't there.
    async fn make_table(&self) -> Result<(), Failure>;

    /// How a lock stands.
    ///
    /// # Errors
    /// When the server doesn't say.
    async fn standing(&self, name: &Name, lock: &Name) -> Result<Standing>;

    /// The token of the hold of this name that an operator took away.
    ///
    /// # Errors
    /// When the server doesn't say.
    async fn broken(&self, name: &Name) -> Result<Option<Token>>;
}

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It is granted, with this token.
    Granted(Token),
    /// Somebody else has it or waits for it.
    Busy,
    /// The server has forgotten its locks, and who had this one may believe to have it for so much longer.
    HeldBack(Duration),
}

/// A statement that failed.
#[derive(Debug)]
pub enum Failure {
    /// No answer in time: it may take effect, now or later, but before whatever is sent after it on its connection.
    Unanswered(Error),
    /// The connection is gone, and with it the session: at once, or when the server notices.
    Closed(Error),
    /// There is no table yet.
    NoTable,
    /// The lock wasn't to be had within the time that the statement had.
    NotInTime(Error),
    /// The server undid it for another statement's sake, and would do it if it were asked again. A lock that it took
    /// before stays taken.
    Undone(Error),
    /// The server refused it. A lock that it took before stays taken.
    Refused(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unanswered(error)
            | Failure::Closed(error)
            | Failure::NotInTime(error)
            | Failure::Undone(error)
            | Failure::Refused(error) => error,
            Failure::NoTable => Self::new(
                ErrorKind::Unavailable,
                "the table leasehold.locks is gone as soon as it is made",
            ),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// How a lock stands.
#[derive(Debug)]
pub struct Standing {
    /// The server's number of the session that has the lock.
    pub session: Option<u64>,
    /// The newest hold of the name.
    pub last: Option<Holder>,
    /// Whether that is the one that has the lock.
    pub is_lasts: bool,
    /// The token of the hold that an operator took away.
    pub broken: Option<Token>,
}

impl Standing {
    /// Whether anybody has it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.session.is_some()
    }

    /// The token that it is held with; none where it is free or a client of another make has it.
    #[must_use]
    pub fn holds(&self) -> Option<Token> {
        self.last.as_ref().filter(|_| self.is_lasts)?.token
    }

    /// Who has it.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        self.session?;
        let last = self.last.clone().filter(|_| self.is_lasts);
        Some(last.unwrap_or_else(|| Holder::new(None, None)))
    }

    /// What is shown of it, with how many wait: who they are the server doesn't say.
    #[must_use]
    pub fn inspection(self, name: &Name, waiters: usize) -> Inspection {
        let mut inspection = Inspection::free(name.clone());
        inspection.holder = self.holder();
        inspection.waiters = std::iter::repeat_n(None, waiters).collect();
        inspection.last_token = self.last.and_then(|last| last.token);
        inspection
    }
}

/// An answer within a time.
///
/// # Errors
/// `Unanswered` when it is over.
pub async fn within<T>(
    patience: Duration,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    clock::timeout(patience, answer).await.unwrap_or_else(|| {
        Err(Failure::Unanswered(Error::new(
            ErrorKind::Ambiguous,
            "the server gave no answer in time",
        )))
    })
}

/// Keeps a session alive, once ([`SessionStore::beat`]), with `most` patience.
///
/// # Errors
/// When that has no answer.
pub async fn beat<S: AdvisoryStore>(
    session: &Session<S>,
    link: &S::Link,
    most: Duration,
) -> Result<Option<Pulse>> {
    let since = clock::now();
    match within(patience(session, most), link.beat()).await {
        Ok(()) => Ok(Some(Pulse::new(since, session.asked()))),
        Err(Failure::Closed(_)) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

/// How long a beat may take to be answered: `most`, and of a short session less.
pub fn patience<S: AdvisoryStore>(session: &Session<S>, most: Duration) -> Duration {
    (session.asked() / BEATS).clamp(BEAT_MIN, most)
}

/// Gives back what a place took, whether or not an answer ever said that it did; answers whether it had anything. What was
/// asked before on the session is done by then, so nothing of it will come.
///
/// # Errors
/// When it may have it still.
pub async fn unlock<S: AdvisoryStore>(
    link: &S::Link,
    session: &Session<S>,
    lock: &Name,
) -> Result<bool, Failure> {
    if session
        .place(lock, |place| place.is_clean())
        .unwrap_or(true)
    {
        return Ok(false);
    }
    match within(UNLOCK, link.unlock(lock)).await {
        // With the session its locks end.
        Err(Failure::Closed(_)) => Ok(false),
        unlocked => unlocked,
    }
}

/// Ends the holds of a session that an operator has taken away: its locks, each with the token that was.
pub fn end_broken<S: SessionStore<Made = Token>>(session: &Session<S>, broken: &[(Name, Token)]) {
    let now = clock::now().boot;
    for (lock, token) in broken {
        session.place(lock, |place| {
            if place.made == Some(*token) {
                place.cut_short(now);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{LossReason, Renewal};
    use crate::session::{Pool, end};

    const TTL: Duration = Duration::from_secs(60);

    /// A store whose sessions stay.
    #[derive(Debug)]
    struct Staying;

    #[async_trait]
    impl SessionStore for Staying {
        type Live = ();
        type Made = Token;

        async fn begin(&self, session: &Arc<Session<Self>>) -> Result<((), Pulse)> {
            Ok(((), Pulse::new(clock::now(), session.asked())))
        }

        async fn beat(&self, session: &Session<Self>, (): &()) -> Result<Option<Pulse>> {
            Ok(Some(Pulse::new(clock::now(), session.asked())))
        }

        async fn give_up(&self, _: &Session<Self>, _: &Name) -> Result<()> {
            Ok(())
        }

        async fn end(&self, (): ()) {}
    }

    /// That an older hold was taken away may be heard of after the next grant.
    #[tokio::test]
    async fn a_break_ends_the_hold_that_it_names_and_no_newer_one() {
        let pool = Arc::new(Pool::new(Arc::new(Staying)));
        let name = Name::new("x").unwrap();
        let seat = pool.seat(&name, TTL).unwrap();
        seat.session.ready().await.unwrap();
        let (older, newer) = (Token::new(1).unwrap(), Token::new(2).unwrap());
        seat.with(|place| {
            place.send(end(clock::now(), TTL));
            place.answered();
            place.made = Some(newer);
        });
        let pulse = Pulse::new(clock::now(), TTL);
        end_broken(&seat.session, &[(name.clone(), older)]);
        let renewal = seat.renewed(&pulse, TTL);
        assert!(matches!(renewal, Renewal::Renewed { .. }), "{renewal:?}");
        end_broken(&seat.session, &[(name, newer)]);
        let renewal = seat.renewed(&pulse, TTL);
        assert_eq!(renewal, Renewal::Lost(LossReason::Expired));
    }
}

//! One acquisition of an advisory lock.
//!
//! ```text
//! its turn in this client ── try and count, in one statement, on a session that many holds share ──► granted
//!          │ busy
//!          └─ wait on a session of its own ── count, on the same one ──► granted; the session is one of many then
//! ```

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::OwnedSemaphorePermit;

use super::waiting::{Waited, Waiting};
use super::{AdvisoryStore, Failure, Link, Locks, Tried, unlock, within};
use crate::backend::{Attempt, Busy, Contender, Grant, Release, Renewal};
use crate::claim::{Claim, Token};
use crate::clock::{self, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::session::{Place, Seat, Turn, end};

/// How long a try may take to be answered: the wait loop gives up a little later.
pub(super) const PATIENCE: Duration = Duration::from_millis(4500);
/// How often one try may begin anew because its session ended, it was undone, or there was no table.
const ROUNDS: u32 = 5;
/// How long a waiter goes at most without looking.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct AdvisoryContender<S: AdvisoryStore> {
    pub(super) locks: Arc<Locks<S>>,
    pub(super) claim: Claim,
    /// What the server knows the lock by, and its place on a session.
    lock: Name,
    turn: Turn,
    /// One of the locks that this client may have.
    permit: Option<OwnedSemaphorePermit>,
    pub(super) seat: Option<Seat<S>>,
    waiting: Option<Waiting<S>>,
    pub(super) held: Option<Hold>,
    /// A release was begun before.
    releasing: bool,
}

/// A grant as it was answered last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) token: Token,
    pub(super) since: Moment,
}

impl<S: AdvisoryStore> AdvisoryContender<S> {
    pub(super) fn new(locks: Arc<Locks<S>>, claim: Claim, lock: Name) -> Self {
        Self {
            turn: locks.turns.attempt(lock.clone()),
            locks,
            claim,
            lock,
            permit: None,
            seat: None,
            waiting: None,
            held: None,
            releasing: false,
        }
    }

    /// One round of a try; none where it is to begin anew.
    async fn round(&mut self) -> Result<Option<Attempt>, Failure> {
        if let Some(held) = self.held {
            return Ok(Some(self.granted(held)));
        }
        if self.waiting.is_some() {
            return self.waited().await;
        }
        if !self.turn.take(self.claim.waits) {
            return self.behind().await.map(Some);
        }
        if self.permit.is_none() {
            self.permit = self.locks.store.permit()?;
        }
        match self.attempt().await? {
            None => Ok(None),
            Some(Tried::Granted(_)) => Ok(self.held.map(|held| self.granted(held))),
            Some(Tried::HeldBack(left)) => Ok(Some(busy(left))),
            Some(Tried::Busy) if self.claim.waits => {
                self.seat = None;
                self.wait().await
            }
            Some(Tried::Busy) => Ok(Some(busy(LOOK))),
        }
    }

    /// Another attempt of this client has its turn.
    async fn behind(&mut self) -> Result<Attempt, Failure> {
        if !self.claim.waits {
            // Only a server that answers can be said to be busy.
            let desk = self.locks.store.desk().await?;
            within(PATIENCE, desk.beat()).await?;
        }
        Ok(busy(LOOK))
    }

    /// Tries the lock on a session that others may have places on.
    async fn attempt(&mut self) -> Result<Option<Tried>, Failure> {
        let seat = match self.seat.take().filter(|seat| !seat.session.is_over()) {
            Some(seat) => seat,
            None => {
                let asked = self.locks.store.session_ttl(self.claim.ttl);
                self.locks.pool.seat(&self.lock, asked)?
            }
        };
        let seat = self.seat.insert(seat);
        let link = match seat.session.ready().await {
            Ok(link) => link,
            Err(_) if seat.session.has_ended() => return Ok(None),
            Err(error) => return Err(Failure::Refused(error)),
        };
        if seat.with(|place| !place.is_clean()) {
            // What an earlier try without an answer took is given back before the next one.
            unlock(&*link, &seat.session, &self.lock).await?;
            seat.with(Place::ended);
        }
        seat.mailbox.clear();
        let since = clock::now();
        if !seat.with(|place| place.send(end(since, self.claim.ttl))) {
            self.seat = None;
            return Ok(None);
        }
        match within(PATIENCE, link.attempt(&self.lock, &self.claim)).await {
            Ok(Tried::Granted(token)) => {
                seat.with(|place| {
                    place.answered();
                    place.made = Some(token);
                });
                self.hold(token, since);
                Ok(Some(Tried::Granted(token)))
            }
            Ok(tried) => {
                seat.with(Place::answered);
                Ok(Some(tried))
            }
            Err(Failure::NoTable) => {
                seat.with(Place::answered);
                self.locks.store.make_table().await?;
                Ok(None)
            }
            Err(Failure::Closed(error)) => {
                seat.session.end();
                Err(Failure::Closed(error))
            }
            Err(failure @ (Failure::Undone(_) | Failure::Refused(_))) => {
                // The lock may be taken though its grant isn't counted.
                if unlock(&*link, &seat.session, &self.lock).await.is_ok() {
                    seat.with(Place::ended);
                }
                Err(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Begins to wait for the lock.
    async fn wait(&mut self) -> Result<Option<Attempt>, Failure> {
        let Ok(permit) = self.locks.waits.clone().try_acquire_owned() else {
            // Too many wait already: it is tried now and then.
            return Ok(Some(busy(LOOK)));
        };
        self.waiting = Waiting::begin(&self.locks, &self.claim, &self.lock, permit).await?;
        Ok(self.waiting.as_ref().map(|_| busy(LOOK)))
    }

    /// Looks what came of the wait.
    async fn waited(&mut self) -> Result<Option<Attempt>, Failure> {
        // From its end on, it ends with this call, unless that grants it.
        let Some(waiting) = self.waiting.take_if(|waiting| waiting.is_over()) else {
            return Ok(self.waiting.as_ref().map(|_| busy(LOOK)));
        };
        match waiting.count(&self.locks.store, &self.claim).await {
            Ok(Waited::Granted(token, since, seat)) => {
                self.seat = Some(seat);
                let held = self.hold(token, since);
                Ok(Some(self.granted(held)))
            }
            Ok(Waited::Again(waiting)) => {
                self.waiting = Some(waiting);
                Ok(Some(busy(LOOK)))
            }
            Ok(Waited::HeldBack(left)) => Ok(Some(busy(left))),
            Ok(Waited::Lost) => Ok(None),
            Err(Failure::NoTable) => {
                self.locks.store.make_table().await?;
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// The lock is held by its seat's session.
    fn hold(&mut self, token: Token, since: Moment) -> Hold {
        if let Some(seat) = &self.seat {
            let (session, lock) = (Arc::downgrade(&seat.session), self.lock.clone());
            self.turn.holds(move || {
                let session = session.upgrade().filter(|session| !session.is_over());
                session
                    .and_then(|session| session.place(&lock, |place| place.is_clean()))
                    .unwrap_or(true)
            });
        }
        *self.held.insert(Hold { token, since })
    }

    fn granted(&self, held: Hold) -> Attempt {
        Attempt::Granted(Grant {
            token: held.token,
            since: held.since,
            ttl: self.claim.ttl,
        })
    }

    /// Gives the lock back; answers whether it was held.
    async fn give_back(&mut self) -> Result<bool> {
        let Some(seat) = &self.seat else {
            return Ok(false);
        };
        let Some(link) = seat.session.live() else {
            return Ok(false);
        };
        let had = unlock(&*link, &seat.session, &self.lock).await?;
        seat.with(Place::ended);
        Ok(had)
    }

    /// What became of a hold that isn't there any more.
    async fn ended(&mut self, again: bool) -> Result<Release> {
        let store = &self.locks.store;
        let standing = store.standing(&self.claim.name, &self.lock).await?;
        let ours = self.held.map(|held| held.token);
        if standing.is_held() && ours.is_some() && standing.holds() == ours {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the connection is gone and the server hasn't noticed; it frees the lock within its TTL",
            ));
        }
        Ok(if standing.is_held() {
            Release::Another
        } else if ours.is_some() && standing.broken == ours {
            Release::Broken
        } else if again {
            // What an unanswered release left may well be its work.
            Release::Freed
        } else {
            Release::Expired
        })
    }
}

#[async_trait]
impl<S: AdvisoryStore> Contender for AdvisoryContender<S> {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        let mut last = None;
        for _ in 0..ROUNDS {
            match self.round().await {
                Ok(Some(attempt)) => return Ok(attempt),
                Ok(None) => {}
                // A session that was idle until now may have ended unseen.
                Err(Failure::Closed(error) | Failure::Undone(error)) => last = Some(error),
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(last.unwrap_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                "sessions end as soon as they are begun; is the server healthy?",
            )
        }))
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match (&mut self.waiting, &self.seat, &self.held) {
            (Some(waiting), ..) => waiting.poll(context),
            (None, Some(seat), Some(_)) => seat.mailbox.poll_changed(context),
            _ => self.turn.mailbox.poll_changed(context),
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    async fn renew(&mut self, ttl: Duration) -> Result<Renewal> {
        self.renew_hold(ttl).await
    }

    /// Holds that stay after their release are refused before they begin, so `keep` is zero.
    async fn release(&mut self, _keep: Duration) -> Result<Release> {
        self.waiting = None;
        let again = std::mem::replace(&mut self.releasing, true);
        let release = if self.give_back().await? {
            Release::Freed
        } else if self.held.is_none() && !again {
            Release::Expired
        } else {
            self.ended(again).await?
        };
        self.seat = None;
        self.permit = None;
        self.turn.leave();
        Ok(release)
    }
}

fn busy(look_in: Duration) -> Attempt {
    Attempt::Busy(Busy {
        holder: None,
        position: None,
        retry_in: Some(look_in),
    })
}

impl<S: AdvisoryStore> fmt::Debug for AdvisoryContender<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvisoryContender")
            .field("name", &self.claim.name)
            .field("owner", &self.claim.owner)
            .field("ttl", &self.claim.ttl)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

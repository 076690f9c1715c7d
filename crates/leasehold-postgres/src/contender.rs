//! One acquisition on PostgreSQL.
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
use leasehold_core::backend::{Attempt, Busy, Contender, Grant, Release, Renewal};
use leasehold_core::clock::{self, Moment};
use leasehold_core::session::end;
use leasehold_core::{Claim, Error, ErrorKind, Name, Result, Token};
use tokio::sync::OwnedSemaphorePermit;

use crate::backend::Shared;
use crate::error::{Failure, unexpected};
use crate::keys::Key;
use crate::link::{Ask, Tried, within};
use crate::look;
use crate::note;
use crate::session::{Made, Place, Seat, Turn, unlock};
use crate::waiting::{Waited, Waiting};

/// How long a try may take to be answered: the wait loop gives up a little later.
pub(crate) const PATIENCE: Duration = Duration::from_millis(4500);
/// How often one try may begin anew because its session ended or there was no table.
const ROUNDS: u32 = 3;
/// How long a waiter goes at most without looking.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct PostgresContender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) claim: Claim,
    key: Key,
    /// What its place on a session is called.
    place: Name,
    turn: Turn,
    /// One of the locks that this client may have.
    permit: Option<OwnedSemaphorePermit>,
    pub(crate) seat: Option<Seat>,
    waiting: Option<Waiting>,
    pub(crate) held: Option<Hold>,
    /// A release was begun before.
    releasing: bool,
}

/// A grant as it was answered last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) token: Token,
    pub(crate) since: Moment,
}

impl PostgresContender {
    pub(crate) fn new(shared: Arc<Shared>, claim: Claim, key: Key) -> Result<Self> {
        Ok(Self {
            turn: shared.turns.attempt(key),
            place: key.place()?,
            shared,
            claim,
            key,
            permit: None,
            seat: None,
            waiting: None,
            held: None,
            releasing: false,
        })
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
            self.permit = Some(self.shared.permit().map_err(Failure::Refused)?);
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
            let desk = self.shared.desk().await.map_err(Failure::Refused)?;
            within(PATIENCE, desk.beat()).await?;
        }
        Ok(busy(LOOK))
    }

    /// Tries the lock on a session that others may have places on.
    async fn attempt(&mut self) -> Result<Option<Tried>, Failure> {
        let seat = match self.seat.take().filter(|seat| !seat.session.is_over()) {
            Some(seat) => seat,
            None => self
                .shared
                .pool
                .seat(&self.place, self.claim.ttl)
                .map_err(Failure::Refused)?,
        };
        let seat = self.seat.insert(seat);
        let link = match seat.session.ready().await {
            Ok(link) => link,
            Err(_) if seat.session.has_ended() => return Ok(None),
            Err(error) => return Err(Failure::Refused(error)),
        };
        if seat.with(|place| !place.is_clean()) {
            // What an earlier try without an answer took is given back before the next one.
            unlock(&link, &seat.session, &self.place, self.key).await?;
            seat.with(Place::ended);
        }
        seat.mailbox.clear();
        let since = clock::now();
        if !seat.with(|place| place.send(end(since, self.claim.ttl))) {
            self.seat = None;
            return Ok(None);
        }
        let note = note::text(&self.claim.identity);
        let ask = ask(&self.claim, self.key, &note);
        match within(PATIENCE, link.attempt(&ask)).await {
            Ok(Tried::Granted(token)) => {
                seat.with(|place| {
                    place.answered();
                    place.made = Some(Made { token });
                });
                self.hold(token, since)?;
                Ok(Some(Tried::Granted(token)))
            }
            Ok(tried) => {
                seat.with(Place::answered);
                Ok(Some(tried))
            }
            Err(Failure::NoTable) => {
                seat.with(Place::answered);
                self.shared.make_table().await?;
                Ok(None)
            }
            Err(Failure::Closed(error)) => {
                seat.session.end();
                Err(Failure::Closed(error))
            }
            Err(Failure::Refused(error)) => {
                // The lock may be taken though its grant isn't counted.
                if unlock(&link, &seat.session, &self.place, self.key)
                    .await
                    .is_ok()
                {
                    seat.with(Place::ended);
                }
                Err(Failure::Refused(error))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Begins to wait for the lock.
    async fn wait(&mut self) -> Result<Option<Attempt>, Failure> {
        let Ok(permit) = self.shared.waits.clone().try_acquire_owned() else {
            // Too many wait already: it is tried now and then.
            return Ok(Some(busy(LOOK)));
        };
        let pool = &self.shared.pool;
        self.waiting = Waiting::begin(pool, self.claim.ttl, self.key, permit).await?;
        Ok(self.waiting.as_ref().map(|_| busy(LOOK)))
    }

    /// Looks what came of the wait.
    async fn waited(&mut self) -> Result<Option<Attempt>, Failure> {
        // From its end on, it ends with this call, unless that grants it.
        let Some(waiting) = self.waiting.take_if(|waiting| waiting.is_over()) else {
            return Ok(self.waiting.as_ref().map(|_| busy(LOOK)));
        };
        let note = note::text(&self.claim.identity);
        let ask = ask(&self.claim, self.key, &note);
        match waiting.count(&ask, &self.place).await {
            Ok(Waited::Granted { token, since, seat }) => {
                self.seat = Some(seat);
                self.hold(token, since)?;
                Ok(self.held.map(|held| self.granted(held)))
            }
            Ok(Waited::HeldBack(left)) => Ok(Some(busy(left))),
            Ok(Waited::Lost) => Ok(None),
            Err(Failure::NoTable) => {
                self.shared.make_table().await?;
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// The lock is held by its seat's session.
    fn hold(&mut self, token: u64, since: Moment) -> Result<(), Failure> {
        let token = Token::new(token).ok_or_else(|| Failure::Refused(unexpected("the token")))?;
        self.held = Some(Hold { token, since });
        if let Some(seat) = &self.seat {
            let (session, place) = (Arc::downgrade(&seat.session), self.place.clone());
            self.turn.holds(move || {
                let session = session.upgrade().filter(|session| !session.is_over());
                session
                    .and_then(|session| session.place(&place, |place| place.is_clean()))
                    .unwrap_or(true)
            });
        }
        Ok(())
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
        let had = unlock(&link, &seat.session, &self.place, self.key).await?;
        seat.with(Place::ended);
        Ok(had)
    }

    /// What became of a hold that isn't there any more.
    async fn ended(&mut self, again: bool) -> Result<Release> {
        let standing = look::standing(&self.shared, &self.claim.name, self.key).await?;
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
impl Contender for PostgresContender {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        let mut last = None;
        for _ in 0..ROUNDS {
            match self.round().await {
                Ok(Some(attempt)) => return Ok(attempt),
                Ok(None) => {}
                // A session that was idle until now may have ended unseen.
                Err(Failure::Closed(error)) => last = Some(error),
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

fn ask<'a>(claim: &'a Claim, key: Key, note: &'a str) -> Ask<'a> {
    Ask {
        key,
        name: claim.name.as_str(),
        ttl: claim.ttl,
        note,
    }
}

fn busy(look_in: Duration) -> Attempt {
    Attempt::Busy(Busy {
        holder: None,
        position: None,
        retry_in: Some(look_in),
    })
}

impl fmt::Debug for PostgresContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresContender")
            .field("name", &self.claim.name)
            .field("owner", &self.claim.owner)
            .field("ttl", &self.claim.ttl)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

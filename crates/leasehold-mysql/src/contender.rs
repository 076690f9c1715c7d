//! One acquisition on MySQL.
//!
//! ```text
//! its turn in this client ── try and count, in one statement, on a session that many holds share ──► granted
//!          │ busy
//!          └─ wait on a session of its own ── count, on the same one ──► granted; the session is one of many then
//! ```

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt, Busy, Contender, Grant, Release, Renewal};
use leasehold_core::clock::{self, Moment};
use leasehold_core::session::{Pulse, end};
use leasehold_core::{Claim, Error, ErrorKind, Result, Token};

use crate::backend::Shared;
use crate::error::{Failure, unexpected};
use crate::keys::lock_name;
use crate::link::{Ask, Tried, whole, within};
use crate::look;
use crate::note;
use crate::session::{Made, Place, Seat, Turn, unlock};
use crate::waiting::Waiting;

/// How long a try may take to be answered: the wait loop gives up a little later.
const PATIENCE: Duration = Duration::from_millis(4500);
/// How often one try may begin anew because its session ended or there was no table.
const ROUNDS: u32 = 3;
/// How long a waiter goes at most without looking.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct MysqlContender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) claim: Claim,
    /// What the server calls the lock.
    lock: String,
    turn: Turn,
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

impl MysqlContender {
    pub(crate) fn new(shared: Arc<Shared>, claim: Claim) -> Self {
        Self {
            turn: shared.turns.attempt(claim.name.clone()),
            lock: lock_name(&claim.name),
            shared,
            claim,
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
                .seat(&self.claim.name, whole(self.claim.ttl))
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
            unlock(&link, &seat.session, &self.claim.name).await?;
            seat.with(Place::ended);
        }
        seat.mailbox.clear();
        let since = clock::now();
        if !seat.with(|place| place.send(end(since, self.claim.ttl))) {
            self.seat = None;
            return Ok(None);
        }
        let note = note::text(&self.claim.identity);
        let ask = ask(&self.claim, &self.lock, &note);
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
                if unlock(&link, &seat.session, &self.claim.name).await.is_ok() {
                    seat.with(Place::ended);
                }
                Err(Failure::Refused(error))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Begins to wait for the lock on a session that nobody holds by.
    async fn wait(&mut self) -> Result<Option<Attempt>, Failure> {
        let Ok(permit) = self.shared.waits.clone().try_acquire_owned() else {
            // Too many wait already: it is tried now and then.
            return Ok(Some(busy(LOOK)));
        };
        let lent = self.shared.pool.lend(whole(self.claim.ttl));
        let lent = lent.map_err(Failure::Refused)?;
        let Some(session) = lent.session() else {
            return Ok(None);
        };
        let link = match session.ready().await {
            Ok(link) => link,
            Err(_) if session.has_ended() => return Ok(None),
            Err(error) => return Err(Failure::Refused(error)),
        };
        self.waiting = Some(Waiting::begin(lent, link, &self.lock, permit));
        Ok(Some(busy(LOOK)))
    }

    /// Looks what came of the wait. The server's answer may be old: the lock is held from the send of what counts it on.
    async fn waited(&mut self) -> Result<Option<Attempt>, Failure> {
        let Some(waiting) = &mut self.waiting else {
            return Ok(None);
        };
        if poll_fn(|context| Poll::Ready(waiting.poll(context)))
            .await
            .is_pending()
        {
            return Ok(Some(busy(LOOK)));
        }
        // From here on it ends with this call, unless that grants it.
        let Some(mut waiting) = self.waiting.take() else {
            return Ok(None);
        };
        if !waiting.outcome()? {
            waiting.again(&self.lock);
            self.waiting = Some(waiting);
            return Ok(Some(busy(LOOK)));
        }
        let note = note::text(&self.claim.identity);
        let ask = ask(&self.claim, &self.lock, &note);
        let since = clock::now();
        match within(PATIENCE, waiting.link.count(&ask)).await {
            Ok(Tried::Granted(token)) => {
                let pulse = Pulse {
                    since,
                    ttl: whole(self.claim.ttl),
                    keys: Arc::default(),
                };
                let Some(seat) = waiting.lent.seat(&self.claim.name, pulse) else {
                    return Ok(None);
                };
                seat.with(|place| {
                    place.send(end(since, self.claim.ttl));
                    place.answered();
                    place.made = Some(Made { token });
                });
                self.seat = Some(seat);
                self.hold(token, since)?;
                Ok(self.held.map(|held| self.granted(held)))
            }
            Ok(Tried::HeldBack(left)) => Ok(Some(busy(left))),
            Ok(Tried::Busy) => Ok(None),
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
            let (session, name) = (Arc::downgrade(&seat.session), self.claim.name.clone());
            self.turn.holds(move || {
                let session = session.upgrade().filter(|session| !session.is_over());
                session
                    .and_then(|session| session.place(&name, |place| place.is_clean()))
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
        let had = unlock(&link, &seat.session, &self.claim.name).await?;
        seat.with(Place::ended);
        Ok(had)
    }

    /// What became of a hold that isn't there any more.
    async fn ended(&mut self, again: bool) -> Result<Release> {
        let standing = look::standing(&self.shared, &self.claim.name).await?;
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
impl Contender for MysqlContender {
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
        self.turn.leave();
        Ok(release)
    }
}

fn ask<'a>(claim: &'a Claim, lock: &'a str, note: &'a str) -> Ask<'a> {
    Ask {
        lock,
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

impl fmt::Debug for MysqlContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlContender")
            .field("name", &self.claim.name)
            .field("owner", &self.claim.owner)
            .field("ttl", &self.claim.ttl)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

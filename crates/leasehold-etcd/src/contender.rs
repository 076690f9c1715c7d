//! One acquisition on etcd.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt, Busy, Contender, Grant, Release, Renewal};
use leasehold_core::clock::{self, Moment};
use leasehold_core::session::end;
use leasehold_core::{Claim, Error, ErrorKind, Result, Token};

use crate::attempt::{self, Outcome, Try};
use crate::backend::Shared;
use crate::ending;
use crate::error::{Failure, unexpected};
use crate::feed::Registration;
use crate::keys::{self, FIRST};
use crate::note::{self, Note};
use crate::owner::{LOCK_KEY, LOCK_REV};
use crate::session::{Lease, Made, Place, Seat, Session};
use crate::wire::{KeyValue, TxnResponse};

/// How often one try may begin anew because its session ended or others voided it.
const ROUNDS: u32 = 64;
/// How long a waiter goes at most without asking.
const LOOK_MAX: Duration = Duration::from_secs(5);

pub(crate) struct EtcdContender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) claim: Claim,
    pub(crate) seat: Option<Seat>,
    pub(crate) told: Option<Registration>,
    pub(crate) held: Option<Hold>,
    /// A release was sent and not answered.
    releasing: bool,
    /// Take a place behind others: it waits and has found or expects the lock busy, or can't tell without whether it is.
    joins: bool,
}

/// A grant as it was answered last.
pub(crate) struct Hold {
    pub(crate) key: Vec<u8>,
    pub(crate) made: i64,
    pub(crate) since: Moment,
}

impl EtcdContender {
    pub(crate) fn new(shared: Arc<Shared>, claim: Claim) -> Self {
        // A try that doesn't is half the size, and mostly nobody holds the lock.
        let joins = claim.waits && shared.feed.watches(&claim.name);
        Self {
            shared,
            joins,
            claim,
            seat: None,
            told: None,
            held: None,
            releasing: false,
        }
    }

    /// One round of a try; none where it is to begin anew.
    async fn round(&mut self) -> Result<Option<Attempt>> {
        if self.seat.as_ref().is_none_or(|seat| seat.session.is_over()) {
            // Nothing of an old session is adopted.
            self.told = None;
            self.seat = Some(self.shared.seat(&self.claim.name, self.claim.ttl)?);
        }
        let Some(seat) = &self.seat else {
            return Ok(None);
        };
        let lease = match seat.session.ready().await {
            Ok(lease) => lease,
            Err(_) if seat.session.has_ended() => return Ok(None),
            Err(error) => return Err(error),
        };
        seat.mailbox.clear();
        let outcome = match seat.with(|place| place.made.as_ref().map(|made| made.at)) {
            Some(made) => self.look(seat, &lease, made).await?,
            None => self.send(seat, &lease).await?,
        };
        let Some(outcome) = outcome else {
            self.seat = None;
            return Ok(None);
        };
        self.take(outcome, &lease).await
    }

    /// Sends a try. None where its place was given up.
    async fn send(&self, seat: &Seat, lease: &Lease) -> Result<Option<Outcome>> {
        let claim = &self.claim;
        let note = |since| Note::text(claim.owner, &claim.identity, since);
        let attempt = Try {
            name: &claim.name,
            owner: claim.owner,
            lease,
            notes: [note(Some(clock::wall())), note(None)],
            joins: self.joins,
        };
        let mut tried = 0;
        let answer = loop {
            tried += 1;
            if !seat.with(|place| place.send(end(clock::now(), claim.ttl))) {
                return Ok(None);
            }
            match self
                .shared
                .grants
                .call(attempt.request(), self.shared.patience())
                .await
            {
                // It may land yet. The next one finds that, or comes first.
                Err(Failure::Unanswered(_)) if tried < self.shared.grants.members() => {}
                Err(failure) if failure.may_land() => return Err(failure.into()),
                answer => break answer,
            }
        };
        let outcome = match answer {
            Ok(answer) => attempt
                .outcome(&answer)
                .ok_or_else(|| unexpected("what was asked"))?,
            Err(Failure::LeaseGone) => Outcome::SessionOver,
            Err(failure) => {
                seat.with(Place::answered);
                return Err(failure.into());
            }
        };
        seat.with(|place| {
            place.answered();
            if let Outcome::First(made) | Outcome::Behind(made, _) | Outcome::MadeUnclear(made) =
                &outcome
            {
                place.made = Some(Made::from(*made));
            }
        });
        Ok(Some(outcome))
    }

    /// Reads where the place stands. None where it was given up.
    async fn look(&self, seat: &Seat, lease: &Lease, made: i64) -> Result<Option<Outcome>> {
        let now = clock::now();
        if !seat.with(|place| place.last(now.boot, end(now, self.claim.ttl))) {
            return Ok(None);
        }
        let outcome = self.read(lease, made, FIRST).await?;
        if outcome == Outcome::Gone {
            seat.with(|place| place.made = None);
        }
        Ok(Some(outcome))
    }

    async fn read(&self, lease: &Lease, made: i64, limit: i64) -> Result<Outcome> {
        let name = &self.claim.name;
        let look = attempt::look(name, &keys::place(name, lease.id), limit);
        let answer: TxnResponse = self.shared.grants.ask(look, self.shared.patience()).await?;
        attempt::looked(name, made, &answer).ok_or_else(|| unexpected("what was asked"))
    }

    /// Acts on what came of a try; none where it is to begin anew.
    async fn take(&mut self, outcome: Outcome, lease: &Lease) -> Result<Option<Attempt>> {
        let outcome = match outcome {
            Outcome::MadeUnclear(made) => self.read(lease, made, 0).await?,
            outcome => outcome,
        };
        match outcome {
            Outcome::First(made) => self.grant(made, lease).await,
            Outcome::Behind(made, first) if self.claim.waits => Ok(Some(self.wait(made, &first))),
            Outcome::Behind(_, first) => {
                // It had to take a place to find out.
                self.give_back().await?;
                Ok(Some(busy(&first, self.look_in())))
            }
            Outcome::Busy(first) if !self.claim.waits || self.joins => {
                Ok(Some(busy(&first, self.look_in())))
            }
            Outcome::Busy(_) | Outcome::Unclear | Outcome::MadeUnclear(_) => {
                self.joins = true;
                Ok(None)
            }
            Outcome::Voided(written) => {
                self.session()?.update(|lease| lease.written_at(written));
                Ok(None)
            }
            Outcome::SessionOver => {
                self.session()?.end();
                Ok(None)
            }
            Outcome::Gone => {
                self.told = None;
                Ok(None)
            }
            Outcome::Taken => {
                // Another session has another key; this one's name stays taken for a while.
                let until = end(clock::now(), self.claim.ttl);
                if let Some(seat) = self.seat.take() {
                    seat.with(|place| place.block(until));
                }
                Ok(None)
            }
        }
    }

    async fn grant(&mut self, made: i64, lease: &Lease) -> Result<Option<Attempt>> {
        let Some(seat) = &self.seat else {
            return Ok(None);
        };
        let Some(pulse) = seat.beginning().await? else {
            return Ok(None);
        };
        let Renewal::Renewed { since, ttl } = seat.renewed(&pulse, self.claim.ttl) else {
            self.seat = None;
            return Ok(None);
        };
        self.held = Some(Hold {
            key: keys::place(&self.claim.name, lease.id),
            made,
            since,
        });
        let token = u64::try_from(made).ok().and_then(Token::new);
        Ok(Some(Attempt::Granted(Grant {
            token: token.ok_or_else(|| unexpected("a revision"))?,
            since,
            ttl,
        })))
    }

    fn wait(&mut self, made: i64, first: &KeyValue) -> Attempt {
        if let Some(seat) = &self.seat
            && self.told.is_none()
        {
            let feed = &self.shared.feed;
            self.told = Some(feed.join(&self.claim.name, made, seat.mailbox.clone()));
        }
        busy(first, self.look_in())
    }

    /// When to ask again without having been told: often enough for the place to stay.
    fn look_in(&self) -> Duration {
        (self.claim.ttl / 3).min(LOOK_MAX)
    }

    /// Deletes the place; answers whether it was there.
    async fn give_back(&mut self) -> Result<bool> {
        let Some(seat) = &self.seat else {
            return Ok(false);
        };
        let ended = ending::end(
            &self.shared.grants,
            &seat.session,
            &self.claim.name,
            self.shared.patience(),
        )
        .await?;
        seat.with(Place::ended);
        Ok(ended)
    }

    fn session(&self) -> Result<&Session> {
        self.seat
            .as_ref()
            .map(|seat| &*seat.session)
            .ok_or_else(|| Error::new(ErrorKind::Bug, "a try without a session"))
    }
}

#[async_trait]
impl Contender for EtcdContender {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        for _ in 0..ROUNDS {
            if let Some(attempt) = self.round().await? {
                return Ok(attempt);
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "sessions end, or are voided by attempts that are given up, as soon as they are made; is the cluster healthy?",
        ))
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &self.seat {
            Some(seat) => seat.mailbox.poll_changed(context),
            None => Poll::Pending,
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        self.held.as_ref().map_or_else(Vec::new, |held| {
            let key = String::from_utf8_lossy(&held.key).into_owned();
            vec![(LOCK_KEY, key), (LOCK_REV, held.made.to_string())]
        })
    }

    async fn renew(&mut self, ttl: Duration) -> Result<Renewal> {
        self.renew_hold(ttl).await
    }

    async fn release(&mut self, keep: Duration) -> Result<Release> {
        let again = std::mem::replace(&mut self.releasing, true);
        let freed = match &self.seat {
            Some(seat) if !keep.is_zero() => {
                let (link, patience) = (&self.shared.grants, self.shared.patience());
                let kept =
                    ending::keep(link, &seat.session, &self.claim.name, keep, patience).await?;
                seat.with(Place::ended);
                kept
            }
            Some(_) => self.give_back().await?,
            None => false,
        };
        let release = if freed {
            Release::Freed
        } else if self.held.is_some() || again {
            let answer = self
                .shared
                .grants
                .ask(keys::oldest(&self.claim.name, 0), self.shared.patience());
            match attempt::first(&self.claim.name, &answer.await?) {
                Some(_) => Release::Another,
                // What an unanswered release left may well be its work.
                None if again => Release::Freed,
                None => Release::Expired,
            }
        } else {
            Release::Expired
        };
        self.told = None;
        self.seat = None;
        Ok(release)
    }
}

fn busy(first: &KeyValue, look_in: Duration) -> Attempt {
    Attempt::Busy(Busy {
        holder: Some(note::holder(first)),
        position: None,
        retry_in: Some(look_in),
    })
}

impl fmt::Debug for EtcdContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdContender")
            .field("name", &self.claim.name)
            .field("owner", &self.claim.owner)
            .field("ttl", &self.claim.ttl)
            .finish_non_exhaustive()
    }
}

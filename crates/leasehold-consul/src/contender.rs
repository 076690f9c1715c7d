//! One acquisition on Consul.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt, Busy, Contender, Grant, Release, Renewal};
use leasehold_core::clock::{self, Moment};
use leasehold_core::session::{Mailbox, end};
use leasehold_core::{Claim, Error, ErrorKind, Result, Token};
use tokio::task::JoinHandle;

use crate::attempt::{self, Free, Looked, Tried};
use crate::backend::Shared;
use crate::error::{Failure, unexpected};
use crate::feed::Registration;
use crate::keys;
use crate::note::{self, Note};
use crate::session::{Made, Place, Seat};
use crate::wire::{Entry, TxnAnswer};

/// How often one try may begin anew because its session ended or others were faster.
const ROUNDS: u32 = 64;
/// How long a waiter goes at most without asking.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// When to ask again for a lock that is kept from everybody.
const DELAYED: Duration = Duration::from_secs(1);

/// An id that no session has.
const NO_SESSION: &str = "";

/// What `consul lock` gives its command.
const LOCK_HELD: &str = "CONSUL_LOCK_HELD";

pub(crate) struct ConsulContender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) claim: Claim,
    pub(crate) key: String,
    /// Only while it tries or holds: a waiter takes none.
    pub(crate) seat: Option<Seat>,
    mailbox: Arc<Mailbox>,
    pub(crate) told: Option<Registration>,
    pub(crate) held: Option<Hold>,
    /// How the lock is free, as far as is known; none where it must be looked at first.
    free: Option<Free>,
    pub(crate) trying: Option<Trying>,
    /// A release was sent and not answered.
    pub(crate) releasing: bool,
}

/// A try under way.
pub(crate) struct Trying {
    answer: JoinHandle<Result<TxnAnswer, Failure>>,
    /// What it writes, and what it takes to be so.
    note: Note,
    free: Free,
    /// The highest index that was known when it was sent.
    seen: u64,
}

/// A grant as it was answered last.
pub(crate) struct Hold {
    pub(crate) token: u64,
    pub(crate) since: Moment,
    pub(crate) note: Note,
}

impl ConsulContender {
    pub(crate) fn new(shared: Arc<Shared>, claim: Claim) -> Self {
        Self {
            shared,
            key: keys::key(&claim.name),
            claim,
            seat: None,
            mailbox: Arc::default(),
            told: None,
            held: None,
            free: Some(Free::Absent),
            trying: None,
            releasing: false,
        }
    }

    /// One round of a try; none where it is to begin anew.
    async fn round(&mut self) -> Result<Option<Attempt>> {
        if self.seat.as_ref().is_none_or(|seat| seat.session.is_over()) {
            // Nothing of an old session is adopted.
            self.seat = Some(self.shared.seat(&self.claim.name, self.claim.ttl)?);
        }
        let Some(seat) = &self.seat else {
            return Ok(None);
        };
        if seat.session.live().is_none() && !seat.session.is_over() {
            // A look takes no session, so it may as well go on while that begins.
            if let Some(busy) = self.peek().await? {
                return Ok(Some(busy));
            }
        }
        let Some(seat) = &self.seat else {
            return Ok(None);
        };
        let id = match seat.session.ready().await {
            Ok(id) => id,
            Err(_) if seat.session.has_ended() => return Ok(None),
            Err(error) => return Err(error),
        };
        seat.mailbox.clear();
        // What a try that had no answer came to must be known before the next one.
        let look = !seat.with(|place| place.is_clean());
        match self.free.take().filter(|_| !look) {
            Some(free) => self.send(&id, free).await,
            None => self.look(&id).await,
        }
    }

    /// Looks whether somebody holds the lock.
    async fn peek(&mut self) -> Result<Option<Attempt>> {
        let patience = self.shared.patience();
        let entry = self.shared.link().entry(&self.key, patience).await?;
        match attempt::looked(entry.as_ref(), NO_SESSION, self.claim.owner)? {
            Looked::Free(free) => {
                self.free = Some(free);
                Ok(None)
            }
            _ => Ok(Some(self.busy(entry.as_ref(), self.look_in())?)),
        }
    }

    /// Sends a try.
    async fn send(&mut self, id: &str, free: Free) -> Result<Option<Attempt>> {
        let Some(seat) = &self.seat else {
            return Ok(None);
        };
        if !seat.with(|place| place.send(end(clock::now(), self.claim.ttl))) {
            self.seat = None;
            return Ok(None);
        }
        let note = Note::new(self.claim.owner, &self.claim.identity, clock::wall());
        let seen = self.shared.seen();
        let shared = self.shared.clone();
        let (key, id, text) = (self.key.clone(), id.to_owned(), note.text());
        // A task of its own, so that its answer is known also where nobody waits for it any more.
        let answer = tokio::spawn(async move {
            let request = attempt::request(&key, free, &id, &text);
            shared.link().txn(&request, shared.patience()).await
        });
        self.trying = Some(Trying {
            answer,
            note,
            free,
            seen,
        });
        self.settle().await
    }

    /// Acts on the answer to a try, if one is under way.
    async fn settle(&mut self) -> Result<Option<Attempt>> {
        let Some((tried, trying)) = self.answer().await? else {
            return Ok(None);
        };
        match tried {
            Tried::Locked(index) if index <= trying.seen => {
                self.went_back(index, trying.seen).await
            }
            Tried::Locked(index) => {
                self.shared.saw(index);
                self.grant(index, trying.note).await
            }
            Tried::Look => Ok(None),
            Tried::Delayed => Ok(Some(self.busy(None, DELAYED)?)),
            Tried::SessionOver => {
                if let Some(seat) = &self.seat {
                    seat.session.end();
                }
                self.free = Some(trying.free);
                Ok(None)
            }
            Tried::Refused(error) => Err(error),
        }
    }

    /// Waits for the answer to a try, if one is under way, and notes what of it is in the store.
    pub(crate) async fn answer(&mut self) -> Result<Option<(Tried, Trying)>> {
        let Some(trying) = &mut self.trying else {
            return Ok(None);
        };
        let answer = (&mut trying.answer).await;
        let (Some(trying), Some(seat)) = (self.trying.take(), &self.seat) else {
            return Ok(None);
        };
        let tried = match answer {
            Ok(Ok(answer)) => {
                attempt::tried(&answer).ok_or_else(|| unexpected("what was asked"))?
            }
            // It may land yet; the next round looks whether it has.
            Ok(Err(failure)) if failure.may_land() => return Err(failure.into()),
            Ok(Err(failure)) => {
                seat.with(Place::answered);
                return Err(failure.into());
            }
            Err(_) => {
                return Err(Error::new(
                    ErrorKind::Ambiguous,
                    "the runtime that asked has ended",
                ));
            }
        };
        seat.with(|place| {
            place.answered();
            if let Tried::Locked(index) = tried {
                place.made = Some(Made { index });
            }
        });
        Ok(Some((tried, trying)))
    }

    /// Reads how the lock stands and acts on it.
    async fn look(&mut self, id: &str) -> Result<Option<Attempt>> {
        let patience = self.shared.patience();
        let entry = self.shared.link().entry(&self.key, patience).await?;
        let looked = attempt::looked(entry.as_ref(), id, self.claim.owner)?;
        let Some(seat) = &self.seat else {
            return Ok(None);
        };
        match looked {
            Looked::Ours { index, token } => {
                seat.with(|place| {
                    // If it was the only one without an answer, this is its answer.
                    if place.made.is_none() && place.unanswered == 1 {
                        place.answered();
                    }
                    place.made = Some(Made { index });
                });
                let note = entry.as_ref().and_then(Note::of);
                let note = note.ok_or_else(|| unexpected("the holder"))?;
                self.grant(token, note).await
            }
            Looked::Taken => {
                let until = end(clock::now(), self.claim.ttl);
                seat.with(|place| place.block(until));
                self.seat = None;
                Ok(None)
            }
            Looked::Busy => {
                // What was ours isn't any more.
                seat.with(|place| place.made = None);
                if let Some(entry) = &entry {
                    self.shared.saw(entry.modify_index);
                }
                Ok(Some(self.busy(entry.as_ref(), self.look_in())?))
            }
            Looked::Free(free) => {
                seat.with(|place| place.made = None);
                if seat.with(|place| !place.is_clean()) {
                    // The next round would look again: send it from here.
                    return self.send(id, free).await;
                }
                self.free = Some(free);
                Ok(None)
            }
        }
    }

    async fn grant(&mut self, token: u64, note: Note) -> Result<Option<Attempt>> {
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
        self.told = None;
        self.held = Some(Hold { token, since, note });
        Ok(Some(Attempt::Granted(Grant {
            token: Token::new(token).ok_or_else(|| unexpected("an index"))?,
            since,
            ttl,
        })))
    }

    /// The cluster's index was higher before: it has lost its memory, and tokens would fall.
    async fn went_back(&mut self, index: u64, seen: u64) -> Result<Option<Attempt>> {
        self.give_back().await?;
        // Unsupported, because no later try can succeed with this client.
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the cluster's index is {index} and was {seen} before: it was restored or made anew, and the fencing \
                 token has gone back; look after the resources, then start again"
            ),
        ))
    }

    /// Somebody else has the lock: the session is for others until it is worth trying again.
    fn busy(&mut self, entry: Option<&Entry>, retry_in: Duration) -> Result<Attempt> {
        if self
            .seat
            .as_ref()
            .is_some_and(|seat| seat.with(|place| place.is_clean()))
        {
            self.seat = None;
        }
        if self.claim.waits && self.told.is_none() {
            let feed = &self.shared.feed;
            self.told = Some(feed.join(&self.claim.name, self.mailbox.clone())?);
        }
        Ok(Attempt::Busy(Busy {
            holder: entry.map(note::holder),
            position: None,
            retry_in: Some(retry_in),
        }))
    }

    /// When to ask again without having been told.
    fn look_in(&self) -> Duration {
        (self.claim.ttl / 3).min(LOOK_MAX)
    }
}

#[async_trait]
impl Contender for ConsulContender {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        if let Some(attempt) = self.settle().await? {
            return Ok(attempt);
        }
        if self.mailbox.clear() {
            self.free = self.told.as_ref().and_then(Registration::free);
        }
        let mut agents = 1;
        for _ in 0..ROUNDS {
            match self.round().await {
                Ok(Some(attempt)) => return Ok(attempt),
                Ok(None) => {}
                // The next agent says what came of it.
                Err(error)
                    if error.kind() == ErrorKind::Ambiguous && agents < self.shared.agents() =>
                {
                    agents += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "the lock changes hands, or sessions end, faster than it can be asked for; is the cluster healthy?",
        ))
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(seat) = &self.seat
            && seat.mailbox.poll_changed(context).is_ready()
        {
            return Poll::Ready(());
        }
        self.mailbox.poll_changed(context)
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![(LOCK_HELD, "true".into())]
    }

    async fn renew(&mut self, ttl: Duration) -> Result<Renewal> {
        self.renew_hold(ttl).await
    }

    async fn release(&mut self, keep: Duration) -> Result<Release> {
        self.leave(keep).await
    }
}

impl fmt::Debug for ConsulContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsulContender")
            .field("name", &self.claim.name)
            .field("owner", &self.claim.owner)
            .field("ttl", &self.claim.ttl)
            .finish_non_exhaustive()
    }
}

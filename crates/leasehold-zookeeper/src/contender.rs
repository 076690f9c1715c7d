//! One acquisition on ZooKeeper.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt, Busy, Contender, Grant, Release, Renewal};
use leasehold_core::clock::{self, Moment};
use leasehold_core::session::{Pulse, end};
use leasehold_core::{Claim, Error, ErrorKind, Result};

use crate::backend::Shared;
use crate::ending;
use crate::error::{Failure, unexpected};
use crate::keys::{self, Standing};
use crate::link::{Link, in_array};
use crate::note::{self, Note};
use crate::session::{Made, Place, Seat};
#[cfg(test)]
use crate::simulation::fault::{self, Fault};
use crate::wire::{Answer, Kind, Request};

/// How often one try may begin anew because its session ended or those before it went.
const ROUNDS: u32 = 64;
/// How long a waiter goes at most without asking.
const LOOK_MAX: Duration = Duration::from_secs(5);

pub(crate) struct ZooKeeperContender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) claim: Claim,
    pub(crate) seat: Option<Seat>,
    pub(crate) held: Option<Hold>,
    /// A release was sent and not answered.
    releasing: bool,
}

/// A grant as it was answered last.
pub(crate) struct Hold {
    pub(crate) made: Made,
    pub(crate) since: Moment,
}

/// What a round of a try found.
enum Found {
    /// The place of this node stands so; when what proves that the session was there then was sent.
    Place(Made, Standing, Option<Moment>),
    /// Nothing: it is to begin anew.
    Nothing,
}

impl ZooKeeperContender {
    pub(crate) fn new(shared: Arc<Shared>, claim: Claim) -> Self {
        Self {
            shared,
            claim,
            seat: None,
            held: None,
            releasing: false,
        }
    }

    fn lock(&self) -> String {
        self.shared.config.path(&self.claim.name)
    }

    /// One round of a try; none where it is to begin anew.
    async fn round(&mut self) -> Result<Option<Attempt>, Failure> {
        if self.seat.as_ref().is_none_or(|seat| seat.session.is_over()) {
            // Nothing of an old session is adopted.
            self.seat = Some(
                self.shared
                    .pool
                    .seat(&self.claim.name, self.claim.ttl)
                    .map_err(Failure::Refused)?,
            );
        }
        let Some(seat) = &self.seat else {
            return Ok(None);
        };
        let link = match seat.session.ready().await {
            Ok(link) => link,
            Err(_) if seat.session.has_ended() => return Ok(None),
            Err(error) => return Err(Failure::Refused(error)),
        };
        #[cfg(test)]
        if let Some(made) = fault::unseen(seat) {
            return self.grant(made, None).await;
        }
        seat.mailbox.clear();
        let found = match self.find(seat, &link).await {
            Err(Failure::SessionOver) => {
                seat.session.end();
                return Ok(None);
            }
            found => found?,
        };
        match found {
            Found::Nothing => {
                self.seat = None;
                Ok(None)
            }
            Found::Place(made, Standing::First, since) => self.grant(made, since).await,
            Found::Place(made, Standing::Behind { before, position }, _) => {
                if self.claim.waits {
                    self.wait(&link, &before, position).await
                } else {
                    self.stand_back(&link, &made, position).await.map(Some)
                }
            }
            Found::Place(_, Standing::Gone, _) => {
                seat.with(|place| place.made = None);
                Ok(None)
            }
        }
    }

    /// Looks where the place stands, or takes one.
    async fn find(&self, seat: &Seat, link: &Link) -> Result<Found, Failure> {
        let (lock, patience) = (self.lock(), self.shared.patience());
        let (made, unanswered) = seat.with(|place| (place.made.clone(), place.unanswered));
        let made = if made.is_none() && unanswered > 0 {
            let made = ending::find(link, &lock, patience).await?;
            seat.with(|place| {
                place.ended();
                place.made.clone_from(&made);
            });
            made
        } else {
            made
        };
        #[cfg(test)]
        let made = fault::by_name(made, seat, link, &lock, self.claim.owner).await;
        let Some(made) = made else {
            return self.make(seat, link, &lock).await;
        };
        let now = clock::now();
        if !seat.with(|place| place.last(now.boot, end(now, self.claim.ttl))) {
            return Ok(Found::Nothing);
        }
        let look = [Request::sync(&lock), Request::children(&lock)];
        #[cfg(test)]
        let look = fault::look(look, Fault::LooksWithoutSync);
        let [synced, children] = link.call(look, patience).await;
        let standing = match synced.and(children) {
            Ok(children) => keys::standing(&made.path, texts(&children)?),
            #[cfg(test)]
            Err(failure) if fault::is_put_in(Fault::KeepsWhatIsGone) => return Err(failure),
            // With the place went the lock's node: somebody deleted both, or the server what was left empty.
            Err(Failure::NoNode) => Standing::Gone,
            Err(failure) => return Err(failure),
        };
        Ok(Found::Place(made, standing, None))
    }

    /// Makes a node in the queue. None where the place was given up.
    async fn make(&self, seat: &Seat, link: &Link, lock: &str) -> Result<Found, Failure> {
        let config = &self.shared.config;
        let name = keys::place(config.layout, self.claim.owner);
        let note = Note::text(&self.claim.identity, clock::wall(), self.claim.ttl);
        let kind = Kind::EphemeralSequential;
        let create = Request::create(&format!("{lock}/{name}"), &note, kind, config.acl());
        let look = Request::children(lock);
        let mut missing = Vec::new();
        for _ in 0..ROUNDS {
            let since = clock::now();
            if !seat.with(|place| place.send(end(since, self.claim.ttl))) {
                return Ok(Found::Nothing);
            }
            let parents = missing.len();
            let take = missing.iter().chain([&create, &look]).cloned();
            let mut answers = link
                .call_each(take, self.shared.patience())
                .await
                .into_iter();
            let refused = answers.by_ref().take(parents).find_map(|made| match made {
                Err(failure @ Failure::Refused(_)) => Some(failure),
                _ => None,
            });
            let [created, children] = in_array(answers);
            let made = match created {
                Err(Failure::NoNode) => {
                    seat.with(Place::answered);
                    if let Some(refused) = refused {
                        return Err(refused);
                    }
                    // The server deletes what stays empty.
                    missing = config.parents(lock);
                    continue;
                }
                Err(failure @ (Failure::Refused(_) | Failure::NodeExists)) => {
                    seat.with(Place::answered);
                    return Err(failure);
                }
                created => created?,
            };
            let (path, stat) = made.created().ok_or_else(|| lacks("the node"))?;
            let made = Made { path, stat };
            seat.with(|place| {
                place.answered();
                place.made = Some(made.clone());
            });
            let standing = keys::standing(&made.path, texts(&children?)?);
            return Ok(Found::Place(made, standing, Some(since)));
        }
        Err(Failure::Refused(Error::new(
            ErrorKind::Unavailable,
            "the lock's node is deleted as soon as it is made",
        )))
    }

    async fn grant(
        &mut self,
        made: Made,
        since: Option<Moment>,
    ) -> Result<Option<Attempt>, Failure> {
        let Some(seat) = &self.seat else {
            return Ok(None);
        };
        let Some(link) = seat.session.live() else {
            return Ok(None);
        };
        // Making the node was a write, as a beat is.
        let made_by = since.and_then(|since| {
            let ttl = link.worth(since)?;
            let keys = Arc::default();
            Some(Pulse { since, ttl, keys })
        });
        let pulse = match made_by {
            Some(pulse) => pulse,
            None => match seat.beginning().await.map_err(Failure::Refused)? {
                Some(pulse) => pulse,
                None => return Ok(None),
            },
        };
        let Renewal::Renewed { since, ttl } = seat.renewed(&pulse, self.claim.ttl) else {
            self.seat = None;
            return Ok(None);
        };
        // Whoever deletes it takes the lock away at once.
        link.watch(&made.path, &seat.mailbox);
        let token = note::token(made.stat).ok_or_else(|| lacks("the change that made it"))?;
        self.held = Some(Hold { made, since });
        Ok(Some(Attempt::Granted(Grant { token, since, ttl })))
    }

    /// Watches the place before ours. None where that is gone.
    async fn wait(
        &self,
        link: &Link,
        before: &str,
        position: u32,
    ) -> Result<Option<Attempt>, Failure> {
        let Some(seat) = &self.seat else {
            return Ok(None);
        };
        let before = format!("{}/{before}", self.lock());
        let patience = self.shared.patience();
        match link.call_watching(&before, &seat.mailbox, patience).await {
            Ok(()) => Ok(Some(busy(position, self.look_in()))),
            Err(Failure::NoNode | Failure::SessionOver) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Gives the place back that it took to find out.
    async fn stand_back(
        &self,
        link: &Link,
        made: &Made,
        position: u32,
    ) -> Result<Attempt, Failure> {
        let delete = [Request::delete(&made.path)];
        let [deleted] = link.call(delete, self.shared.patience()).await;
        match deleted {
            Ok(_) | Err(Failure::NoNode | Failure::SessionOver) => {}
            Err(failure) => return Err(failure),
        }
        if let Some(seat) = &self.seat {
            seat.with(Place::ended);
        }
        Ok(busy(position, self.look_in()))
    }

    /// When to ask again without having been told: often enough for the place to stay.
    fn look_in(&self) -> Duration {
        (self.claim.ttl / 3).min(LOOK_MAX)
    }

    /// Deletes the place; answers whether it was there.
    async fn give_back(&self) -> Result<bool> {
        let Some(seat) = &self.seat else {
            return Ok(false);
        };
        let Some(link) = seat.session.live() else {
            return Ok(false);
        };
        let (config, patience) = (&self.shared.config, self.shared.patience());
        let ended = ending::end(&link, &seat.session, config, &self.claim.name, patience).await?;
        seat.with(Place::ended);
        Ok(ended)
    }

    /// Whether anybody has the lock.
    async fn is_busy(&self) -> Result<bool> {
        let queue = self.shared.queue(&self.claim.name).await?;
        Ok(!queue.is_empty())
    }
}

#[async_trait]
impl Contender for ZooKeeperContender {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        let mut unanswered = 0;
        for _ in 0..ROUNDS {
            match self.round().await {
                Ok(Some(attempt)) => return Ok(attempt),
                Ok(None) => {}
                // The next round looks at another server what became of it.
                Err(Failure::Unanswered(error)) => {
                    unanswered += 1;
                    if unanswered >= self.shared.turns() {
                        return Err(error);
                    }
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "sessions end as soon as they are made, or places go; is the ensemble healthy?",
        ))
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &self.seat {
            Some(seat) => seat.mailbox.poll_changed(context),
            None => Poll::Pending,
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
        let again = std::mem::replace(&mut self.releasing, true);
        let release = if self.give_back().await? {
            Release::Freed
        } else if self.held.is_none() && !again {
            Release::Expired
        } else if self.is_busy().await? {
            Release::Another
        } else if again {
            // What an unanswered release left may well be its work.
            Release::Freed
        } else {
            Release::Expired
        };
        self.seat = None;
        Ok(release)
    }
}

/// The holder isn't asked for: whoever wants to know looks once.
fn busy(position: u32, look_in: Duration) -> Attempt {
    Attempt::Busy(Busy {
        holder: None,
        position: Some(position),
        retry_in: Some(look_in),
    })
}

pub(crate) fn texts(answer: &Answer) -> Result<Vec<String>, Failure> {
    answer.texts().ok_or_else(|| lacks("the children"))
}

fn lacks(what: &str) -> Failure {
    Failure::Refused(unexpected(what))
}

impl fmt::Debug for ZooKeeperContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperContender")
            .field("name", &self.claim.name)
            .field("owner", &self.claim.owner)
            .field("ttl", &self.claim.ttl)
            .finish_non_exhaustive()
    }
}

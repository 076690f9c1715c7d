//! One acquisition on several nodes: drives the attempt, the renewals and the release.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt as Tried, Busy, Contender, Grant, Release, Renewal};
use leasehold_core::{Claim, Error, ErrorKind, Holder, Name, Owner, Result, Token, clock};
use tokio::sync::mpsc;

use super::attempt::Attempt;
use super::departure::{self, Terms};
use super::exchange::{Effect, Event, Outcome, Request};
use super::inbox::{Mail, Post, Registration};
use super::nodes::{Node, Nodes};
use super::panel::Panel;
use super::renewal::{self, Held};
use super::script::{self, Notice};
use crate::link::Failure;
use crate::renewer::millis;

pub(super) struct RedlockContender {
    panel: Arc<Panel>,
    name: Name,
    owner: Owner,
    keys: Arc<[String; 6]>,
    /// `None` for a hold of another process.
    attempt: Option<Attempt>,
    /// At least one request went out.
    asked: bool,
    /// It is held, as far as anybody was told.
    granted: bool,
    /// The longest it can last.
    ttl: Duration,
    /// What others may see of the holder.
    about: Arc<str>,
    post: Post,
    inbox: mpsc::UnboundedReceiver<Mail>,
    /// Where the nodes tell it; only for one that waits.
    told: Option<Registration>,
    /// It was told that it is worth looking.
    changed: bool,
    /// Why nodes gave no answer in this try.
    failures: BTreeMap<Node, Failure>,
    /// The holder as each node shows it.
    seen: BTreeMap<Node, Holder>,
}

impl RedlockContender {
    pub(super) fn new(panel: Arc<Panel>, claim: Claim) -> Self {
        let attempt = Attempt::new(panel.quorum(), claim.ttl, claim.waits);
        let about = panel.described.of(&claim.identity);
        let mut contender = Self::resumed(panel, claim.name, claim.owner);
        contender.attempt = Some(attempt);
        contender.about = about;
        contender.ttl = claim.ttl;
        contender.asked = false;
        contender.granted = false;
        contender
    }

    /// A hold of another process, to be extended or released.
    pub(super) fn resumed(panel: Arc<Panel>, name: Name, owner: Owner) -> Self {
        let (post, inbox) = mpsc::unbounded_channel();
        Self {
            keys: Arc::new(script::keys(&name, owner)),
            panel,
            name,
            owner,
            attempt: None,
            asked: true,
            granted: true,
            ttl: Duration::ZERO,
            about: "".into(),
            post,
            inbox,
            told: None,
            changed: false,
            failures: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// One try: until the attempt decides.
    async fn try_once(&mut self) -> Result<Outcome> {
        let counted = self.panel.counted().await?;
        self.panel.raise(self.ttl).await?;
        let Some(attempt) = &mut self.attempt else {
            return Err(Error::new(
                ErrorKind::Bug,
                "a hold of another process can't be acquired",
            ));
        };
        if attempt.waits() && self.told.is_none() {
            let waiters = &self.panel.waiters;
            self.told = Some(waiters.register(self.owner, self.post.clone()));
        }
        self.failures.clear();
        self.changed = false;
        self.asked = true;
        let mut effects = Vec::new();
        attempt.begin(counted, clock::now(), &mut effects);
        loop {
            if let Some(outcome) = self.obey(std::mem::take(&mut effects)) {
                return Ok(outcome);
            }
            // It holds a sender itself.
            let Some(mail) = self.inbox.recv().await else {
                return Err(Error::new(ErrorKind::Bug, "an inbox was closed"));
            };
            effects = self.take_in(mail);
        }
    }

    /// Hands in what happened; what is to be done about it.
    fn take_in(&mut self, mail: Mail) -> Vec<Effect> {
        let mut effects = Vec::new();
        let event = match mail {
            Mail::Answered {
                node,
                number,
                answer: Ok((answer, holder)),
            } => {
                self.seen.remove(&node);
                self.seen.extend(holder.map(|holder| (node, holder)));
                Event::Answered {
                    node,
                    number,
                    answer,
                }
            }
            Mail::Answered {
                node,
                number,
                answer: Err(failure),
            } => {
                let may_land = failure.may_land();
                self.panel.site(node).seat.doubt();
                self.failures.insert(node, failure);
                Event::Failed {
                    node,
                    number,
                    may_land,
                }
            }
            Mail::Told(node, Notice::Free { by, .. }) => Event::Told { node, by },
            Mail::Told(_, Notice::Next { .. }) => Event::Called,
            Mail::Told(_, Notice::Broken { .. }) | Mail::Look => {
                self.changed = true;
                return effects;
            }
            Mail::Paused => Event::Paused,
        };
        if let Some(attempt) = &mut self.attempt {
            attempt.handle(event, clock::now(), &mut effects);
        }
        effects
    }

    /// Does what the attempt wants done; its decision, if there is one.
    fn obey(&mut self, effects: Vec<Effect>) -> Option<Outcome> {
        let mut decision = None;
        for effect in effects {
            match effect {
                Effect::Send(node, request) => self.send(node, request),
                Effect::Pause(pause) => {
                    let post = self.post.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(pause).await;
                        let _ = post.send(Mail::Paused);
                    });
                }
                Effect::Decide(outcome) => decision = Some(outcome),
            }
        }
        decision
    }

    /// A request goes out by itself: it is answered also when nobody waits for it any more.
    fn send(&self, node: Node, request: Request) {
        let site = self.panel.site(node).clone();
        let post = self.post.clone();
        let keys = self.keys.clone();
        if let Request::Write { number, token } = request {
            let args = [self.owner.to_hex(), token.to_string()];
            tokio::spawn(async move {
                let answer = site.write(&keys, &args).await;
                let _ = post.send(Mail::Answered {
                    node,
                    number,
                    answer,
                });
            });
            return;
        }
        let Some(((number, mode), attempt)) = script::mode(request).zip(self.attempt.as_ref())
        else {
            return;
        };
        let waits = attempt.waits();
        let channel = if waits { &*self.panel.channel } else { "-" };
        let args = [
            self.owner.to_hex(),
            number.to_string(),
            mode.to_owned(),
            millis(self.ttl).to_string(),
            millis(attempt.alive()).to_string(),
            channel.to_owned(),
            self.about.to_string(),
        ];
        tokio::spawn(async move {
            let answer = site.take(&keys, &args, waits).await;
            let _ = post.send(Mail::Answered {
                node,
                number,
                answer,
            });
        });
    }

    /// Takes in what has arrived.
    fn drain(&mut self) {
        while let Ok(mail) = self.inbox.try_recv() {
            let effects = self.take_in(mail);
            self.obey(effects);
        }
    }

    fn busy(&self, place: Option<u32>, retry_in: Duration) -> Busy {
        // Those that didn't take the holder's token show none.
        let newest = self.seen.values().max_by_key(|holder| holder.token);
        Busy {
            holder: newest.cloned(),
            position: place,
            retry_in: Some(retry_in),
        }
    }

    /// Too few nodes answered.
    fn no_majority(&self, answered: Nodes) -> Error {
        let failures = self.failures.iter();
        let failures = failures.map(|(node, failure)| (*node, failure.error()));
        self.panel.members.shortage(answered, failures)
    }

    fn held(&self) -> Held<'_> {
        Held {
            name: &self.name,
            owner: self.owner,
        }
    }

    fn terms(&self, keep: Duration) -> Terms {
        let attempt = self.attempt.as_ref();
        Terms {
            name: self.name.clone(),
            owner: self.owner,
            ttl: self.ttl,
            loose: attempt.map_or(Nodes::NONE, Attempt::loose),
            keep,
            unheard: !self.granted,
        }
    }

    /// What an attempt that doesn't wait has left on nodes that others have the majority of.
    async fn give_back(&self) {
        let Some(attempt) = &self.attempt else {
            return;
        };
        if attempt.waits() || (attempt.held().is_empty() && attempt.loose().is_empty()) {
            return;
        }
        // The next attempt of this process comes after it on every connection.
        let _ = departure::begin(&self.panel, self.terms(Duration::ZERO)).await;
    }
}

#[async_trait]
impl Contender for RedlockContender {
    async fn try_acquire(&mut self) -> Result<Tried> {
        let mut outcome = self.try_once().await?;
        // Connections that had gone stale while nobody looked: the nodes may be there all the same.
        if let Outcome::NoMajority { .. } = outcome
            && self
                .failures
                .values()
                .any(|failure| matches!(failure, Failure::Stale(_)))
        {
            self.panel.census().await;
            outcome = self.try_once().await?;
        }
        match outcome {
            Outcome::Granted { token, since } => {
                self.granted = true;
                let token = Token::new(token)
                    .ok_or_else(|| Error::new(ErrorKind::Bug, "a token was zero"))?;
                Ok(Tried::Granted(Grant {
                    token,
                    since,
                    ttl: self.ttl,
                }))
            }
            Outcome::Busy {
                place, retry_in, ..
            } => {
                self.give_back().await;
                Ok(Tried::Busy(self.busy(place, retry_in)))
            }
            Outcome::NoMajority { answered } => Err(self.no_majority(answered)),
            // They are there: who waits goes on, as at other stores.
            Outcome::Late => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the nodes' answers took so long that too little of the TTL of {:?} was left",
                    self.ttl
                ),
            )
            .answered()),
        }
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(Some(mail)) = self.inbox.poll_recv(context) {
            let effects = self.take_in(mail);
            self.obey(effects);
        }
        if self.changed || self.attempt.as_ref().is_some_and(Attempt::is_told) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    async fn renew(&mut self, ttl: Duration) -> Result<Renewal> {
        self.drain();
        self.changed = false;
        self.panel.raise(ttl).await?;
        self.ttl = self.ttl.max(ttl);
        let on = self.attempt.as_ref();
        let on = on.map_or(self.panel.quorum().all(), Attempt::held);
        let renewal = renewal::renew(&self.panel, self.held(), on, ttl).await;
        renewal
            .ok_or_else(|| Error::new(ErrorKind::Unavailable, "too few nodes answered the renewal"))
    }

    async fn release(&mut self, keep: Duration) -> Result<Release> {
        if !self.asked {
            return Ok(Release::Expired);
        }
        self.drain();
        if !keep.is_zero() {
            self.panel.raise(keep).await?;
        }
        match departure::begin(&self.panel, self.terms(keep)).await {
            Ok(Err(refusal)) if self.granted => Err(refusal),
            Ok(Ok(Some(Release::Expired)))
                if renewal::was_broken(&self.panel, self.held()).await =>
            {
                Ok(Release::Broken)
            }
            Ok(Ok(Some(found))) => Ok(found),
            // Nothing was held that could be said to be freed; the rest of it goes on by itself.
            _ if !self.granted => Ok(Release::Expired),
            _ => Err(Error::new(
                ErrorKind::Ambiguous,
                "too few nodes answered the release; where it isn't released it ends by its TTL",
            )),
        }
    }
}

impl fmt::Debug for RedlockContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockContender")
            .field("name", &self.name)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

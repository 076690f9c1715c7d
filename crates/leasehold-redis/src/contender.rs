//! One acquisition on Redis.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt, Contender, Grant, LossReason, Release, Renewal};
use leasehold_core::{Claim, Error, ErrorKind, Name, Owner, Result, Token, background, clock};
use redis::Value;

use crate::attempt::Tries;
use crate::backend::Shared;
use crate::keys::Keys;
use crate::link::Failure;
use crate::mailbox::Registration;
use crate::renewer::millis;
use crate::replicas::Replicas;
use crate::reply::{self, Message};
use crate::script::{ACQUIRE, RELEASE};

pub(crate) struct RedisContender {
    shared: Arc<Shared>,
    name: Name,
    owner: Owner,
    /// What a try needs; nothing of it once the lock is held.
    attempt: Option<Box<Trying>>,
    /// Of its grant, once there is one.
    token: Option<Token>,
    /// The tombstone its release must leave.
    tombstone: Duration,
    /// Where it is told; only for one that waited.
    told: Option<Registration>,
}

struct Trying {
    tries: Tries,
    /// What others may see of the holder.
    about: Arc<str>,
}

impl RedisContender {
    pub(crate) fn new(shared: Arc<Shared>, claim: Claim) -> Self {
        let about = shared.described.of(&claim.identity);
        Self {
            shared,
            name: claim.name,
            owner: claim.owner,
            token: None,
            tombstone: Duration::ZERO,
            told: None,
            attempt: Some(Box::new(Trying {
                tries: Tries::new(claim.ttl, claim.waits),
                about,
            })),
        }
    }

    /// A hold of another process, to be extended or released.
    pub(crate) fn resumed(shared: Arc<Shared>, name: Name, owner: Owner) -> Self {
        Self {
            shared,
            name,
            owner,
            token: None,
            tombstone: Duration::ZERO,
            told: None,
            attempt: None,
        }
    }

    /// One try.
    async fn try_once(&mut self) -> Result<Attempt, Failure> {
        let shared = self.shared.clone();
        let Some(trying) = &mut self.attempt else {
            return Err(Failure::Unsent(Error::new(
                ErrorKind::Bug,
                "a hold of another process can't be acquired",
            )));
        };
        let owner = self.owner.to_hex();
        let waits = trying.tries.waits();
        let mut channel = None;
        if waits {
            let ready = shared.subscriber.ready(self.name.as_str()).await;
            channel = Some(ready.map_err(Failure::Unsent)?);
            let told = self
                .told
                .get_or_insert_with(|| shared.subscriber.register(self.owner));
            told.mailbox.clear();
        }
        let number = trying.tries.send(clock::now());
        // Until there is an answer it may land at any time, also after the release.
        self.tombstone = trying.tries.tombstone();
        let args = [
            owner.as_str(),
            &number.to_string(),
            &millis(trying.tries.ttl()).to_string(),
            &millis(trying.tries.alive()).to_string(),
            if waits { "1" } else { "0" },
            channel.as_deref().unwrap_or("-"),
            &trying.about,
        ];
        let keys = keys(&self.name, self.owner);
        let keys = keys.each_ref().map(String::as_str);
        let reply = match shared.grants.call(&ACQUIRE, &keys, &args).await {
            Ok(answer) => reply::try_reply(answer).map_err(Failure::Sent),
            Err(failure) => Err(failure),
        };
        let answered = match reply {
            Ok(reply) => trying.tries.answered(number, reply).map_err(Failure::Sent),
            Err(failure) => {
                if !failure.may_land() {
                    trying.tries.void(number);
                }
                Err(failure)
            }
        };
        self.tombstone = trying.tries.tombstone();
        answered
    }

    /// A try, or a hand-over that has arrived.
    async fn attempt(&mut self) -> Result<Attempt> {
        if let Some(granted) = self.handed() {
            return Ok(granted);
        }
        match self.try_once().await {
            // The try may have landed all the same; the next one finds out.
            Err(Failure::Stale(_)) => Ok(self.try_once().await?),
            attempt => Ok(attempt?),
        }
    }

    /// A grant, once the replicas have it that are asked for. Without them it is given back at once: nothing else
    /// would be told of it.
    async fn confirmed(&mut self, replicas: &Replicas, grant: Grant) -> Result<Attempt> {
        let ttl = self
            .attempt
            .as_ref()
            .map_or(grant.ttl, |trying| trying.tries.ttl());
        let confirmed = replicas.confirm(&self.name, self.owner, ttl, grant).await;
        if confirmed.is_err() {
            // It may be asked for once more by the same owner, who is released for good when it gives up.
            self.end(Duration::ZERO, Duration::ZERO).await?;
        }
        confirmed.map(Attempt::Granted)
    }

    /// Ends the attempt or the hold.
    async fn end(&self, keep: Duration, tombstone: Duration) -> Result<Release> {
        let args = [
            self.owner.to_hex(),
            millis(keep).to_string(),
            millis(tombstone).to_string(),
            u8::from(self.shared.always_hand_over).to_string(),
            self.token
                .map_or_else(String::new, |token| token.to_string()),
        ];
        let args = args.each_ref().map(String::as_str);
        let [lock, counter, queue, waiters, tombstone] = keys(&self.name, self.owner);
        let broken = Keys::broken(&self.name);
        let keys = [&lock, &counter, &queue, &waiters, &tombstone, &broken].map(String::as_str);
        let servers = if background::is_here() {
            // The caller's runtime may be ending: what is sent just then over a connection of its own may be lost
            // without an error.
            self.shared.renewer.servers()
        } else {
            &self.shared.grants
        };
        match servers.call(&RELEASE, &keys, &args).await {
            Err(Failure::Stale(error)) => {
                let again = outcome(servers.call(&RELEASE, &keys, &args).await?)?;
                // If it isn't there any more, the first may be what freed it.
                (again == Release::Freed).then_some(again).ok_or(error)
            }
            answer => outcome(answer?),
        }
    }

    /// A hand-over that has arrived and can still be used.
    fn handed(&mut self) -> Option<Attempt> {
        let message = self.told.as_ref()?.mailbox.take_handed()?;
        let Message::Granted {
            token,
            number,
            alive,
            ..
        } = message
        else {
            return None;
        };
        let trying = self.attempt.as_mut()?;
        trying
            .tries
            .handed(token, number, alive)
            .map(Attempt::Granted)
    }

    fn noted(&mut self, attempt: Attempt) -> Attempt {
        if let Attempt::Granted(grant) = &attempt {
            self.token = Some(grant.token);
        }
        attempt
    }
}

/// What the scripts take that end or begin an attempt: the lock's four keys and the owner's tombstone.
fn keys(name: &Name, owner: Owner) -> [String; 5] {
    let Keys {
        lock,
        counter,
        queue,
        waiters,
    } = Keys::of(name);
    [lock, counter, queue, waiters, Keys::tombstone(name, owner)]
}

/// What the release script answered.
fn outcome(answer: Value) -> Result<Release> {
    match answer {
        Value::BulkString(text) if text == b"freed" => Ok(Release::Freed),
        Value::BulkString(text) if text == b"expired" => Ok(Release::Expired),
        Value::BulkString(text) if text == b"another" => Ok(Release::Another),
        Value::BulkString(text) if text == b"broken" => Ok(Release::Broken),
        other => Err(reply::unexpected(&other)),
    }
}

#[async_trait]
impl Contender for RedisContender {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        let attempt = self.attempt().await?;
        let shared = self.shared.clone();
        let attempt = match (&shared.replicas, attempt) {
            (Some(replicas), Attempt::Granted(grant)) => self.confirmed(replicas, grant).await?,
            (_, attempt) => attempt,
        };
        Ok(self.noted(attempt))
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &self.told {
            Some(told) => told.mailbox.poll_changed(context),
            None => Poll::Pending,
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    async fn renew(&mut self, ttl: Duration) -> Result<Renewal> {
        if let Some(told) = &self.told {
            told.mailbox.clear();
        }
        // Held: what the tries needed is of no use any more.
        self.attempt = None;
        let renewer = &self.shared.renewer;
        let renewal = renewer.renew(&self.name, self.owner, ttl).await?;
        // In a box: thousands of renewals may be under way, and next to none of them comes here.
        if matches!(renewal, Renewal::Lost(_))
            && Box::pin(renewer.was_broken(&self.name, self.owner)).await
        {
            return Ok(Renewal::Lost(LossReason::Broken));
        }
        Ok(renewal)
    }

    async fn release(&mut self, keep: Duration) -> Result<Release> {
        self.end(keep, self.tombstone).await
    }
}

impl fmt::Debug for RedisContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisContender")
            .field("name", &self.name)
            .field("owner", &self.owner)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

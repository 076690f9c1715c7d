//! One acquisition on Redis.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt, Contender, Release, Renewal};
use leasehold_core::{Claim, Error, ErrorKind, Identity, Name, Owner, Result, clock};
use redis::Value;

use crate::attempt::Tries;
use crate::backend::Shared;
use crate::keys::Keys;
use crate::link::Failure;
use crate::renewer::millis;
use crate::reply::{self, Field, Message};
use crate::script::{ACQUIRE, RELEASE};
use crate::subscriber::Registration;

pub(crate) struct RedisContender {
    shared: Arc<Shared>,
    name: Name,
    owner: Owner,
    /// What a try needs; nothing of it once the lock is held.
    attempt: Option<Box<Trying>>,
    ttl: Duration,
    /// The tombstone its release must leave.
    tombstone: Duration,
    /// Where it is told; only for one that waited.
    told: Option<Registration>,
}

struct Trying {
    tries: Tries,
    identity: Arc<Identity>,
}

impl RedisContender {
    pub(crate) fn new(shared: Arc<Shared>, claim: Claim) -> Self {
        Self {
            shared,
            name: claim.name,
            owner: claim.owner,
            ttl: claim.ttl,
            tombstone: Duration::ZERO,
            told: None,
            attempt: Some(Box::new(Trying {
                tries: Tries::new(claim.ttl, claim.waits),
                identity: claim.identity,
            })),
        }
    }

    /// A hold of another process, to be extended or released.
    pub(crate) fn resumed(shared: Arc<Shared>, name: Name, owner: Owner) -> Self {
        Self {
            shared,
            name,
            owner,
            ttl: Duration::ZERO,
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
        if waits {
            shared.subscriber.ready().await.map_err(Failure::Unsent)?;
            let told = self
                .told
                .get_or_insert_with(|| shared.subscriber.register(owner.clone()));
            told.mailbox.clear();
        }
        let identity = serde_json::to_string(&*trying.identity).unwrap_or_default();
        let number = trying.tries.send(clock::now());
        // Until there is an answer it may land at any time, also after the release.
        self.tombstone = trying.tries.tombstone();
        let args = [
            owner.as_str(),
            &number.to_string(),
            &millis(trying.tries.ttl()).to_string(),
            &millis(trying.tries.alive()).to_string(),
            if waits { "1" } else { "0" },
            if waits {
                shared.subscriber.channel()
            } else {
                "-"
            },
            &identity,
        ];
        let keys = keys(&self.name, self.owner);
        let keys = keys.each_ref().map(String::as_str);
        let reply = match shared.grants.call(&ACQUIRE, &keys, &args).await {
            Ok(answer) => fields(answer)
                .and_then(reply::try_reply)
                .map_err(Failure::Sent),
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
}

/// Fields of a script's answer.
pub(crate) fn fields(value: Value) -> Result<Vec<Field>> {
    let Value::Array(values) = value else {
        return Err(reply::unexpected(&Some(Field::Text(format!("{value:?}")))));
    };
    values
        .into_iter()
        .map(|value| {
            Ok(match value {
                Value::Int(number) => Field::Int(number),
                Value::BulkString(bytes) => {
                    Field::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
                Value::SimpleString(text) => Field::Text(text),
                Value::Nil => Field::Nil,
                other => return Err(reply::unexpected(&Some(Field::Text(format!("{other:?}"))))),
            })
        })
        .collect()
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
        other => Err(reply::unexpected(&Some(Field::Text(format!("{other:?}"))))),
    }
}

#[async_trait]
impl Contender for RedisContender {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        if let Some(granted) = self.handed() {
            return Ok(granted);
        }
        match self.try_once().await {
            // The try may have landed all the same; the next one finds out.
            Err(Failure::Stale(_)) => Ok(self.try_once().await?),
            attempt => Ok(attempt?),
        }
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
        self.shared.renewer.renew(&self.name, self.owner, ttl).await
    }

    async fn release(&mut self, keep: Duration) -> Result<Release> {
        let args = [
            self.owner.to_hex(),
            millis(keep).to_string(),
            millis(self.tombstone).to_string(),
            u8::from(self.shared.always_hand_over).to_string(),
        ];
        let args = args.each_ref().map(String::as_str);
        let keys = keys(&self.name, self.owner);
        let keys = keys.each_ref().map(String::as_str);
        let grants = &self.shared.grants;
        match grants.call(&RELEASE, &keys, &args).await {
            Err(Failure::Stale(error)) => {
                let again = outcome(grants.call(&RELEASE, &keys, &args).await?)?;
                // If it isn't there any more, the first may be what freed it.
                (again == Release::Freed).then_some(again).ok_or(error)
            }
            answer => outcome(answer?),
        }
    }
}

impl fmt::Debug for RedisContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisContender")
            .field("name", &self.name)
            .field("owner", &self.owner)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

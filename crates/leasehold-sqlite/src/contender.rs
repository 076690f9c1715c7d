//! One acquisition: what it asks for, and whether something happened since it last asked.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt, Contender, Grant, Release, Renewal};
use leasehold_core::{Claim, Result, clock};

use crate::attempt::Ask;
use crate::database::{Abandoned, Database, Reply};
use crate::signal::Signal;

pub(crate) struct SqliteContender {
    database: Arc<Database>,
    claim: Claim,
    signal: Arc<Signal>,
    /// A release that was asked for; its answer stands, however often it is asked for again.
    release: Option<Reply<Release>>,
    released: Option<Release>,
}

impl SqliteContender {
    pub(crate) fn new(database: Arc<Database>, claim: Claim) -> Self {
        let signal = database.signals.add(&claim.owner.to_hex());
        Self {
            database,
            claim,
            signal,
            release: None,
            released: None,
        }
    }
}

#[async_trait]
impl Contender for SqliteContender {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        self.release = None;
        self.released = None;
        let ask = Ask {
            name: self.claim.name.clone(),
            owner: self.claim.owner.to_hex(),
            ttl: self.claim.ttl,
            waits: self.claim.waits,
            identity: self.claim.identity.clone(),
        };
        self.signal.lower();
        // A try that was not answered may have been done: this one then finds the hold and prolongs it, so
        // that it counts from here.
        let since = clock::now();
        let mut reply = self
            .database
            .submit(Abandoned::Skipped, move |work| work.attempt(&ask));
        Ok(match reply.answer().await? {
            Ok(token) => Attempt::Granted(Grant {
                token,
                since,
                ttl: self.claim.ttl,
            }),
            Err(busy) => Attempt::Busy(busy),
        })
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let changed = self.signal.poll(context);
        // After the poll, so that what is heard from here on finds the waker.
        self.database.listen();
        changed
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    async fn renew(&mut self, ttl: Duration) -> Result<Renewal> {
        let name = self.claim.name.clone();
        let owner = self.claim.owner.to_hex();
        self.signal.lower();
        let since = clock::now();
        let mut reply = self.database.submit(Abandoned::Skipped, move |work| {
            work.renew(name.as_str(), &owner, ttl)
        });
        Ok(match reply.answer().await? {
            None => Renewal::Renewed { since, ttl },
            Some(reason) => Renewal::Lost(reason),
        })
    }

    async fn release(&mut self, keep: Duration) -> Result<Release> {
        if let Some(released) = self.released {
            return Ok(released);
        }
        let reply = self.release.get_or_insert_with(|| {
            let name = self.claim.name.clone();
            let owner = self.claim.owner.to_hex();
            self.database.submit(Abandoned::Done, move |work| {
                work.release(name.as_str(), &owner, keep)
            })
        });
        let answer = reply.answer().await;
        self.release = None;
        self.released = answer.as_ref().ok().copied();
        answer
    }
}

impl Drop for SqliteContender {
    fn drop(&mut self) {
        self.database.signals.remove(&self.claim.owner.to_hex());
    }
}

impl fmt::Debug for SqliteContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteContender")
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

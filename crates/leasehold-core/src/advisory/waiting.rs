//! A wait for a lock on a session that nobody holds by.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::contender::PATIENCE;
use super::{AdvisoryStore, Failure, Link, Locks, Tried, within};
use crate::claim::{Claim, Token};
use crate::clock::{self, Moment};
use crate::name::Name;
use crate::session::{Lent, Pulse, Seat, end};

/// A session that waits for the lock. It holds nothing else, so dropping it costs nobody anything.
pub(super) struct Waiting<S: AdvisoryStore> {
    lent: Lent<S>,
    link: Arc<S::Link>,
    lock: Name,
    waits: Pin<Box<dyn Future<Output = Result<bool, Failure>> + Send>>,
    /// What came of it, until somebody asks.
    outcome: Option<Result<bool, Failure>>,
    /// One of the sessions that this client may wait on.
    _permit: OwnedSemaphorePermit,
}

/// What came of a wait that the server ended.
pub(super) enum Waited<S: AdvisoryStore> {
    Granted(Token, Moment, Seat<S>),
    /// It waits anew.
    Again(Waiting<S>),
    /// The server has forgotten its locks, and who had this one may believe to have it for so much longer.
    HeldBack(Duration),
    /// The session has ended since.
    Lost,
}

impl<S: AdvisoryStore> Waiting<S> {
    /// Begins to wait for a lock; none where the session ended before that.
    pub(super) async fn begin(
        locks: &Locks<S>,
        claim: &Claim,
        lock: &Name,
        permit: OwnedSemaphorePermit,
    ) -> Result<Option<Self>, Failure> {
        let lent = locks.pool.lend(locks.store.session_ttl(claim.ttl))?;
        let Some(session) = lent.session() else {
            return Ok(None);
        };
        let link = match session.ready().await {
            Ok(link) => link,
            Err(_) if session.has_ended() => return Ok(None),
            Err(error) => return Err(Failure::Refused(error)),
        };
        let mut waiting = Self {
            waits: link.clone().wait(lock.clone()),
            lent,
            link,
            lock: lock.clone(),
            outcome: None,
            _permit: permit,
        };
        // What is polled once is sent.
        waiting.is_over();
        Ok(Some(waiting))
    }

    /// Ready once it is over.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.outcome.is_none() {
            match self.waits.as_mut().poll(context) {
                Poll::Ready(outcome) => self.outcome = Some(outcome),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    /// Whether the server has answered.
    pub(super) fn is_over(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    /// Counts the grant. The server's answer to the wait may be old: the lock is held from the send of what counts it on.
    pub(super) async fn count(mut self, store: &S, claim: &Claim) -> Result<Waited<S>, Failure> {
        if !self.outcome.take().unwrap_or(Ok(false))? {
            self.waits = self.link.clone().wait(self.lock.clone());
            self.is_over();
            return Ok(Waited::Again(self));
        }
        let since = clock::now();
        match within(PATIENCE, self.link.count(&self.lock, claim)).await? {
            Tried::Granted(token) => {
                let pulse = Pulse::new(since, store.session_ttl(claim.ttl));
                let Some(seat) = self.lent.seat(&self.lock, pulse) else {
                    return Ok(Waited::Lost);
                };
                seat.with(|place| {
                    place.send(end(since, claim.ttl));
                    place.answered();
                    place.made = Some(token);
                });
                Ok(Waited::Granted(token, since, seat))
            }
            Tried::HeldBack(left) => Ok(Waited::HeldBack(left)),
            Tried::Busy => Ok(Waited::Lost),
        }
    }
}

impl<S: AdvisoryStore> fmt::Debug for Waiting<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("lent", &self.lent)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

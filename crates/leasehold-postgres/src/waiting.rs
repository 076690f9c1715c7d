//! A wait for a lock on a session that nobody holds by.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::clock::{self, Moment};
use leasehold_core::session::{Pulse, end};
use tokio::sync::OwnedSemaphorePermit;

use crate::contender::PATIENCE;
use crate::error::Failure;
use crate::keys::Key;
use crate::link::{Ask, Link, Tried, within};
use crate::session::{Lent, Made, Pool, Seat};

/// A session that waits for the lock. It holds nothing else, so dropping it costs nobody anything.
pub(crate) struct Waiting {
    lent: Lent,
    link: Arc<Link>,
    waits: Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>,
    /// What came of it, until somebody asks.
    outcome: Option<Result<(), Failure>>,
    /// One of the sessions that this client may wait on.
    _permit: OwnedSemaphorePermit,
}

/// What came of a wait that the server ended.
pub(crate) enum Waited {
    Granted {
        token: u64,
        since: Moment,
        seat: Seat,
    },
    /// The server has forgotten its locks, and who had this one may believe to have it for so much longer.
    HeldBack(Duration),
    /// The session has ended since.
    Lost,
}

impl Waiting {
    /// Begins to wait for a key; none where the session ended before that.
    pub(crate) async fn begin(
        pool: &Arc<Pool>,
        ttl: Duration,
        key: Key,
        permit: OwnedSemaphorePermit,
    ) -> Result<Option<Self>, Failure> {
        let lent = pool.lend(ttl).map_err(Failure::Refused)?;
        let Some(session) = lent.session() else {
            return Ok(None);
        };
        let link = match session.ready().await {
            Ok(link) => link,
            Err(_) if session.has_ended() => return Ok(None),
            Err(error) => return Err(Failure::Refused(error)),
        };
        let waiter = link.clone();
        let mut waiting = Self {
            lent,
            link,
            waits: Box::pin(async move { waiter.wait(key).await }),
            outcome: None,
            _permit: permit,
        };
        // What is polled once is sent.
        waiting.is_over();
        Ok(Some(waiting))
    }

    /// Ready once it is over.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.outcome.is_none() {
            match self.waits.as_mut().poll(context) {
                Poll::Ready(outcome) => self.outcome = Some(outcome),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    /// Whether the server has answered.
    pub(crate) fn is_over(&mut self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    /// Counts the grant. The server's answer to the wait may be old: the lock is held from the send of what counts it on.
    pub(crate) async fn count(mut self, ask: &Ask<'_>, place: &Name) -> Result<Waited, Failure> {
        if let Some(Err(failure)) = self.outcome.take() {
            return Err(failure);
        }
        let since = clock::now();
        match within(PATIENCE, self.link.count(ask)).await? {
            Tried::Granted(token) => {
                let pulse = Pulse {
                    since,
                    ttl: ask.ttl,
                    keys: Arc::default(),
                };
                let Some(seat) = self.lent.seat(place, pulse) else {
                    return Ok(Waited::Lost);
                };
                seat.with(|place| {
                    place.send(end(since, ask.ttl));
                    place.answered();
                    place.made = Some(Made { token });
                });
                Ok(Waited::Granted { token, since, seat })
            }
            Tried::HeldBack(left) => Ok(Waited::HeldBack(left)),
            Tried::Busy => Ok(Waited::Lost),
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("lent", &self.lent)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

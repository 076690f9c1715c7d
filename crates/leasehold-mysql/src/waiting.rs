//! A session that waits for a lock. It holds nothing else, so dropping it costs nobody anything.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::OwnedSemaphorePermit;

use crate::error::Failure;
use crate::link::Link;
use crate::session::Lent;

pub(crate) struct Waiting {
    pub(crate) lent: Lent,
    pub(crate) link: Arc<Link>,
    waits: Pin<Box<dyn Future<Output = Result<bool, Failure>> + Send>>,
    /// What came of it, until somebody asks.
    outcome: Option<Result<bool, Failure>>,
    /// One of the sessions that this client may wait on.
    _permit: OwnedSemaphorePermit,
}

impl Waiting {
    pub(crate) fn begin(
        lent: Lent,
        link: Arc<Link>,
        lock: &str,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            waits: Box::pin(link.wait(lock)),
            lent,
            link,
            outcome: None,
            _permit: permit,
        }
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

    /// Whether it was granted, once it is over; not, where it has waited long enough.
    pub(crate) fn outcome(&mut self) -> Result<bool, Failure> {
        self.outcome.take().unwrap_or(Ok(false))
    }

    /// Waits anew, on the same session.
    pub(crate) fn again(&mut self, lock: &str) {
        self.waits = Box::pin(self.link.wait(lock));
    }
}

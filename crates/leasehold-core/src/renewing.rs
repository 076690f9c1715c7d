//! A renewal under way: a future that the keeper polls itself.
//!
//! A process may hold a hundred thousand locks, and a good part of their renewals may be under way at once. So one is
//! no task, has no timer and no channel of its own.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::unconstrained;

use crate::backend::Renewal;
use crate::clock::Moment;
use crate::error::Result;
use crate::hold::{Borrowed, Hold};

type Answer = dyn Future<Output = (Borrowed, Result<Renewal>)> + Send;

/// The contender is back in its hold when this is dropped, which cuts the renewal short.
pub(crate) struct Renewing {
    answer: Pin<Box<Answer>>,
    timeout: Duration,
    until: u64,
}

impl Renewing {
    /// Sends nothing before it is polled.
    pub(crate) fn new(
        mut borrowed: Borrowed,
        ttl: Duration,
        timeout: Duration,
        now: Moment,
    ) -> Self {
        let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Self {
            // The keeper polls thousands in one turn of its task, which has a budget for a hundred or so.
            answer: Box::pin(unconstrained(async move {
                let answer = borrowed.renew(ttl).await;
                (borrowed, answer)
            })),
            timeout,
            until: now.boot.saturating_add(nanos),
        }
    }

    /// When it is to be given up (boot time).
    pub(crate) fn until(&self) -> u64 {
        self.until
    }

    /// Looks whether the store has answered and tells the hold; whether this renewal is over. To be dropped then.
    pub(crate) fn poll(&mut self, hold: &Arc<Hold>) -> bool {
        let waker = Waker::from(hold.clone());
        let mut context = Context::from_waker(&waker);
        let answer = AssertUnwindSafe(|| self.answer.as_mut().poll(&mut context));
        match catch_unwind(answer) {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready((_borrowed, Ok(renewal)))) => hold.settle(Ok(renewal)),
            Ok(Poll::Ready((_borrowed, Err(error)))) => {
                tracing::warn!(name = %hold.terms.name, %error, "renewal unanswered");
                hold.settle(Err(error.to_string()));
            }
            // The borrow ended in the panic, and with it the hold.
            Err(_) => {}
        }
        true
    }

    /// There was no answer in time.
    pub(crate) fn give_up(self, hold: &Hold) {
        let timeout = self.timeout;
        drop(self);
        tracing::warn!(name = %hold.terms.name, ?timeout, "renewal unanswered in time");
        hold.settle(Err(format!("the store gave no answer within {timeout:?}")));
    }
}

//! Small things that several cases need.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_core::clock;

/// Boot time in nanoseconds, the clock of every history.
pub(crate) fn boot() -> u64 {
    clock::now().boot
}

/// The time since `since`, a boot time.
pub(crate) fn elapsed(since: u64) -> Duration {
    Duration::from_nanos(boot().saturating_sub(since))
}

/// A duration as boot time.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A random number below `end`.
pub(crate) fn below(end: u64) -> u64 {
    // Each RandomState has keys of its own, seeded by the system.
    RandomState::new().build_hasher().finish() % end.max(1)
}

/// A random duration up to `most`.
pub(crate) fn up_to(most: Duration) -> Duration {
    Duration::from_nanos(below(nanos(most).saturating_add(1)))
}

/// Polls a future a number of times and no more; `None` says that it was not done by then.
pub(crate) struct Polls<F> {
    future: F,
    left: u32,
}

impl<F: Future + Unpin> Polls<F> {
    pub(crate) fn of(future: F, polls: u32) -> Self {
        Self {
            future,
            left: polls,
        }
    }
}

impl<F: Future + Unpin> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left > 0 {
            if let Poll::Ready(output) = Pin::new(&mut self.future).poll(context) {
                return Poll::Ready(Some(output));
            }
            self.left -= 1;
        }
        if self.left > 0 {
            Poll::Pending
        } else {
            Poll::Ready(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_future_is_polled_as_often_as_asked_for() {
        let three_polls = || {
            Box::pin(async {
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
                7
            })
        };
        assert_eq!(Polls::of(three_polls(), 0).await, None);
        assert_eq!(Polls::of(three_polls(), 2).await, None);
        assert_eq!(Polls::of(three_polls(), 3).await, Some(7));
    }
}

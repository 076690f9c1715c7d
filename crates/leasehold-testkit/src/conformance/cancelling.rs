//! Futures dropped at any point leave nothing behind.
//!
//! A ladder drops a future after no poll, after its first, its second, and so on until one completes: at once,
//! while its request is on the way, or a little later, when the answer is there and unread. How many polls it
//! takes differs from time to time, so each case climbs several ladders. Every drop has a lock of its own, and
//! at the end all of them must be free.

use std::time::Duration;

use leasehold::{Guard, Lock, Release};

use super::{Bench, Outcome, SLACK, assert_busy, take};
use crate::protocol::Terms;
use crate::tools::{Polls, up_to};

/// A future that is not polled again for so long waits for somebody else.
const PARKED: Duration = Duration::from_millis(200);
/// More polls than any acquisition needs.
const POLLS_MAX: u32 = 60;
const LADDERS: u32 = 8;

/// How far a future was let go.
enum End<T> {
    Done(T),
    /// Dropped where its next poll would have been.
    Dropped,
    /// Dropped while it waited for somebody else.
    Parked,
}

/// One drop of a ladder.
struct Rung {
    polls: u32,
    name: String,
    lingers: bool,
}

impl Rung {
    /// Polls the future as often as this rung says, and drops it.
    async fn drop_after<F: Future>(&self, future: F) -> End<F::Output> {
        let mut future = Box::pin(future);
        let end = match tokio::time::timeout(PARKED, Polls::of(future.as_mut(), self.polls)).await {
            Ok(Some(output)) => return End::Done(output),
            Ok(None) => End::Dropped,
            Err(_) => End::Parked,
        };
        if self.lingers {
            tokio::time::sleep(up_to(Duration::from_millis(10))).await;
        }
        drop(future);
        end
    }

    /// The lock of this drop. Its TTL is short, so that nothing may be left when that is over.
    fn lock(&self, bench: &Bench) -> Outcome<Lock> {
        bench.on(&self.name, Terms::renewed(self.ttl(bench)))
    }

    fn ttl(&self, bench: &Bench) -> Duration {
        bench.ttl(1000)
    }
}

/// Climbs the ladders: `climb` says whether a rung was the last of its ladder.
async fn ladders(bench: &Bench, climb: impl AsyncFn(&Rung) -> Outcome<bool>) -> Outcome {
    let mut used = Vec::new();
    let mut in_flight = 0;
    for ladder in 0..LADDERS {
        for polls in 0..POLLS_MAX {
            let rung = Rung {
                polls,
                name: format!("dropped/{ladder}/{polls}"),
                lingers: ladder % 2 == 1,
            };
            let last = climb(&rung)
                .await
                .map_err(|error| format!("dropped after {polls} polls: {error}"))?;
            used.push(rung);
            if last {
                break;
            }
            in_flight += u32::from(polls > 0);
        }
    }
    assert!(in_flight > 0, "nothing was dropped on its way");
    for rung in &used {
        let clean = bench.free_within(&rung.name, bench.ttl(1000) + SLACK).await;
        clean.map_err(|error| format!("\"{}\": {error}", rung.name))?;
        let guard = take(&rung.lock(bench)?).await?;
        assert_eq!(guard.release().await?, Release::Freed);
    }
    Ok(())
}

pub(super) async fn try_of_a_free_lock_dropped_at_every_poll_leaves_nothing(
    bench: Bench,
) -> Outcome {
    let climb = async |rung: &Rung| {
        let lock = rung.lock(&bench)?;
        match rung.drop_after(lock.try_acquire()).await {
            End::Done(guard) => {
                guard?.ok_or("a free lock was busy")?.release().await?;
                Ok(true)
            }
            End::Dropped | End::Parked => Ok(false),
        }
    };
    ladders(&bench, climb).await
}

pub(super) async fn acquire_of_a_free_lock_dropped_at_every_poll_leaves_nothing(
    bench: Bench,
) -> Outcome {
    let climb = async |rung: &Rung| {
        let lock = rung.lock(&bench)?;
        match rung.drop_after(lock.acquire()).await {
            End::Done(guard) => {
                guard?.release().await?;
                Ok(true)
            }
            End::Dropped | End::Parked => Ok(false),
        }
    };
    ladders(&bench, climb).await
}

pub(super) async fn try_of_a_held_lock_dropped_at_every_poll_leaves_nothing(
    bench: Bench,
) -> Outcome {
    let climb = async |rung: &Rung| {
        let lock = rung.lock(&bench)?;
        let holder = take(&lock).await?;
        let end = rung.drop_after(lock.try_acquire()).await;
        assert_holds_alone(&bench, rung, &holder).await?;
        assert_eq!(holder.release().await?, Release::Freed);
        if let End::Done(guard) = end {
            assert!(guard?.is_none(), "a held lock was granted");
            return Ok(true);
        }
        Ok(false)
    };
    ladders(&bench, climb).await
}

pub(super) async fn acquire_of_a_held_lock_dropped_at_every_poll_leaves_nothing(
    bench: Bench,
) -> Outcome {
    let climb = async |rung: &Rung| {
        let lock = rung.lock(&bench)?;
        let holder = take(&lock).await?;
        let end = rung.drop_after(lock.acquire()).await;
        assert_holds_alone(&bench, rung, &holder).await?;
        assert_eq!(holder.release().await?, Release::Freed);
        match end {
            End::Done(_) => Err("a held lock was granted".into()),
            End::Dropped => Ok(false),
            End::Parked => Ok(true),
        }
    };
    ladders(&bench, climb).await
}

/// The polls count from when the release is on its way, so that drops hit the grant on its way. When the release is
/// answered would be too late: the grant may have come with that answer, and the first poll would find it.
pub(super) async fn acquire_dropped_at_every_poll_of_its_hand_over_leaves_nothing(
    bench: Bench,
) -> Outcome {
    let climb = async |rung: &Rung| {
        let lock = rung.lock(&bench)?;
        let holder = take(&lock).await?;
        let mut waiter = Box::pin(lock.acquire());
        let parked = tokio::time::timeout(Duration::from_millis(20), waiter.as_mut()).await;
        assert!(parked.is_err(), "a held lock was granted");
        let releasing = tokio::spawn(holder.release());
        let end = rung.drop_after(waiter).await;
        assert_eq!(releasing.await??, Release::Freed);
        match end {
            End::Done(guard) => {
                guard?.release().await?;
                Ok(true)
            }
            End::Dropped | End::Parked => Ok(false),
        }
    };
    ladders(&bench, climb).await
}

async fn assert_holds_alone(bench: &Bench, rung: &Rung, holder: &Guard) -> Outcome {
    let seen = bench
        .inspected(&rung.name, SLACK, |seen| seen.waiters.is_empty())
        .await?;
    let token = seen.holder.and_then(|seen| seen.token);
    assert_eq!(token, Some(holder.token()));
    Ok(())
}

pub(super) async fn release_dropped_at_every_poll_still_releases(bench: Bench) -> Outcome {
    let climb = async |rung: &Rung| {
        // A long TTL: what frees is the release.
        let guard = take(&bench.lock(&rung.name)?).await?;
        let end = rung.drop_after(guard.release()).await;
        bench.free_within(&rung.name, SLACK).await?;
        if let End::Done(release) = end {
            assert_eq!(release?, Release::Freed);
            return Ok(true);
        }
        Ok(false)
    };
    ladders(&bench, climb).await
}

pub(super) async fn extend_dropped_at_every_poll_keeps_the_hold(bench: Bench) -> Outcome {
    let climb = async |rung: &Rung| {
        let lock = rung.lock(&bench)?;
        let guard = take(&lock).await?;
        let longer = bench.extension(rung.ttl(&bench));
        let end = rung.drop_after(guard.extend(longer)).await;
        assert!(guard.is_held(), "{guard:?}");
        assert_busy(&lock).await?;
        let done = if let End::Done(extended) = end {
            extended?;
            assert!(guard.remaining() > longer / 2);
            true
        } else {
            // The next one is not harmed either.
            guard.extend(longer).await?;
            false
        };
        assert_eq!(guard.release().await?, Release::Freed);
        Ok(done)
    };
    ladders(&bench, climb).await
}

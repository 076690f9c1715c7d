//! What a guard does for the work under it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use leasehold::{ErrorKind, Guard, Release};

use super::{Bench, LONG, Outcome, SLACK, assert_busy, take};
use crate::protocol::Terms;
use crate::tools::{boot, elapsed, nanos};

pub(super) async fn run_returns_what_the_work_made(bench: Bench) -> Outcome {
    let guard = take(&bench.lock("run")?).await?;
    // Neither Send nor 'static.
    let local = Rc::new(Cell::new(1));
    let made = guard
        .run(async {
            tokio::task::yield_now().await;
            local.set(local.get() + 1);
            local.get()
        })
        .await?;
    assert_eq!(made, 2);
    assert!(guard.is_held());
    assert_eq!(guard.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn run_drops_the_work_at_the_loss(bench: Bench) -> Outcome {
    struct Flag<'a>(&'a Cell<bool>);
    impl Drop for Flag<'_> {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    let ttl = bench.ttl(400);
    let guard = take(&bench.on("run", Terms::expiring(ttl))?).await?;
    let (dropped, finished) = (Cell::new(false), Cell::new(false));
    let flag = Flag(&dropped);
    let since = boot();
    let outcome = guard
        .run(async {
            let _flag = flag;
            tokio::time::sleep(LONG).await;
            finished.set(true);
        })
        .await;
    assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    assert!(dropped.get() && !finished.get());
    assert!(elapsed(since) < ttl + SLACK);

    // Work that blocks past its lease isn't done under the lock, though it is done.
    let guard = bench.on("blocked", Terms::expiring(ttl))?.acquire().await?;
    let outcome = guard.run(async { std::thread::sleep(ttl) }).await;
    assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    Ok(())
}

pub(super) async fn with_lock_runs_under_the_lock_or_not_at_all(bench: Bench) -> Outcome {
    let client = &bench.client;
    let lock = bench.lock("with")?;
    let done = client
        .with_lock("with", |held| {
            let lock = lock.clone();
            async move {
                let busy = assert_busy(&lock).await.is_ok();
                (held.token().get(), held.is_held() && busy)
            }
        })
        .await?;
    let (token, under_lock) = done.ok_or("a free lock was busy")?;
    assert!(under_lock);
    // Released before it returns.
    let guard = take(&lock).await?;
    assert!(guard.token().get() > token);
    let skipped = client
        .with_lock("with", |_| async { panic!("ran without the lock") })
        .await?;
    assert!(skipped.is_none());
    assert_eq!(guard.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn extend_lasts_at_least_that_long_and_no_shorter(bench: Bench) -> Outcome {
    let ttl = bench.ttl(500);
    let longer = ttl * 5;
    let guard = take(&bench.on("extended", Terms::expiring(ttl))?).await?;
    if !bench.can.extends {
        let refused = guard.extend(longer).await.map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::Unsupported));
        assert!(guard.is_held(), "a refused extension harmed the hold");
        return extend_by_its_own_ttl_lasts(&bench, guard, ttl).await;
    }
    let called = boot();
    guard.extend(longer).await?;
    let extended = boot();
    // All but the drift margin, which is far below a tenth.
    assert!(guard.remaining() > longer.mul_f64(0.9), "{guard:?}");
    guard.extend(ttl).await?;
    assert!(
        nanos(guard.remaining()) + (boot() - extended) > nanos(longer.mul_f64(0.9)),
        "it was made shorter: {guard:?}"
    );
    let lock = bench.lock("extended")?;
    while boot() - called < nanos(longer.mul_f64(0.8)) {
        assert!(guard.is_held());
        assert_busy(&lock).await?;
        tokio::time::sleep(ttl / 10).await;
    }
    let next = lock.acquire_within(longer + SLACK).await?;
    let got = boot();
    let next = next.ok_or("an extended hold never ended")?;
    assert!(got - called >= nanos(longer), "it ended too early");
    assert!(got - extended < nanos(longer + SLACK), "it ended too late");
    assert!(!guard.is_held());
    assert_eq!(next.release().await?, Release::Freed);
    Ok(())
}

/// Extended as far as it can be, a hold outlives its first deadline, and ends when nobody extends it any more.
async fn extend_by_its_own_ttl_lasts(bench: &Bench, guard: Guard, ttl: Duration) -> Outcome {
    let lock = bench.lock("extended")?;
    for _ in 0..4 {
        tokio::time::sleep(ttl / 2).await;
        guard.extend(ttl).await?;
        assert!(guard.is_held(), "{guard:?}");
        assert_busy(&lock).await?;
    }
    let next = lock.acquire_within(bench.dead(ttl) + SLACK).await?;
    let next = next.ok_or("an extended hold never ended")?;
    assert!(!guard.is_held());
    assert_eq!(next.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn extend_after_the_loss_is_refused(bench: Bench) -> Outcome {
    let ttl = bench.ttl(300);
    let guard = take(&bench.on("late", Terms::expiring(ttl))?).await?;
    guard.lost().await;
    let refused = guard.extend(ttl).await;
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    Ok(())
}

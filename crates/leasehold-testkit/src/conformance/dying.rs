//! Processes that die or stop while they hold or wait.

use std::time::Duration;

use leasehold::{Guard, Lock, Release};

use super::{Bench, LONG, Outcome, SLACK, take};
use crate::protocol::{Crowd, Event, Order, Terms, Wait};
use crate::tools::{boot, elapsed, up_to};

pub(super) async fn killed_holder_frees_the_lock(bench: Bench) -> Outcome {
    // Where the dead are noticed at once the TTL must not be what frees.
    let ttl = if bench.can.frees_dead_at_once {
        LONG
    } else {
        bench.ttl(1000)
    };
    let bound = if bench.can.frees_dead_at_once {
        SLACK
    } else {
        bench.dead(ttl)
    };
    for round in 0..3 {
        let mut worker = bench.worker().await?;
        let (_, token) = worker.take("killed", Terms::renewed(ttl)).await?;
        let lock = bench.lock("killed")?;
        // Once with somebody who tries later, then with somebody who waits already.
        let waiter = (round > 0).then(|| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire_within(LONG).await })
        });
        if waiter.is_some() {
            bench.queued("killed", 1).await?;
        }
        worker.kill()?;
        let since = boot();
        let next = match waiter {
            Some(waiter) => waiter.await??,
            None => tried_for(&lock, bound).await?,
        };
        let next = next.ok_or("a dead holder's lock stayed busy")?;
        assert!(elapsed(since) < bound, "free after {:?}", elapsed(since));
        assert!(next.token().get() > token);
        assert_eq!(next.release().await?, Release::Freed);
    }
    Ok(())
}

/// Tries again and again, without ever waiting in a queue.
async fn tried_for(lock: &Lock, bound: Duration) -> Outcome<Option<Guard>> {
    let since = boot();
    while elapsed(since) < bound {
        if let Some(guard) = lock.try_acquire().await? {
            return Ok(Some(guard));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(None)
}

pub(super) async fn killed_waiter_is_passed_over(bench: Bench) -> Outcome {
    let ttl = bench.ttl(1000);
    let guard = take(&bench.lock("queue")?).await?;
    let mut dead = bench.worker().await?;
    let mut alive = bench.worker().await?;
    dead.acquiring("queue", Terms::renewed(ttl), Wait::Forever)?;
    bench.queued("queue", 1).await?;
    let hold = alive.acquiring("queue", Terms::renewed(ttl), Wait::Forever)?;
    bench.queued("queue", 2).await?;
    dead.kill()?;
    assert_eq!(guard.release().await?, Release::Freed);
    let since = boot();
    assert!(alive.granted(hold).await?.is_some());
    assert!(elapsed(since) < ttl + SLACK, "after {:?}", elapsed(since));
    assert_eq!(alive.release(hold).await?, "freed");
    bench.free_within("queue", bench.dead(ttl)).await?;
    Ok(())
}

pub(super) async fn stopped_waiter_is_passed_over_and_never_granted_late(bench: Bench) -> Outcome {
    let ttl = bench.ttl(600);
    let guard = take(&bench.lock("queue")?).await?;
    let mut stopped = bench.worker().await?;
    let first = stopped.acquiring("queue", Terms::renewed(ttl), Wait::Forever)?;
    bench.queued("queue", 1).await?;
    stopped.stop()?;
    assert_eq!(guard.release().await?, Release::Freed);
    let since = boot();
    let next = bench.lock("queue")?.acquire_within(LONG).await?;
    let next = next.ok_or("a stopped waiter kept the lock")?;
    assert!(
        elapsed(since) < bench.dead(ttl),
        "after {:?}",
        elapsed(since)
    );
    stopped.go_on()?;
    // It waits on, and what it gets it gets after us.
    tokio::time::sleep(ttl).await;
    assert!(next.is_held());
    let token = next.token().get();
    assert_eq!(next.release().await?, Release::Freed);
    let theirs = stopped.granted(first).await?;
    assert!(theirs.is_some_and(|theirs| theirs > token), "{theirs:?}");
    assert_eq!(stopped.release(first).await?, "freed");
    Ok(())
}

/// The moment of the stop falls into whatever the process is just doing: asking, holding, giving back.
pub(super) async fn process_stopped_at_any_moment_frees_the_lock_or_is_an_outage(
    bench: Bench,
) -> Outcome {
    let ttl = bench.ttl(500);
    let lock = bench.on("moment", Terms::renewed(ttl))?;
    for _ in 0..5 {
        let mut worker = bench.worker().await?;
        worker.tell(&Order::Crowd(Crowd {
            name: "moment".into(),
            tasks: 2,
            terms: Terms::renewed(ttl),
            waits: vec![Wait::No, Wait::Forever],
            holds: u32::MAX,
            at_least: 0,
            lasts: LONG,
            extends: true,
            gives_back: Some(Duration::ZERO),
            counter: None,
        }))?;
        worker
            .hear(|event| matches!(event, Event::Held(_)).then_some(()))
            .await?;
        tokio::time::sleep(up_to(Duration::from_millis(30))).await;
        worker.stop()?;
        // Besides its hold it may have a place in the queue, which is passed over later.
        let wait = bench.dead(ttl) + SLACK;
        let since = boot();
        let got = lock.acquire_within(wait).await;
        assert!(elapsed(since) < wait + SLACK, "{:?}", elapsed(since));
        match got {
            Ok(Some(guard)) => drop(guard.release().await?),
            Ok(None) => return Err("a stopped process's lock stayed busy".into()),
            Err(error) => assert!(
                bench.store.stopped_write_is_an_outage() && error.is_retryable(),
                "{error}"
            ),
        }
        // Its death ends the outage too.
        worker.kill()?;
        let next = lock.acquire_within(LONG).await?;
        let next = next.ok_or("a dead process's lock stayed busy")?;
        assert_eq!(next.release().await?, Release::Freed);
    }
    Ok(())
}

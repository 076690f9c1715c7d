//! Busy locks: who tries, who waits, who is woken.

use std::time::Duration;

use leasehold::{Guard, Lock, Release};
use tokio::sync::mpsc;

use super::{Bench, LONG, Outcome, SLACK, assert_busy, take};
use crate::history::{self, Verdict};
use crate::process::crowds;
use crate::protocol::{Crowd, CrowdHold, Terms, Wait};
use crate::tools::{boot, elapsed, up_to};

pub(super) async fn try_on_a_held_lock_is_busy_and_leaves_nothing(bench: Bench) -> Outcome {
    let lock = bench.lock("tried")?;
    let guard = take(&lock).await?;
    for _ in 0..20 {
        assert_busy(&lock).await?;
    }
    let seen = bench.client.inspect("tried").await?;
    assert_eq!(seen.waiters, [], "a try took a place in the queue");
    assert_eq!(
        seen.holder.and_then(|holder| holder.token),
        Some(guard.token())
    );
    assert_eq!(guard.release().await?, Release::Freed);
    let seen = bench.client.inspect("tried").await?;
    assert!(seen.holder.is_none() && seen.waiters.is_empty(), "{seen:?}");
    Ok(())
}

pub(super) async fn wait_of_zero_is_a_try(bench: Bench) -> Outcome {
    let lock = bench.lock("zero")?;
    let guard = lock.acquire_within(Duration::ZERO).await?;
    let guard = guard.ok_or("a free lock was busy")?;
    let since = boot();
    assert!(lock.acquire_within(Duration::ZERO).await?.is_none());
    assert!(elapsed(since) < SLACK);
    assert_eq!(bench.client.inspect("zero").await?.waiters, []);
    assert_eq!(guard.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn timed_wait_ends_busy_within_its_bound(bench: Bench) -> Outcome {
    let lock = bench.lock("timed")?;
    let guard = take(&lock).await?;
    for wait in [200, 700].map(Duration::from_millis) {
        let since = boot();
        assert!(lock.acquire_within(wait).await?.is_none());
        assert!(elapsed(since) >= wait, "{:?} of {wait:?}", elapsed(since));
        assert!(elapsed(since) < wait + SLACK);
    }
    bench
        .inspected("timed", SLACK, |seen| seen.waiters.is_empty())
        .await?;
    assert!(guard.is_held());
    assert_eq!(guard.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn blocked_acquire_gets_the_lock_after_its_release(bench: Bench) -> Outcome {
    let lock = bench.lock("blocked")?;
    let first = take(&lock).await?;
    let token = first.token();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    bench.queued("blocked", 1).await?;
    assert!(!waiter.is_finished());
    assert_eq!(first.release().await?, Release::Freed);
    let since = boot();
    let second = waiter.await??;
    assert!(elapsed(since) < SLACK, "woken after {:?}", elapsed(since));
    assert!(second.token() > token);
    assert_eq!(second.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn every_waiter_of_4_processes_is_woken(bench: Bench) -> Outcome {
    let crowd = Crowd {
        name: "woken".into(),
        tasks: 8,
        terms: Terms::renewed(LONG),
        waits: vec![Wait::Forever],
        holds: 3,
        at_least: 0,
        lasts: Duration::from_secs(60),
        extends: false,
        gives_back: Some(Duration::from_millis(5)),
        counter: None,
    };
    // All of them wait before the first is served.
    let guard = take(&bench.lock("woken")?).await?;
    let crowds = tokio::spawn({
        let url = bench.url.clone();
        async move { crowds(&url, 4, &crowd).await }
    });
    bench.queued("woken", 32).await?;
    assert_eq!(guard.release().await?, Release::Freed);
    let (holds, _) = crowds.await??;
    assert_eq!(holds.len(), 4 * 8 * 3);
    history::check(&super::excluding::histories(&holds), Verdict::Exclusive)?;
    assert_prompt(&bench, &holds);
    Ok(())
}

pub(super) async fn no_wake_up_is_lost_between_look_and_wait(bench: Bench) -> Outcome {
    let mut worker = bench.worker().await?;
    let lock = bench.lock("lost")?;
    let mut gaps = Vec::new();
    for round in 0..60 {
        let ours = take(&lock).await?;
        // The release comes at any time from before the waiter's first look until it waits.
        let pause = up_to(Duration::from_millis(15));
        if round % 2 == 0 {
            let theirs = worker.acquiring("lost", Terms::renewed(LONG), Wait::Forever)?;
            tokio::time::sleep(pause).await;
            assert_eq!(ours.release().await?, Release::Freed);
            let since = boot();
            assert!(worker.granted(theirs).await?.is_some());
            gaps.push(elapsed(since));
            assert_eq!(worker.release(theirs).await?, "freed");
        } else {
            let lock = lock.clone();
            let waiter = tokio::spawn(async move { lock.acquire().await });
            tokio::time::sleep(pause).await;
            assert_eq!(ours.release().await?, Release::Freed);
            let since = boot();
            let next = waiter.await??;
            gaps.push(elapsed(since));
            assert_eq!(next.release().await?, Release::Freed);
        }
    }
    assert_gaps(&bench, gaps);
    Ok(())
}

/// The waiter's runtime is blocked most of the time, so that the release comes when its place in the queue can
/// be seen and it doesn't wait yet.
pub(super) async fn no_wake_up_is_lost_on_a_busy_runtime(bench: Bench) -> Outcome {
    let lock = bench.lock("busy")?;
    let (go, mut rounds) = mpsc::unbounded_channel();
    let (granted, mut grants) = mpsc::unbounded_channel();
    let url = bench.url.clone();
    let waiter = std::thread::spawn(move || -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let lock = leasehold::connect(&url).await?.lock("busy")?.ttl(LONG);
            let hog = tokio::spawn(async {
                loop {
                    std::thread::sleep(Duration::from_millis(20));
                    tokio::task::yield_now().await;
                }
            });
            while let Some(()) = rounds.recv().await {
                let guard = lock.acquire().await?;
                granted.send(boot())?;
                guard.release().await?;
            }
            hog.abort();
            Ok(())
        })
    });
    let mut gaps = Vec::new();
    for _ in 0..20 {
        // The waiter's own release may still be on its way.
        let ours = lock.acquire().await?;
        go.send(())?;
        bench.queued("busy", 1).await?;
        assert_eq!(ours.release().await?, Release::Freed);
        let since = boot();
        let at = grants.recv().await.ok_or("the waiter gave up")?;
        gaps.push(Duration::from_nanos(at.saturating_sub(since)));
    }
    drop(go);
    tokio::task::block_in_place(|| waiter.join()).map_err(|_| "the waiter panicked")??;
    assert_gaps(&bench, gaps);
    Ok(())
}

/// Asserts that whoever waited got the lock soon after it was free.
fn assert_prompt(bench: &Bench, holds: &[CrowdHold]) {
    let mut by_grant = holds.to_vec();
    by_grant.sort_unstable_by_key(|hold| hold.hold.returned);
    let gaps = by_grant
        .windows(2)
        // Who asked only after the release wasn't waiting.
        .filter(|pair| pair[1].hold.called < pair[0].over)
        .map(|pair| Duration::from_nanos(pair[1].hold.returned.saturating_sub(pair[0].over)))
        .collect();
    assert_gaps(bench, gaps);
}

fn assert_gaps(bench: &Bench, mut gaps: Vec<Duration>) {
    assert!(gaps.len() >= 10, "too few hand-overs to tell: {gaps:?}");
    gaps.sort_unstable();
    let (middle, worst) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    // A disk that many write to at once can stall for seconds.
    assert!(worst < SLACK * 5, "a waiter was left waiting: {gaps:?}");
    // The look from time to time that makes up for lost wake-ups comes once a second, so that a store that
    // tells of every release shows far less.
    if bench.can.push {
        assert!(middle < Duration::from_millis(500), "{gaps:?}");
        let missed = gaps.iter().filter(|gap| gap.as_millis() > 800).count();
        assert!(missed <= gaps.len() / 20, "wake-ups are lost: {gaps:?}");
    }
}

pub(super) async fn waiters_are_served_in_order_where_promised(bench: Bench) -> Outcome {
    const WAITERS: usize = 8;
    let lock = bench.lock("ordered")?;
    let guard = take(&lock).await?;
    if !bench.can.ordered {
        return all_are_served(lock, guard, WAITERS).await;
    }
    let mut workers = [bench.worker().await?, bench.worker().await?];
    let mut waiting = Vec::new();
    for at in 0..WAITERS {
        let worker = &mut workers[at % 2];
        waiting.push(worker.acquiring("ordered", Terms::renewed(LONG), Wait::Forever)?);
        bench.queued("ordered", at + 1).await?;
        let seen = bench.client.inspect("ordered").await?;
        let pids: Vec<u32> = seen.waiters.iter().flatten().map(|one| one.pid).collect();
        let expected: Vec<u32> = (0..=at).map(|at| workers[at % 2].pid()).collect();
        assert_eq!(pids, expected, "the queue is shown in another order");
    }
    assert_eq!(guard.release().await?, Release::Freed);
    for (at, hold) in waiting.into_iter().enumerate() {
        let worker = &mut workers[at % 2];
        // Were another one served first, this would wait for ever: nobody else gives back.
        assert!(worker.granted(hold).await?.is_some());
        assert_eq!(worker.release(hold).await?, "freed");
    }
    Ok(())
}

pub(super) async fn nobody_overtakes_a_waiter_where_order_is_promised(bench: Bench) -> Outcome {
    let lock = bench.lock("overtaken")?;
    let mut worker = bench.worker().await?;
    for _ in 0..10 {
        let guard = take(&lock).await?;
        let first = worker.acquiring("overtaken", Terms::renewed(LONG), Wait::Forever)?;
        bench.queued("overtaken", 1).await?;
        assert_eq!(guard.release().await?, Release::Freed);
        // The lock is free for a moment, and somebody else waits for it already.
        let newcomer = tokio::spawn({
            let lock = lock.clone();
            async move {
                let guard = lock.acquire().await?;
                let token = guard.token().get();
                guard.release().await.map(|_| token)
            }
        });
        let token = worker.granted(first).await?.ok_or("a wait ended")?;
        assert_eq!(worker.release(first).await?, "freed");
        let newcomers = newcomer.await??;
        assert!(
            newcomers > token || !bench.can.ordered,
            "overtaken: {newcomers} before {token}"
        );
    }
    Ok(())
}

/// Where no order is promised, everybody is served all the same.
async fn all_are_served(lock: Lock, first: Guard, waiters: usize) -> Outcome {
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..waiters {
        let lock = lock.clone();
        waiting.spawn(async move { lock.acquire().await?.release().await });
    }
    assert_eq!(first.release().await?, Release::Freed);
    while let Some(served) = waiting.join_next().await {
        assert_eq!(served??, Release::Freed);
    }
    Ok(())
}

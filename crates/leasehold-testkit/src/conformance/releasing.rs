//! Giving back: from anywhere, for good, and not before the time that was asked for.

use std::time::Duration;

use leasehold::{ErrorKind, Guard, HoldState, Lock, Release};

use super::{Bench, LONG, Outcome, SLACK, assert_busy, take};
use crate::protocol::{Order, Terms};
use crate::tools::{boot, elapsed, nanos, up_to};

pub(super) async fn late_renewal_does_not_resurrect(bench: Bench) -> Outcome {
    let ttl = bench.ttl(300);
    let mut rounds = tokio::task::JoinSet::new();
    for round in 0..12 {
        let lock = bench.on(&format!("late{round}"), Terms::renewed(ttl))?;
        let client = bench.client.clone();
        rounds.spawn(async move {
            for again in 0..3 {
                let guard = take(&lock).await?;
                // A renewal is due after 0.9 to 1.1 thirds of the TTL: on its way, or just back.
                tokio::time::sleep(ttl.mul_f64(0.29) + up_to(ttl.mul_f64(0.10))).await;
                if again % 2 == 0 {
                    assert_eq!(guard.release().await?, Release::Freed);
                } else {
                    drop(guard);
                    let since = boot();
                    while client.inspect(lock.name().as_str()).await?.holder.is_some() {
                        assert!(elapsed(since) < SLACK, "a dropped guard didn't release");
                    }
                }
                let since = boot();
                while elapsed(since) < ttl * 2 {
                    let seen = client.inspect(lock.name().as_str()).await?;
                    assert_eq!(seen.holder, None, "held again {:?} later", elapsed(since));
                    tokio::time::sleep(ttl / 20).await;
                }
            }
            Outcome::Ok(())
        });
    }
    while let Some(round) = rounds.join_next().await {
        round??;
    }
    Ok(())
}

pub(super) async fn look_at_a_hold_given_back_finds_it_over(bench: Bench) -> Outcome {
    let lock = bench.lock("looked")?;
    for drops in [false, true] {
        let guard = lock.acquire().await?;
        let held = guard.held();
        assert!(held.is_held());
        if drops {
            drop(guard);
        } else {
            assert_eq!(guard.release().await?, Release::Freed);
        }
        assert!(!held.is_held());
        assert_eq!(held.state(), HoldState::Released);
        let told = tokio::time::timeout(SLACK, held.lost()).await?;
        assert_eq!(told, None, "given back and told of a loss");
    }
    Ok(())
}

/// A guard on a runtime that is no more.
fn guard_of_a_dead_runtime(bench: &Bench, name: &str) -> Outcome<Guard> {
    let (url, name) = (bench.url.clone(), name.to_owned());
    let holder = std::thread::spawn(move || -> Outcome<Guard> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let client = leasehold::connect(&url).await?;
            take(&client.lock(&name)?).await
        })
    });
    holder.join().map_err(|_| "the holder panicked")?
}

pub(super) async fn guard_dropped_outside_a_runtime_releases(bench: Bench) -> Outcome {
    let guard = tokio::task::block_in_place(|| guard_of_a_dead_runtime(&bench, "outside"))?;
    // Its runtime is gone; the hold is kept all the same.
    assert!(guard.is_held());
    assert_busy(&bench.lock("outside")?).await?;
    let dropped = std::thread::spawn(move || drop(guard));
    tokio::task::block_in_place(|| dropped.join()).map_err(|_| "the drop panicked")?;
    bench.free_within("outside", SLACK).await?;
    Ok(())
}

pub(super) async fn guard_dropped_on_another_thread_releases(bench: Bench) -> Outcome {
    let guard = take(&bench.lock("thread")?).await?;
    let dropped = std::thread::spawn(move || drop(guard));
    tokio::task::block_in_place(|| dropped.join()).map_err(|_| "the drop panicked")?;
    bench.free_within("thread", SLACK).await?;
    Ok(())
}

pub(super) async fn guard_dropped_in_runtime_shutdown_releases(bench: Bench) -> Outcome {
    let url = bench.url.clone();
    let holder = std::thread::spawn(move || -> Outcome {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let (taken, is_taken) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let client = leasehold::connect(&url).await?;
            let guard = take(&client.lock("shutdown")?).await?;
            taken.send(())?;
            // Never done: the runtime's end drops this task with its guard.
            std::future::pending::<()>().await;
            drop(guard);
            Outcome::Ok(())
        });
        is_taken.recv()?;
        drop(runtime);
        Ok(())
    });
    tokio::task::block_in_place(|| holder.join()).map_err(|_| "the holder panicked")??;
    bench.free_within("shutdown", SLACK).await?;
    Ok(())
}

pub(super) async fn close_waits_for_background_releases(bench: Bench) -> Outcome {
    let client = bench.other().await?;
    let mut guards = Vec::new();
    for at in 0..40 {
        guards.push(take(&client.lock(&format!("closed/{at}"))?).await?);
    }
    drop(guards);
    client.close().await;
    for at in 0..40 {
        bench
            .free_within(&format!("closed/{at}"), Duration::ZERO)
            .await?;
    }
    Ok(())
}

/// The lock of a case about holding at least, or `None` where the store refuses that as it says.
async fn kept(bench: &Bench, least: Duration) -> Outcome<Option<Lock>> {
    let lock = bench.lock("kept")?.hold_at_least(least);
    if bench.can.detached {
        return Ok(Some(lock));
    }
    let refused = lock.try_acquire().await.map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(ErrorKind::Unsupported));
    bench.free_within("kept", Duration::ZERO).await?;
    Ok(None)
}

/// Asserts that the next one has just got the lock no earlier than `least` after a grant asked for at `called`, and not
/// much later.
async fn assert_kept(
    bench: &Bench,
    next: Option<Guard>,
    called: u64,
    granted: u64,
    least: Duration,
) -> Outcome {
    let got = boot();
    let next = next.ok_or("a kept hold never ended")?;
    assert!(
        got - called >= nanos(least),
        "free after {:?} of {least:?}",
        Duration::from_nanos(got - called)
    );
    // Nobody is there to give it back.
    let most = bench.dead(least.max(bench.can.ttl_min));
    assert!(got - granted < nanos(most), "kept too long");
    assert_eq!(next.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn hold_at_least_keeps_others_out_after_release(bench: Bench) -> Outcome {
    let least = Duration::from_millis(800);
    let Some(lock) = kept(&bench, least).await? else {
        return Ok(());
    };
    let called = boot();
    let guard = take(&lock).await?;
    let granted = boot();
    // Who waits already learns that it ends earlier; by itself it looks long after.
    let waits = bench.on("kept", Terms::renewed(LONG * 4))?;
    let next = tokio::spawn(async move { waits.acquire_within(LONG).await });
    bench.queued("kept", 1).await?;
    assert_eq!(guard.release().await?, Release::Freed);
    assert_kept(&bench, next.await??, called, granted, least).await?;
    // Held for longer than the least already, it is free at once.
    let short = bench.lock("kept")?.hold_at_least(Duration::from_millis(50));
    let guard = take(&short).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(guard.release().await?, Release::Freed);
    bench.free_within("kept", Duration::ZERO).await?;
    Ok(())
}

pub(super) async fn hold_at_least_keeps_others_out_after_drop(bench: Bench) -> Outcome {
    let least = Duration::from_millis(1500);
    let Some(lock) = kept(&bench, least).await? else {
        return Ok(());
    };
    let called = boot();
    let guard = take(&lock).await?;
    let granted = boot();
    drop(guard);
    let next = bench.lock("kept")?.acquire_within(LONG).await?;
    assert_kept(&bench, next, called, granted, least).await
}

pub(super) async fn hold_at_least_outlives_its_process(bench: Bench) -> Outcome {
    let least = Duration::from_millis(2000);
    if kept(&bench, least).await?.is_none() {
        return Ok(());
    }
    let mut worker = bench.worker().await?;
    let terms = Terms {
        hold_at_least: least,
        ..Terms::renewed(LONG)
    };
    let called = boot();
    let (hold, _) = worker.take("kept", terms).await?;
    let granted = boot();
    assert_eq!(worker.release(hold).await?, "freed");
    worker.tell(&Order::Close)?;
    worker
        .hear(|event| matches!(event, crate::protocol::Event::Closed).then_some(()))
        .await?;
    worker.kill()?;
    let next = bench.lock("kept")?.acquire_within(LONG).await?;
    assert_kept(&bench, next, called, granted, least).await
}

//! Holds that end before their release: the holder knows first, and can do no harm afterwards.

use std::time::Duration;

use leasehold::{ErrorKind, Guard, Lock, LossReason, Release};

use super::{Bench, LONG, Outcome, SLACK, assert_busy, take};
use crate::history::{self, Verdict};
use crate::process::{Worker, crowds};
use crate::protocol::{Crowd, CrowdHold, Event, Order, Terms, Wait};
use crate::tools::{boot, elapsed, nanos};

/// Holders in two processes that let every hold run out, and others that are after it all the time.
async fn expiring_crowd(bench: &Bench, margin_ppm: u32, extends: bool) -> Outcome<Vec<CrowdHold>> {
    let crowd = Crowd {
        name: "expiring".into(),
        tasks: 4,
        terms: Terms {
            margin_ppm: Some(margin_ppm),
            ..Terms::expiring(bench.ttl(300))
        },
        waits: vec![Wait::No, Wait::Forever, Wait::AtMost(LONG)],
        holds: u32::MAX,
        at_least: 2,
        // Then all eight are served once more, and a worker that says nothing for half a minute counts as stuck.
        lasts: (bench.ttl(300) * 20).min(Duration::from_secs(8)),
        extends,
        gives_back: None,
        counter: None,
    };
    let (holds, _) = crowds(&bench.url, 2, &crowd).await?;
    assert!(holds.len() >= 5, "too few holds to tell: {}", holds.len());
    Ok(holds)
}

/// The deadline that the holder counts itself, to the nanosecond and without any margin.
pub(super) async fn expired_holder_stops_believing_before_the_next_grant(bench: Bench) -> Outcome {
    assert_deadlines(&expiring_crowd(&bench, 0, false).await?)
}

pub(super) async fn extended_holder_stops_believing_before_the_next_grant(bench: Bench) -> Outcome {
    assert_deadlines(&expiring_crowd(&bench, 0, true).await?)
}

fn assert_deadlines(holds: &[CrowdHold]) -> Outcome {
    history::check(&super::excluding::histories(holds), Verdict::Exclusive)?;
    for hold in holds {
        let told = hold.told.ok_or("an expired hold without a loss signal")?;
        let late = Duration::from_nanos(told.saturating_sub(hold.hold.until));
        assert!(late < SLACK, "told {late:?} after its deadline");
    }
    Ok(())
}

/// The signal itself comes first; a margin of half the TTL outweighs what a busy machine delays it.
pub(super) async fn expired_holder_is_told_before_the_next_grant(bench: Bench) -> Outcome {
    let holds = expiring_crowd(&bench, 500_000, false).await?;
    let by_signal: Vec<history::Hold> = holds
        .iter()
        .map(|hold| history::Hold {
            until: hold.told.unwrap_or(u64::MAX),
            ..hold.hold
        })
        .collect();
    history::check(&by_signal, Verdict::Exclusive)?;
    Ok(())
}

pub(super) async fn stale_owner_changes_nothing_of_the_newer_hold(bench: Bench) -> Outcome {
    let ttl = bench.ttl(400);
    // One Lock for both: its acquisitions are different owners nevertheless.
    let lock = bench.on("stale", Terms::expiring(ttl))?;
    let stale = take(&lock).await?;
    stale.lost().await;
    let newer = newer(&bench, &lock, ttl).await?;
    let refused = stale.extend(ttl).await.map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Lost));
    assert_unharmed(&bench, &newer, ttl).await?;
    assert_eq!(stale.release().await?, Release::Another);
    assert_unharmed(&bench, &newer, ttl).await?;
    assert_eq!(newer.release().await?, Release::Freed);

    let client = bench.other().await?;
    let stale = take(&Terms::expiring(ttl).lock(&client, "stale")?).await?;
    stale.lost().await;
    let newer = self::newer(&bench, &lock, ttl).await?;
    drop(stale);
    // Waits for the release in the background.
    client.close().await;
    assert_unharmed(&bench, &newer, ttl).await?;
    assert_eq!(newer.release().await?, Release::Freed);
    Ok(())
}

/// The next hold after one that ran out, made to stay.
async fn newer(bench: &Bench, lock: &Lock, ttl: Duration) -> Outcome<Guard> {
    let newer = lock.acquire_within(ttl + SLACK).await?;
    let newer = newer.ok_or("an expired lock stayed busy")?;
    newer.extend(bench.extension(ttl)).await?;
    Ok(newer)
}

async fn assert_unharmed(bench: &Bench, guard: &Guard, ttl: Duration) -> Outcome {
    let seen = bench.client.inspect("stale").await?;
    assert_eq!(
        seen.holder.and_then(|holder| holder.token),
        Some(guard.token())
    );
    assert_busy(&bench.lock("stale")?).await?;
    assert!(guard.is_held());
    // It can still be extended: the store knows its owner.
    Ok(guard.extend(bench.extension(ttl)).await?)
}

pub(super) async fn expired_hold_is_not_revived(bench: Bench) -> Outcome {
    let ttl = bench.ttl(300);
    let expired = take(&bench.on("over", Terms::expiring(ttl))?).await?;
    assert_eq!(expired.lost().await, LossReason::Expired);
    assert!(!expired.is_held());
    bench.free_within("over", ttl + SLACK).await?;
    // Nobody has taken it, and it is over all the same.
    let refused = expired.extend(ttl).await.map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Lost));
    bench.free_within("over", Duration::ZERO).await?;
    assert_eq!(expired.release().await?, Release::Expired);
    take(&bench.lock("over")?).await?.release().await?;
    Ok(())
}

pub(super) async fn stopped_holder_knows_on_waking(bench: Bench) -> Outcome {
    let ttl = bench.ttl(600);
    let mut worker = bench.worker().await?;
    for round in 0..4 {
        let name = format!("stopped{round}");
        let (hold, token) = worker.take(&name, Terms::renewed(ttl)).await?;
        worker.tell(&Order::Stare { hold })?;
        worker
            .hear(|event| matches!(event, Event::Staring { .. }).then_some(()))
            .await?;
        worker.stop()?;
        let since = boot();
        let next = bench.lock(&name)?.acquire_within(bench.dead(ttl)).await?;
        let next = next.ok_or("a stopped holder's lock stayed busy")?;
        let granted = boot();
        assert!(next.token().get() > token);
        // Stopped for a while longer: more than a lease ago is where it goes on.
        tokio::time::sleep((ttl / 2).saturating_sub(elapsed(since))).await;
        worker.go_on()?;
        assert_wakes_knowing(&mut worker, hold, granted).await?;

        assert_eq!(worker.extend(hold, ttl).await?.as_deref(), Some("lost"));
        assert_eq!(worker.release(hold).await?, "another");
        assert!(next.is_held());
        assert_busy(&bench.lock(&name)?).await?;
        assert_eq!(next.release().await?, Release::Freed);
    }
    Ok(())
}

/// Three threads look without a pause, so that one of them looks before anything else runs on waking.
async fn assert_wakes_knowing(worker: &mut Worker, hold: u64, granted: u64) -> Outcome {
    let since = boot();
    for _ in 0..3 {
        let (held, until) = worker
            .hear(|event| match event {
                Event::Blinked {
                    hold: of,
                    held,
                    until,
                    ..
                } if *of == hold => Some((*held, *until)),
                _ => None,
            })
            .await?;
        assert!(held < granted, "it believed after the next one was granted");
        assert!(until <= granted, "it was to believe longer than the store");
    }
    worker.lost(hold).await?;
    assert!(elapsed(since) < SLACK, "told after {:?}", elapsed(since));
    Ok(())
}

pub(super) async fn holder_that_blocks_its_runtime_keeps_the_lock(bench: Bench) -> Outcome {
    let ttl = bench.ttl(3000);
    let lock = bench.on("blocking", Terms::renewed(ttl))?;
    let url = bench.url.clone();
    let holder = std::thread::spawn(move || -> Outcome<(bool, Release)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let client = leasehold::connect(&url).await?;
            let guard = take(&Terms::renewed(ttl).lock(&client, "blocking")?).await?;
            std::thread::sleep(ttl * 2);
            let held = guard.is_held();
            Ok((held, guard.release().await?))
        })
    });
    bench
        .inspected("blocking", SLACK, |seen| seen.holder.is_some())
        .await?;
    let since = boot();
    while elapsed(since) < ttl.mul_f64(1.6) {
        assert_busy(&lock).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let outcome = tokio::task::spawn_blocking(move || holder.join()).await?;
    let (held, release) = outcome.map_err(|_| "the holder panicked")??;
    assert!(held, "a hold was lost because its holder blocked");
    assert_eq!(release, Release::Freed);
    Ok(())
}

pub(super) async fn renewed_hold_outlives_its_ttl(bench: Bench) -> Outcome {
    let ttl = bench.ttl(3000);
    let lock = bench.on("renewed", Terms::renewed(ttl))?;
    let guard = take(&lock).await?;
    let since = boot();
    while elapsed(since) < ttl * 2 {
        assert!(guard.is_held(), "{guard:?}");
        assert_busy(&lock).await?;
        tokio::time::sleep(ttl / 40).await;
    }
    assert_eq!(guard.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn max_hold_ends_a_renewed_hold(bench: Bench) -> Outcome {
    let ttl = bench.ttl(1000);
    let most = ttl * 2;
    let lock = bench.on("most", Terms::renewed(ttl))?.max_hold(most);
    let since = boot();
    let guard = take(&lock).await?;
    let granted = boot();
    assert!(guard.remaining() <= most);
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    let ended = boot();
    assert!(!guard.is_held());
    assert!(ended - since >= nanos(most), "it ended too early");
    assert!(ended - granted < nanos(most + SLACK));
    guard.release().await?;
    bench.free_within("most", Duration::ZERO).await?;
    Ok(())
}

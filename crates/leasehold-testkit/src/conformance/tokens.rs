//! The fencing token rises with every grant, whatever ended the hold before.

use leasehold::Guard;
use leasehold::store::Broken;

use super::{Bench, LONG, Outcome, SLACK, assert_busy, take};
use crate::protocol::Terms;

/// Asserts that tokens rise, and that the store shows the newest one with nobody holding too.
async fn assert_rising(bench: &Bench, name: &str, tokens: &[u64]) -> Outcome {
    assert!(
        tokens.windows(2).all(|pair| pair[0] < pair[1]),
        "{tokens:?}"
    );
    let seen = bench.client.inspect(name).await?;
    if let (Some(shown), Some(newest)) = (seen.last_token, tokens.last()) {
        assert_eq!(shown.get(), *newest);
    }
    Ok(())
}

fn token(guard: &Guard) -> u64 {
    guard.token().get()
}

pub(super) async fn rise_over_release_and_drop(bench: Bench) -> Outcome {
    let lock = bench.lock("t")?;
    let mut tokens = Vec::new();
    for round in 0..6 {
        let guard = lock.acquire().await?;
        tokens.push(token(&guard));
        if round % 2 == 0 {
            guard.release().await?;
        }
    }
    bench.free_within("t", SLACK).await?;
    assert_rising(&bench, "t", &tokens).await
}

pub(super) async fn rise_over_expiry(bench: Bench) -> Outcome {
    let ttl = bench.ttl(300);
    let lock = bench.on("t", Terms::expiring(ttl))?;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let guard = lock.acquire_within(ttl + SLACK).await?;
        let guard = guard.ok_or("an expired lock stayed busy")?;
        tokens.push(token(&guard));
        guard.lost().await;
        // Never released: what ends the hold in the store is its time.
        std::mem::forget(guard);
    }
    bench.free_within("t", ttl + SLACK).await?;
    assert_rising(&bench, "t", &tokens).await
}

pub(super) async fn rise_over_break(bench: Bench) -> Outcome {
    let lock = bench.lock("t")?;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let guard = lock.acquire().await?;
        tokens.push(token(&guard));
        let broken = bench.client.break_hold("t", None).await?;
        assert!(matches!(broken, Broken::Ended(_)), "{broken:?}");
    }
    assert_rising(&bench, "t", &tokens).await
}

pub(super) async fn rise_over_reconnection(bench: Bench) -> Outcome {
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let client = bench.other().await?;
        let guard = take(&client.lock("t")?).await?;
        tokens.push(token(&guard));
        guard.release().await?;
        client.close().await;
    }
    assert_rising(&bench, "t", &tokens).await
}

pub(super) async fn rise_over_a_killed_holder(bench: Bench) -> Outcome {
    let ttl = bench.ttl(1000);
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let mut worker = bench.worker().await?;
        let hold = worker.acquiring(
            "t",
            Terms::renewed(ttl),
            crate::protocol::Wait::AtMost(bench.dead(ttl)),
        )?;
        let granted = worker.granted(hold).await?;
        tokens.push(granted.ok_or("a dead holder's lock stayed busy")?);
        assert_busy(&bench.on("t", Terms::renewed(LONG))?).await?;
        worker.kill()?;
    }
    bench.free_within("t", bench.dead(ttl)).await?;
    assert_rising(&bench, "t", &tokens).await
}

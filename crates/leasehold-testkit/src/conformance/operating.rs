//! What operators see and do.

use std::time::Duration;

use leasehold::store::Broken;
use leasehold::{LossReason, Release, Token};

use super::{Bench, LONG, Outcome, SLACK, assert_busy, take};
use crate::protocol::{Terms, Wait};
use crate::tools::{boot, elapsed};

pub(super) async fn inspect_shows_holder_queue_and_last_token(bench: Bench) -> Outcome {
    let before = bench.client.inspect("seen").await?;
    assert!(before.holder.is_none() && before.waiters.is_empty());
    assert_eq!(before.last_token, None);

    let mut worker = bench.worker().await?;
    let asked = leasehold_core::clock::wall();
    let (hold, token) = worker.take("seen", Terms::renewed(LONG)).await?;
    let lock = bench.lock("seen")?.note("from the test");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    bench.queued("seen", 1).await?;

    let seen = bench.client.inspect("seen").await?;
    assert_eq!(seen.name.as_str(), "seen");
    assert_eq!(seen.last_token.map_or(token, Token::get), token);
    let holder = seen.holder.ok_or("a held lock shows no holder")?;
    assert_eq!(holder.token.map(Token::get), Some(token));
    let identity = holder.identity.ok_or("a holder of ours without identity")?;
    assert_eq!(identity.pid, worker.pid());
    assert!(!identity.host.is_empty() && !identity.user.is_empty());
    assert_eq!(Some(identity.program.as_str()), program().as_deref());
    assert_eq!(identity.note, None);
    let since = holder.since.ok_or("a holder without its time")?;
    let slack = Duration::from_millis(1500);
    assert!(since + slack >= asked && since <= leasehold_core::clock::wall() + slack);
    let left = holder.expires_in.ok_or("a holder without an end")?;
    assert!(left <= LONG && left + SLACK * 5 > LONG, "{left:?}");
    if bench.can.ordered {
        let waiting: Vec<_> = seen.waiters.iter().flatten().collect();
        assert_eq!(waiting.len(), 1);
        assert_eq!(waiting[0].pid, std::process::id());
        assert_eq!(waiting[0].note.as_deref(), Some("from the test"));
    }

    worker.release(hold).await?;
    let guard = waiter.await??;
    let last = guard.token();
    assert_eq!(guard.release().await?, Release::Freed);
    let after = bench.client.inspect("seen").await?;
    assert!(after.holder.is_none() && after.waiters.is_empty());
    assert_eq!(after.last_token.unwrap_or(last), last);
    Ok(())
}

fn program() -> Option<String> {
    let path = std::env::current_exe().ok()?;
    Some(path.file_name()?.to_string_lossy().into_owned())
}

pub(super) async fn list_shows_held_locks_of_a_prefix(bench: Bench) -> Outcome {
    let mut guards = Vec::new();
    for name in ["jobs/b", "jobs/a", "jobs", "other", "jobs/c/d"] {
        guards.push(take(&bench.lock(name)?).await?);
    }
    take(&bench.lock("jobs/free")?).await?.release().await?;
    let listed = |found: &[leasehold::Inspection]| -> Vec<String> {
        found.iter().map(|one| one.name.to_string()).collect()
    };
    let jobs = bench.client.list("jobs/").await?;
    assert_eq!(listed(&jobs), ["jobs/a", "jobs/b", "jobs/c/d"]);
    for one in &jobs {
        let holder = one.holder.as_ref().ok_or("a listed lock without holder")?;
        assert!(
            guards
                .iter()
                .any(|guard| Some(guard.token()) == holder.token)
        );
        let identity = holder
            .identity
            .as_ref()
            .ok_or("a holder without identity")?;
        assert_eq!(identity.pid, std::process::id());
    }
    let all = bench.client.list("").await?;
    assert_eq!(
        listed(&all),
        ["jobs", "jobs/a", "jobs/b", "jobs/c/d", "other"]
    );
    assert_eq!(bench.client.list("none").await?, []);
    Ok(())
}

pub(super) async fn break_tells_the_holder_and_frees_the_lock(bench: Bench) -> Outcome {
    // The renewal that finds it out comes within half the TTL at most.
    let ttl = bench.ttl(10_000);
    let mut worker = bench.worker().await?;
    let (hold, token) = worker.take("broken", Terms::renewed(ttl)).await?;
    let lock = bench.on("broken", Terms::renewed(ttl))?;
    let waiter = tokio::spawn(async move { lock.acquire().await });
    bench.queued("broken", 1).await?;

    let since = boot();
    let token = Token::new(token).ok_or("a token of zero")?;
    let broken = bench.client.break_hold("broken", Some(token)).await?;
    let Broken::Ended(holder) = broken else {
        return Err(format!("breaking a held lock found {broken:?}").into());
    };
    assert_eq!(holder.token, Some(token));
    assert_eq!(holder.identity.map(|one| one.pid), Some(worker.pid()));
    let next = waiter.await??;
    assert!(elapsed(since) < SLACK, "free after {:?}", elapsed(since));
    assert!(next.token() > token);
    assert_eq!(worker.lost(hold).await?, LossReason::Broken.as_str());
    assert!(elapsed(since) < ttl / 2 + SLACK);
    assert_eq!(worker.extend(hold, ttl).await?.as_deref(), Some("lost"));
    // Whatever the old holder does, the new one keeps the lock.
    assert_eq!(worker.release(hold).await?, "another");
    assert!(next.is_held());
    assert_busy(&bench.lock("broken")?).await?;
    assert_eq!(next.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn break_of_another_token_changes_nothing(bench: Bench) -> Outcome {
    let ttl = bench.ttl(4000);
    let lock = bench.on("kept", Terms::renewed(ttl))?;
    let old = take(&lock).await?;
    let stale = old.token();
    old.release().await?;
    let guard = take(&lock).await?;
    let above = Token::new(guard.token().get() + 1).ok_or("a token of zero")?;
    for wrong in [stale, above] {
        let found = bench.client.break_hold("kept", Some(wrong)).await?;
        let Broken::OtherToken(holder) = found else {
            return Err(format!("a wrong token found {found:?}").into());
        };
        assert_eq!(holder.token, Some(guard.token()));
    }
    // Its next renewal would find it out.
    tokio::time::sleep(ttl / 2).await;
    assert!(guard.is_held());
    assert_busy(&lock).await?;
    assert_eq!(guard.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn break_of_a_free_lock_finds_it_free(bench: Bench) -> Outcome {
    assert_eq!(bench.client.break_hold("none", None).await?, Broken::Free);
    let guard = take(&bench.lock("none")?).await?;
    let token = guard.token();
    guard.release().await?;
    let found = bench.client.break_hold("none", Some(token)).await?;
    assert_eq!(found, Broken::Free);

    // A waiter is no holder.
    let mut worker = bench.worker().await?;
    let guard = take(&bench.lock("none")?).await?;
    let waiting = worker.acquiring("none", Terms::renewed(LONG), Wait::Forever)?;
    bench.queued("none", 1).await?;
    assert_eq!(guard.release().await?, Release::Freed);
    assert!(worker.granted(waiting).await?.is_some());
    assert_eq!(worker.release(waiting).await?, "freed");
    Ok(())
}

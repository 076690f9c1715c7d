//! One process: what a store must keep, whatever happens to those who use it.

use std::time::Duration;

use crate::common::{LONG, Place, busy, claim, contend, granted, name};
use leasehold_core::backend::{Broken, LossReason, Renewal};
use leasehold_core::{Release, clock};

#[tokio::test(flavor = "multi_thread")]
async fn one_holder_at_a_time_and_a_higher_token_each() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut first = contend(&backend, "a", LONG, false).await;
    let mut second = contend(&backend, "a", LONG, false).await;
    let before = granted(&mut first).await;
    assert_eq!(busy(&mut second).await, 0);
    assert_eq!(first.release(Duration::ZERO).await.unwrap(), Release::Freed);
    let after = granted(&mut second).await;
    assert!(after.token > before.token, "{after:?} after {before:?}");
    assert!(after.since.boot <= clock::now().boot);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_that_asks_again_gets_the_same_token() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut holder = contend(&backend, "a", Duration::from_millis(400), false).await;
    let first = granted(&mut holder).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let again = granted(&mut holder).await;
    assert_eq!(first.token, again.token);
    assert!(again.since.boot > first.since.boot);
    // It counts from the second try, so it must last from there on.
    tokio::time::sleep(Duration::from_millis(250)).await;
    let mut other = contend(&backend, "a", LONG, false).await;
    busy(&mut other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_hold_is_not_resurrected_by_a_late_renewal() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut holder = contend(&backend, "a", LONG, false).await;
    granted(&mut holder).await;
    holder.release(Duration::ZERO).await.unwrap();
    let renewal = holder.renew(LONG).await.unwrap();
    assert_eq!(renewal, Renewal::Lost(LossReason::Expired));
    assert!(backend.inspect(&name("a")).await.unwrap().holder.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn release_after_a_dropped_try_leaves_nothing() {
    let place = Place::new();
    let backend = place.backend().await;
    for waits in [false, true] {
        for _ in 0..50 {
            let mut attempt = contend(&backend, "a", LONG, waits).await;
            send_and_drop(attempt.try_acquire());
            attempt.release(Duration::ZERO).await.unwrap();
            let seen = backend.inspect(&name("a")).await.unwrap();
            assert!(seen.holder.is_none(), "{seen:?}");
            assert!(seen.waiters.is_empty(), "{seen:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn release_nobody_waits_for_is_done_all_the_same() {
    let place = Place::new();
    let backend = place.backend().await;
    for _ in 0..50 {
        let mut holder = contend(&backend, "a", LONG, false).await;
        granted(&mut holder).await;
        send_and_drop(holder.release(Duration::ZERO));
        drop(holder);
        let seen = backend.inspect(&name("a")).await.unwrap();
        assert!(seen.holder.is_none(), "{seen:?}");
    }
}

/// Polls once, which sends, and doesn't wait for the answer; it may be there already.
fn send_and_drop<T>(future: impl Future<Output = T>) {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut future = std::pin::pin!(future);
    let _ = future.as_mut().poll(&mut context);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_try_that_does_not_wait_leaves_nothing() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut holder = contend(&backend, "a", LONG, false).await;
    granted(&mut holder).await;
    let before = place.sql("SELECT group_concat(name || rev || ends) FROM locks");
    let mut other = contend(&backend, "a", LONG, false).await;
    busy(&mut other).await;
    assert_eq!(
        before,
        place.sql("SELECT group_concat(name || rev || ends) FROM locks")
    );
    assert_eq!(place.sql("SELECT count(*) FROM waiters").unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_survives_release_expiry_break_and_reopening() {
    let place = Place::new();
    let mut last = None;
    for round in 0..3 {
        let backend = place.backend().await;
        let mut released = contend(&backend, "a", LONG, false).await;
        let first = granted(&mut released).await.token;
        assert!(Some(first) > last, "{first} after {last:?}");
        released.release(Duration::ZERO).await.unwrap();

        let mut expired = contend(&backend, "a", Duration::from_millis(100), false).await;
        let second = granted(&mut expired).await.token;
        assert!(second > first);
        tokio::time::sleep(Duration::from_millis(120)).await;

        let mut broken = contend(&backend, "a", LONG, false).await;
        let third = granted(&mut broken).await.token;
        assert!(third > second);
        assert!(matches!(
            backend.break_hold(&name("a"), None).await.unwrap(),
            Broken::Ended(_)
        ));
        last = Some(third);
        if round == 0 {
            backend.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_lose_a_hold_has_its_reason() {
    let place = Place::new();
    let backend = place.backend().await;
    let short = Duration::from_millis(100);

    let mut expired = contend(&backend, "a", short, false).await;
    granted(&mut expired).await;
    tokio::time::sleep(short * 2).await;
    assert_eq!(
        expired.renew(LONG).await.unwrap(),
        Renewal::Lost(LossReason::Expired)
    );

    let mut thief = contend(&backend, "a", LONG, false).await;
    granted(&mut thief).await;
    assert_eq!(
        expired.renew(LONG).await.unwrap(),
        Renewal::Lost(LossReason::Stolen)
    );
    assert_eq!(
        expired.release(Duration::ZERO).await.unwrap(),
        Release::Another
    );

    backend.break_hold(&name("a"), None).await.unwrap();
    let mut next = contend(&backend, "a", LONG, false).await;
    granted(&mut next).await;
    assert_eq!(
        thief.renew(LONG).await.unwrap(),
        Renewal::Lost(LossReason::Broken)
    );
    assert_eq!(
        thief.release(Duration::ZERO).await.unwrap(),
        Release::Another
    );
    assert_eq!(next.release(Duration::ZERO).await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_never_shortens() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut holder = contend(&backend, "a", LONG, false).await;
    granted(&mut holder).await;
    holder.renew(Duration::from_millis(100)).await.unwrap();
    let seen = backend.inspect(&name("a")).await.unwrap();
    let left = seen.holder.unwrap().expires_in.unwrap();
    assert!(left > LONG / 2, "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn break_spares_a_hold_with_another_token() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut holder = contend(&backend, "a", LONG, false).await;
    let old = granted(&mut holder).await.token;
    holder.release(Duration::ZERO).await.unwrap();
    let mut holder = contend(&backend, "a", LONG, false).await;
    let new = granted(&mut holder).await.token;
    let broken = backend.break_hold(&name("a"), Some(old)).await.unwrap();
    let Broken::OtherToken(other) = broken else {
        panic!("{broken:?}");
    };
    assert_eq!(other.token, Some(new));
    assert!(matches!(
        holder.renew(LONG).await.unwrap(),
        Renewal::Renewed { .. }
    ));
    let broken = backend.break_hold(&name("a"), Some(new)).await.unwrap();
    assert!(matches!(broken, Broken::Ended(_)));
    let broken = backend.break_hold(&name("a"), None).await.unwrap();
    assert_eq!(broken, Broken::Free);
    let broken = backend.break_hold(&name("b"), None).await.unwrap();
    assert_eq!(broken, Broken::Free);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_hold_ends_by_time_alone_and_then_wakes_the_waiter() {
    let place = Place::new();
    let client = place.client().await;
    let keep = Duration::from_millis(300);
    let guard = client
        .lock("a")
        .unwrap()
        .hold_at_least(keep)
        .acquire()
        .await
        .unwrap();
    let begun = clock::now();
    let waiter = tokio::spawn({
        let lock = client.lock("a").unwrap();
        async move { lock.acquire().await.map(|guard| (guard, clock::now())) }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    let (_guard, granted) = waiter.await.unwrap().unwrap();
    let waited = granted.since(begun).steady;
    assert!(waited > keep - Duration::from_millis(50), "{waited:?}");
    // Told of the new end: it would have looked a second after it came.
    assert!(waited < keep + Duration::from_millis(500), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_takes_the_prefix_letter_by_letter() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut held = Vec::new();
    for lock in ["a_b", "a%b", "axb", "a_", "A_b", "a_b/c", "b"] {
        let mut contender = contend(&backend, lock, LONG, false).await;
        granted(&mut contender).await;
        held.push(contender);
    }
    let mut expired = contend(&backend, "a_gone", Duration::from_millis(100), false).await;
    granted(&mut expired).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    let listed = |found: Vec<leasehold_core::Inspection>| -> Vec<String> {
        found.iter().map(|found| found.name.to_string()).collect()
    };
    let found = listed(backend.list("a_").await.unwrap());
    assert_eq!(found, ["a_", "a_b", "a_b/c"]);
    assert_eq!(listed(backend.list("a%").await.unwrap()), ["a%b"]);
    assert_eq!(backend.list("").await.unwrap().len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn inspect_shows_holder_and_queue_and_changes_nothing() {
    let place = Place::new();
    let backend = place.backend().await;
    let unknown = backend.inspect(&name("never")).await.unwrap();
    assert!(unknown.holder.is_none() && unknown.last_token.is_none());
    let mut holder = contend(&backend, "a", LONG, false).await;
    let grant = granted(&mut holder).await;
    let mut waiters = Vec::new();
    for note in ["first", "second"] {
        let mut asked = claim("a", LONG, true);
        let mut identity = (*asked.identity).clone();
        identity.note = Some(note.into());
        asked.identity = identity.into();
        let mut waiter = backend.contend(asked).await.unwrap();
        assert_eq!(busy(&mut waiter).await as usize, waiters.len());
        waiters.push(waiter);
    }
    let dump = "SELECT (SELECT group_concat(rev || ends) FROM locks) || count(*) FROM waiters";
    let before = place.sql(dump);
    let seen = backend.inspect(&name("a")).await.unwrap();
    assert_eq!(before, place.sql(dump));
    let shown = seen.holder.unwrap();
    assert_eq!(shown.token, Some(grant.token));
    assert_eq!(shown.identity.unwrap().pid, std::process::id());
    let age = clock::wall().duration_since(shown.since.unwrap()).unwrap();
    assert!(age < Duration::from_secs(10), "{age:?}");
    let notes: Vec<_> = seen
        .waiters
        .iter()
        .map(|waiter| waiter.as_ref().unwrap().note.clone().unwrap())
        .collect();
    assert_eq!(notes, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_a_common_beginning_do_not_delay_each_other() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut deep = contend(&backend, "a/b", LONG, false).await;
    granted(&mut deep).await;
    let mut shallow = contend(&backend, "a", LONG, true).await;
    granted(&mut shallow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_backend_stops_its_threads_and_removes_its_file() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut holder = contend(&backend, "a", LONG, true).await;
    granted(&mut holder).await;
    let mut waiter = contend(&backend, "a", LONG, true).await;
    busy(&mut waiter).await;
    assert_eq!(place.live_files(), 1);
    drop((holder, waiter, backend));
    crate::common::until(Duration::from_secs(5), async || place.live_files() == 0).await;
    // It can't tell any more, so it holds on until its time is over; but nobody waits.
    let backend = place.backend().await;
    let seen = backend.inspect(&name("a")).await.unwrap();
    assert!(seen.holder.is_some() && seen.waiters.is_empty(), "{seen:?}");
}

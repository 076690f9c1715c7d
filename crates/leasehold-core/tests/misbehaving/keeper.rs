//! The keeper over a store that misbehaves on command.

use std::sync::Arc;
use std::time::Duration;

use crate::scripted::{Answer, store};
use crate::{LONG, TTL, soon, until};
use leasehold_core::{ErrorKind, HoldState, LossReason, Release};

#[tokio::test]
async fn a_hold_is_renewed_until_it_is_released() {
    let (store, client) = store();
    let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
    tokio::time::sleep(TTL * 3).await;
    assert!(guard.is_held());
    assert_eq!(guard.state(), HoldState::Held);
    assert!(store.state.lock().unwrap().renewals.len() >= 3);
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    let renewals = store.state.lock().unwrap().renewals.len();
    tokio::time::sleep(TTL).await;
    assert_eq!(
        store.state.lock().unwrap().renewals.len(),
        renewals,
        "renewed after its release"
    );
}

#[tokio::test]
async fn nothing_is_left_of_a_hold_however_it_ended() {
    let (store, client) = store();
    // Every contender has its store, and the store keeps what wakes its hold.
    let before = Arc::strong_count(&store.tries);
    let gone = || Arc::strong_count(&store.tries) == before;
    let acquire = || async { client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap() };

    let guard = acquire().await;
    let looks_on = guard.held();
    guard.release().await.unwrap();
    until("no contender after a release", gone).await;
    drop(looks_on);

    drop(acquire().await);
    until("no contender after a drop", gone).await;

    store.script(|script| script.loss = Some(LossReason::Stolen));
    let guard = acquire().await;
    soon(guard.lost()).await;
    drop(guard);
    until("no contender after a loss", gone).await;
}

#[tokio::test]
async fn a_look_at_a_released_hold_says_so() {
    let (_, client) = store();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    let held = guard.held();
    assert!(held.is_held());
    let told = tokio::spawn({
        let held = held.clone();
        async move { held.lost().await }
    });
    guard.release().await.unwrap();
    assert_eq!(soon(told).await.unwrap(), None);
    assert!(!held.is_held());
    assert_eq!(held.state(), HoldState::Released);
}

#[tokio::test]
async fn a_hung_renewal_does_not_delay_the_loss() {
    let (store, client) = store();
    store.script(|script| script.renew = Answer::HangAfter);
    let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
    assert_eq!(soon(guard.lost()).await, LossReason::Unreachable);
    assert!(!guard.is_held());
}

#[tokio::test]
async fn a_failing_renewal_is_tried_again_and_recovers() {
    let (store, client) = store();
    store.script(|script| script.renew = Answer::Fail);
    let guard = client
        .lock("a")
        .unwrap()
        .ttl(TTL * 4)
        .acquire()
        .await
        .unwrap();
    until("uncertain", || guard.state() == HoldState::Uncertain).await;
    assert!(
        guard.is_held(),
        "an unanswered renewal says nothing about the hold"
    );
    store.script(|script| script.renew = Answer::Right);
    until("held again", || guard.state() == HoldState::Held).await;
}

#[tokio::test]
async fn a_renewal_that_panics_is_a_loss_and_no_other_hold_s() {
    let (bad, bad_client) = store();
    let (_, good_client) = store();
    bad.script(|script| script.renew = Answer::Panic);
    let lost = bad_client
        .lock("a")
        .unwrap()
        .ttl(TTL)
        .acquire()
        .await
        .unwrap();
    let kept = good_client
        .lock("a")
        .unwrap()
        .ttl(TTL)
        .acquire()
        .await
        .unwrap();
    assert_eq!(soon(lost.lost()).await, LossReason::Unreachable);
    tokio::time::sleep(TTL * 2).await;
    assert!(kept.is_held());
    assert_eq!(soon(lost.release()).await.unwrap(), Release::Expired);
}

#[tokio::test]
async fn a_loss_is_told_with_its_reason() {
    for reason in [
        LossReason::Stolen,
        LossReason::Broken,
        LossReason::SessionLost,
    ] {
        let (store, client) = store();
        store.script(|script| script.loss = Some(reason));
        let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
        let held = guard.held();
        assert_eq!(soon(guard.lost()).await, reason);
        assert_eq!(soon(held.lost()).await, Some(reason));
        assert!(!guard.is_held());
    }
}

#[tokio::test]
async fn trouble_told_by_the_store_is_asked_about_at_once() {
    let (store, client) = store();
    let guard = client
        .lock("a")
        .unwrap()
        .ttl(LONG * 6)
        .acquire()
        .await
        .unwrap();
    until("taken in", || guard.is_held()).await;
    store.script(|script| script.loss = Some(LossReason::Broken));
    store.tell();
    assert_eq!(soon(guard.lost()).await, LossReason::Broken);
}

#[tokio::test]
async fn a_release_cuts_a_hung_renewal_short() {
    let (store, client) = store();
    store.script(|script| script.renew = Answer::HangAfter);
    // The renewal may hang for a sixth of the TTL; the release must not.
    let guard = client
        .lock("a")
        .unwrap()
        .ttl(LONG * 6)
        .acquire()
        .await
        .unwrap();
    store.tell();
    until("renewing", || {
        !store.state.lock().unwrap().renewals.is_empty()
    })
    .await;
    let released = tokio::time::timeout(LONG / 2, guard.release()).await;
    assert_eq!(
        released
            .expect("the release waited for the renewal")
            .unwrap(),
        Release::Freed
    );
}

#[tokio::test]
async fn a_guard_dropped_during_a_renewal_is_released() {
    let (store, client) = store();
    store.script(|script| script.renew = Answer::HangAfter);
    let guard = client
        .lock("a")
        .unwrap()
        .ttl(LONG * 6)
        .acquire()
        .await
        .unwrap();
    store.tell();
    until("renewing", || {
        !store.state.lock().unwrap().renewals.is_empty()
    })
    .await;
    drop(guard);
    until("free", || store.is_free()).await;
}

#[test]
fn a_guard_dropped_outside_a_runtime_is_released() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (store, guard) = runtime.block_on(async {
        let (store, client) = store();
        (store, client.lock("a").unwrap().acquire().await.unwrap())
    });
    drop(runtime);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    let begun = std::thread::spawn(move || {
        for _ in 0..1000 {
            if store.is_free() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    });
    assert!(begun.join().unwrap(), "never released");
}

#[tokio::test]
async fn a_caller_that_blocks_its_runtime_keeps_its_lock() {
    let (store, client) = store();
    let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
    std::thread::sleep(TTL * 4);
    assert!(guard.is_held());
    assert!(!store.is_free());
}

#[tokio::test]
async fn an_unconfirmed_release_is_said_and_goes_on_in_the_background() {
    let (store, client) = store();
    let guard = client.lock("a").unwrap().ttl(LONG).acquire().await.unwrap();
    store.script(|script| script.release = Answer::Fail);
    assert!(guard.release().await.unwrap_err().is_retryable());
    store.script(|script| script.release = Answer::Right);
    until("free", || store.is_free()).await;
}

#[tokio::test]
async fn without_renewals_the_hold_ends_with_its_ttl() {
    let (store, client) = store();
    let guard = client
        .lock("a")
        .unwrap()
        .ttl(TTL)
        .renew(false)
        .acquire()
        .await
        .unwrap();
    assert_eq!(soon(guard.lost()).await, LossReason::Expired);
    assert!(store.state.lock().unwrap().renewals.is_empty());
}

#[tokio::test]
async fn an_extension_lasts_and_later_renewals_do_not_shorten_it() {
    let (_, client) = store();
    let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    assert!(guard.remaining() > LONG / 2);
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.remaining() > LONG / 2, "{:?}", guard.remaining());
    let error = guard.extend(Duration::from_secs(7200)).await.unwrap_err();
    assert!(error.to_string().contains("3600"), "{error}");
}

#[tokio::test]
async fn an_extension_after_the_loss_is_lost() {
    let (store, client) = store();
    store.script(|script| script.loss = Some(LossReason::Stolen));
    let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
    soon(guard.lost()).await;
    assert_eq!(guard.extend(TTL).await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn work_is_dropped_the_moment_the_lock_is_lost() {
    let (store, client) = store();
    store.script(|script| script.renew = Answer::Fail);
    let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
    let dropped = std::rc::Rc::new(std::cell::Cell::new(false));
    struct Flag(std::rc::Rc<std::cell::Cell<bool>>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let flag = Flag(dropped.clone());
    let error = soon(guard.run(async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    }))
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(dropped.get());
}

#[tokio::test]
async fn work_that_ends_too_late_is_lost() {
    let (store, client) = store();
    store.script(|script| script.renew = Answer::Fail);
    let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
    // Blocks past the deadline within one poll, as a paused process would.
    let error = guard
        .run(async { std::thread::sleep(TTL * 2) })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

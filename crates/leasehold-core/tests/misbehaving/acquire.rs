//! The wait loop over a store that misbehaves on command.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::scripted::{Answer, store};
use crate::{LONG, TTL, soon, until};
use leasehold_core::ErrorKind;

#[tokio::test]
async fn an_acquisition_dropped_while_its_try_hangs_is_released() {
    let (store, client) = store();
    store.script(|script| script.try_acquire = Answer::HangAfter);
    let lock = client.lock("a").unwrap().ttl(TTL);
    let attempt = tokio::time::timeout(Duration::from_millis(50), lock.acquire()).await;
    assert!(attempt.is_err());
    until("free", || store.is_free()).await;
    assert_eq!(store.state.lock().unwrap().releases, 1);
}

#[tokio::test]
async fn an_ambiguous_try_is_never_reported_held_and_is_cleaned_up() {
    let (store, client) = store();
    store.script(|script| script.try_acquire = Answer::FailAfter);
    let error = client
        .lock("a")
        .unwrap()
        .ttl(TTL)
        .try_acquire()
        .await
        .unwrap_err();
    assert!(error.is_retryable());
    assert!(error.to_string().contains("acquire \"a\""), "{error}");
    until("free", || store.is_free()).await;
}

#[tokio::test]
async fn the_clean_up_goes_on_until_the_answer_is_definite() {
    let (store, client) = store();
    store.script(|script| {
        script.try_acquire = Answer::FailAfter;
        script.release = Answer::Fail;
    });
    let lock = client.lock("a").unwrap().ttl(LONG);
    lock.try_acquire().await.unwrap_err();
    tokio::time::sleep(TTL).await;
    assert!(!store.is_free());
    store.script(|script| script.release = Answer::Right);
    soon(client.close()).await;
    assert!(
        store.is_free(),
        "close returned before the clean-up was done"
    );
}

#[tokio::test]
async fn a_grant_that_arrives_after_its_time_is_not_reported() {
    let (store, client) = store();
    store.script(|script| script.try_acquire = Answer::Late(TTL * 2));
    let error = client
        .lock("a")
        .unwrap()
        .ttl(TTL)
        .try_acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    soon(client.close()).await;
    assert!(store.is_free());
}

#[tokio::test]
async fn a_waiter_outlasts_an_outage_once_the_store_has_answered() {
    let (store, client) = store();
    let first = client.lock("a").unwrap().ttl(LONG).acquire().await.unwrap();
    let lock = client.lock("a").unwrap().ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until("waiting", || store.tries.load(Ordering::SeqCst) >= 2).await;
    store.script(|script| script.try_acquire = Answer::Fail);
    store.tell();
    first.release().await.unwrap();
    until("failing", || store.tries.load(Ordering::SeqCst) >= 4).await;
    store.script(|script| script.try_acquire = Answer::Right);
    assert!(soon(waiter).await.unwrap().unwrap().is_held());
}

#[tokio::test]
async fn a_store_that_never_answered_is_an_error_and_not_busy() {
    let (store, client) = store();
    store.script(|script| script.try_acquire = Answer::Fail);
    let lock = client.lock("a").unwrap();
    let error = soon(lock.acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    store.script(|script| script.try_acquire = Answer::HangAfter);
    let error = lock
        .acquire_within(Duration::from_millis(50))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_store_that_answered_once_and_then_hung_is_an_error_and_not_busy() {
    let (store, client) = store();
    let _holder = client.lock("a").unwrap().ttl(LONG).acquire().await.unwrap();
    let lock = client.lock("a").unwrap().ttl(LONG);
    let waiter = tokio::spawn(async move { lock.acquire_within(Duration::from_secs(3)).await });
    until("waiting", || store.tries.load(Ordering::SeqCst) >= 2).await;
    store.script(|script| script.try_acquire = Answer::HangAfter);
    store.tell();
    let error = soon(waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn with_lock_runs_once_and_says_busy() {
    let (store, client) = store();
    let token = client
        .with_lock("a", |held| async move { held.token() })
        .await
        .unwrap();
    assert!(token.is_some());
    assert!(store.is_free());
    let _guard = client.lock("a").unwrap().acquire().await.unwrap();
    let busy = client
        .with_lock("a", |_| async { unreachable!("it is busy") })
        .await
        .unwrap();
    assert!(busy.is_none());
}

#[tokio::test]
async fn settings_that_cannot_be_right_are_refused_before_anything_is_sent() {
    let (store, client) = store();
    let lock = client.lock("a").unwrap();
    for (lock, says) in [
        (lock.clone().ttl(Duration::from_millis(9)), "10ms"),
        (lock.clone().ttl(Duration::from_secs(3601)), "3600s"),
        (lock.clone().max_hold(Duration::ZERO), "zero"),
        (lock.clone().note("x".repeat(201)), "201 bytes"),
    ] {
        let error = lock.try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(store.tries.load(Ordering::SeqCst), 0);
}

#[test]
fn outside_a_runtime_connecting_is_an_error() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (scripted, _) = runtime.block_on(async { store() });
    let error = leasehold_core::Client::new(std::sync::Arc::new(scripted), "").unwrap_err();
    assert!(error.to_string().contains("Tokio"), "{error}");
}

#[tokio::test]
async fn prefixes_are_checked_and_not_shown() {
    let (scripted, _) = store();
    let backend = std::sync::Arc::new(scripted);
    let client = leasehold_core::Client::new(backend.clone(), "team/").unwrap();
    assert_eq!(client.lock("a").unwrap().name().as_str(), "team/a");
    assert_eq!(client.inspect("a").await.unwrap().name.as_str(), "a");
    for prefix in ["/", "a//", "\n", "zookeeper/"] {
        assert!(
            leasehold_core::Client::new(backend.clone(), prefix).is_err(),
            "{prefix:?}"
        );
    }
}

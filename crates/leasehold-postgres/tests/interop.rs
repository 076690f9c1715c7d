//! Locks of other makes: whoever takes the same key is kept out, and keeps out.
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

mod common;

use std::time::Duration;

use common::*;
use leasehold::store::Broken;
use leasehold::{ErrorKind, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::Postgres;

/// How long a waiter may take to hear of a release.
const PUSHED: Duration = Duration::from_secs(1);

/// Both ways, with a key that the other takes by `theirs`.
async fn assert_excludes(postgres: &Postgres, key: &str, name: &str, theirs: &str) {
    let client = connect(&format!("{}?key={key}", postgres.url())).await;
    let mut other = Session::start(postgres);
    let ours = take(&client, name, LONG).await;
    assert_eq!(
        other.ask(&format!("SELECT pg_try_advisory_lock({theirs});")),
        "f",
        "{key}"
    );
    // It waits for us, and then holds.
    let waited = other.answer(
        &format!("SELECT 'got', pg_advisory_lock({theirs});"),
        ms(300),
    );
    assert_eq!(waited, None, "{key}");
    assert_eq!(ours.release().await.unwrap(), Release::Freed);
    assert_eq!(other.later(SLACK).as_deref(), Some("got|"), "{key}");
    assert_busy(&client, name).await;
    let seen = client.inspect(name).await.unwrap();
    let holder = seen.holder.expect("shown");
    assert_eq!((holder.token, holder.identity), (None, None), "{key}");
    // We wait for it.
    let waiting = lock(&client, name, LONG);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    tokio::time::sleep(ms(300)).await;
    assert!(!waiter.is_finished(), "{key}");
    let freed = clock::now();
    assert_eq!(
        other.ask(&format!("SELECT pg_advisory_unlock({theirs});")),
        "t"
    );
    let guard = waiter.await.unwrap().unwrap();
    assert!(since(freed) < PUSHED, "{key}: after {:?}", since(freed));
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_takes_the_same_key_is_kept_out_and_keeps_out() {
    let postgres = server();
    // As Ruby's Zlib and Python's zlib make them of `job` and of the database's name, `locks`.
    let gem = format!("{}, 0", 4_225_294_584_u32 & 0x7fff_ffff);
    let rails = "2053462845 * 4231097751::int8";
    let digest = "('x' || substr(encode(sha256('job'), 'hex'), 1, 16))::bit(64)::int8";
    for (key, theirs) in [
        ("hashtext", "hashtext('job')"),
        ("with-advisory-lock", &gem),
        ("rails", rails),
        ("raw:-42", "-42"),
        ("raw:7,-1", "7, -1"),
        ("sha256", digest),
    ] {
        assert_excludes(&postgres, key, "job", theirs).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_one_key_exclude_each_other_and_never_share_a_token() {
    let postgres = server();
    let client = connect(&format!("{}?key=raw:42", postgres.url())).await;
    let first = take(&client, "a", LONG).await;
    assert_busy(&client, "b").await;
    let token = first.token();
    first.release().await.unwrap();
    let second = take(&client, "b", LONG).await;
    assert_busy(&client, "a").await;
    // The session is the same, and it is shown by the name that holds.
    let shown = |seen: leasehold::Inspection| seen.holder.and_then(|holder| holder.token);
    assert_eq!(
        shown(client.inspect("b").await.unwrap()),
        Some(second.token())
    );
    assert_eq!(shown(client.inspect("a").await.unwrap()), None);
    let listed = client.list("").await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name.as_str(), "b");
    second.release().await.unwrap();
    let again = take(&client, "a", LONG).await;
    assert!(again.token() > token);
    again.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_another_make_is_broken_where_its_session_has_no_other() {
    let postgres = server();
    let client = connect(&format!("{}?key=raw:42", postgres.url())).await;
    let mut other = Session::start(&postgres);
    other.ask("SELECT pg_try_advisory_lock(42), pg_try_advisory_lock(43);");
    let error = client.break_hold("x", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    other.ask("SELECT pg_advisory_unlock(43);");
    let broken = client.break_hold("x", None).await.unwrap();
    assert!(matches!(broken, Broken::Ended(_)), "{broken:?}");
    take(&client, "x", LONG).await.release().await.unwrap();
}

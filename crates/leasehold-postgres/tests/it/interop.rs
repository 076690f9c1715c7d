//! Locks of other makes: whoever takes the same key is kept out, and keeps out.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use leasehold::store::Broken;
use leasehold::{ErrorKind, Release};
use leasehold_core::clock;
use leasehold_testkit::program::Program;
use leasehold_testkit::servers::{Postgres, python_packages};

/// How long a waiter may take to hear of a release.
const PUSHED: Duration = Duration::from_secs(1);
/// With the driver's own copy of the server's library, for the versions of Python that are about.
const PSYCOPG: &str = "\
psycopg==3.3.3 --hash=sha256:f96525a72bcfade6584ab17e89de415ff360748c766f0106959144dcbb38c698
psycopg-binary==3.3.3 --hash=sha256:48e500cf1c0984dacf1f28ea482c3cdbb4c2288d51c336c04bc64198ab21fc51 \
    --hash=sha256:dac7ee2f88b4d7bb12837989ca354c38d400eeb21bce3b73dac02622f0a3c8d6 \
    --hash=sha256:263a24f39f26e19ed7fc982d7859a36f17841b05bebad3eb47bb9cd2dd785351 \
    --hash=sha256:42961609ac07c232a427da7c87a468d3c82fee6762c220f38e37cfdacb2b178d \
    --hash=sha256:17bb6600e2455993946385249a3c3d0af52cd70c1c1cdbf712e9d696d0b0bf1b
typing_extensions==4.15.0 --hash=sha256:f0fa19c6845758ab08074a0cfa8b7aecb71c999ca73d62883bc25cc018c4e548
";

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

/// psycopg, which takes a lock of its own accord.
fn psycopg(postgres: &Postgres, how: &str, once: &str) -> Program {
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", python_packages("psycopg", PSYCOPG).unwrap())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/advisory_lock.py"))
        .arg(postgres.address().port().to_string())
        .args([how, "job", once]);
    Program::start(&mut command)
}

/// Ruby isn't needed: the gem is there by the statements that it sends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_on_psycopg_and_the_gems_statements_are_kept_out_and_keep_out() {
    let postgres = server();
    for (key, how) in [("hashtext", "hashtext"), ("with-advisory-lock", "gem")] {
        let client = connect(&format!("{}?key={key}", postgres.url())).await;
        let ours = take(&client, "job", LONG).await;
        let busy = psycopg(&postgres, how, "once");
        assert_eq!(busy.line_within(LONG).as_deref(), Some("busy"), "{how}");
        // It waits for us, and then holds.
        let mut other = psycopg(&postgres, how, "wait");
        assert_eq!(other.line_within(ms(1500)), None, "{how}");
        assert_eq!(ours.release().await.unwrap(), Release::Freed);
        assert_eq!(other.line_within(SLACK).as_deref(), Some("held"), "{how}");
        assert_busy(&client, "job").await;
        // We wait for it.
        let waits = lock(&client, "job", LONG);
        let waiter = tokio::spawn(async move { waits.acquire().await });
        queued(&client, "job", 1).await;
        let freed = clock::now();
        other.tell("");
        assert_eq!(other.line_within(SLACK).as_deref(), Some("freed"), "{how}");
        let guard = waiter.await.unwrap().unwrap();
        assert!(since(freed) < PUSHED, "{how}: after {:?}", since(freed));
        assert_eq!(guard.release().await.unwrap(), Release::Freed);
        assert!(other.end());
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

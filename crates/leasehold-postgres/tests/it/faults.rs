//! Sessions that are ended, servers that restart, crash and stand still, connections that are cut; never two holders.

use std::time::Duration;

use crate::common::*;
use leasehold::{ErrorKind, HoldState, LossReason, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{Direction, Postgres, Proxy};

const TTL: Duration = Duration::from_secs(4);
/// How much later than its TTL a silent session's lock may be free.
const LATE: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_session_is_told_at_once_and_what_comes_after_has_a_new_one() {
    let postgres = server();
    let client = connect(&postgres.url()).await;
    let held = take(&client, "x", LONG).await;
    let [pid] = holding(&postgres, true)[..] else {
        panic!("one session holds");
    };
    postgres
        .query(&format!("SELECT pg_terminate_backend({pid})"))
        .unwrap();
    // Long before a renewal is due.
    let reason = tokio::time::timeout(SLACK, held.lost()).await.unwrap();
    assert_eq!(reason, LossReason::SessionLost);
    let again = take(&client, "x", LONG).await;
    assert!(again.token() > held.token());
    assert_eq!(held.release().await.unwrap(), Release::Another);
    assert_eq!(again.release().await.unwrap(), Release::Freed);
}

/// Its locks are forgotten, and a holder who was cut off may still believe: nobody gets one before its TTL is over.
async fn assert_held_back(mut postgres: Postgres, end: impl Fn(&mut Postgres)) {
    let client = connect(&postgres.url()).await;
    let held = take(&client, "x", TTL).await;
    let short = take(&client, "short", Duration::from_secs(1)).await;
    end(&mut postgres);
    tokio::time::timeout(SLACK, held.lost()).await.unwrap();
    tokio::time::timeout(SLACK, short.lost()).await.unwrap();
    let other = connect(&postgres.url()).await;
    let next = lock(&other, "x", TTL);
    let next = next.acquire_within(TTL + SLACK).await.unwrap();
    let next = next.expect("free after its TTL");
    // By the server's own clock, as its start takes long on a busy machine.
    let age = "SELECT floor(extract(epoch FROM clock_timestamp() -
        greatest(pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_bgwriter))) * 1000)::int8";
    let free = ms(postgres.query(age).unwrap().parse().unwrap());
    assert!(free >= TTL, "free after {free:?}");
    assert!(next.token() > held.token());
    assert!(take(&other, "short", TTL).await.token() > short.token());
    assert_eq!(next.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_nobody_gets_a_lock_before_its_last_holders_time_is_over() {
    assert_held_back(server(), |postgres| {
        postgres.stop().unwrap();
        postgres.start_again().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_tokens_rise_and_nobody_gets_a_lock_too_early() {
    assert_held_back(server(), |postgres| {
        postgres.crash().unwrap();
        postgres.start_again().unwrap();
    })
    .await;
}

/// The server goes on and says that it was up all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_crash_of_one_session_nobody_gets_a_lock_too_early() {
    assert_held_back(server(), |postgres| {
        let mut other = Session::start(postgres);
        let started = "SELECT pg_postmaster_start_time()";
        let before = postgres.query(started).unwrap();
        let pid = other.ask("SELECT pg_backend_pid();");
        postgres.kill_backend(pid.trim().parse().unwrap()).unwrap();
        std::thread::sleep(ms(200));
        let begun = clock::now();
        while postgres.query("SELECT 1").is_err() {
            assert!(since(begun) < SLACK * 2, "the server doesn't come back");
        }
        assert_eq!(postgres.query(started).unwrap(), before);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_counts_from_the_send_of_what_was_answered() {
    let postgres = server();
    let proxy = Proxy::start(postgres.address()).unwrap();
    let client = connect(&url_at(proxy.address())).await;
    let direct = connect(&postgres.url()).await;
    let (ttl, delay) = (Duration::from_secs(15), ms(1200));
    // Sessions are begun before answers take long. One that holds isn't lent to the wait.
    let kept = take(&client, "z", ttl).await;
    let theirs = take(&direct, "y", ttl).await;
    let waiting = lock(&client, "y", ttl);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    queued(&direct, "y", 1).await;
    proxy.delay(Direction::ToClient, delay);
    let tried = take(&client, "x", ttl).await;
    assert!(tried.remaining() < ttl - delay, "{tried:?}");
    theirs.release().await.unwrap();
    let waited = waiter.await.unwrap().unwrap();
    assert!(waited.remaining() < ttl - delay, "{waited:?}");
    // From the first renewal on, too.
    let begun = clock::now();
    while since(begun) < ttl / 2 {
        assert!(tried.remaining() < ttl - delay && waited.remaining() < ttl - delay);
        assert!(tried.is_held() && waited.is_held());
        tokio::time::sleep(ms(20)).await;
    }
    proxy.delay(Direction::ToClient, Duration::ZERO);
    for guard in [kept, tried, waited] {
        guard.release().await.unwrap();
    }
}

/// The client says nothing any more, and the server hears nothing of its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_holders_lock_is_free_within_its_ttl_and_a_second_and_the_holder_knows_first() {
    let postgres = server();
    let proxy = Proxy::start(postgres.address()).unwrap();
    let client = connect(&url_at(proxy.address())).await;
    let direct = connect(&postgres.url()).await;
    let holder = take(&client, "x", TTL).await;
    let second = take(&client, "y", TTL).await;
    assert_eq!(holding(&postgres, true).len(), 1, "they share a session");
    // One who waits is no reason for the other to stay.
    let theirs = take(&direct, "z", LONG).await;
    let waiting = lock(&client, "z", TTL);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    queued(&direct, "z", 1).await;
    for direction in Direction::BOTH {
        proxy.freeze(direction);
    }
    let silent = clock::now();
    let next = lock(&direct, "x", TTL).acquire_within(TTL + SLACK).await;
    let next = next.unwrap().expect("free");
    let free = since(silent);
    assert!(!holder.is_held(), "two holders");
    assert!(free < TTL + LATE, "free after {free:?}");
    assert!(!second.is_held());
    take(&direct, "y", TTL).await.release().await.unwrap();
    let reason = tokio::time::timeout(SLACK, holder.lost()).await.unwrap();
    assert!(
        matches!(reason, LossReason::Unreachable | LossReason::SessionLost),
        "{reason:?}"
    );
    waiter.abort();
    next.release().await.unwrap();
    theirs.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_granted_in_its_silence_keeps_the_lock_for_one_ttl_and_never_believes() {
    let postgres = server();
    let proxy = Proxy::start(postgres.address()).unwrap();
    let client = connect(&url_at(proxy.address())).await;
    let direct = connect(&postgres.url()).await;
    let holder = take(&direct, "x", LONG).await;
    let waiting = lock(&client, "x", TTL);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    queued(&direct, "x", 1).await;
    for direction in Direction::BOTH {
        proxy.freeze(direction);
    }
    holder.release().await.unwrap();
    let granted = clock::now();
    let next = lock(&direct, "x", LONG).acquire_within(TTL + SLACK).await;
    let next = next.unwrap().expect("free");
    assert!(since(granted) < TTL + LATE, "{:?}", since(granted));
    for direction in Direction::BOTH {
        proxy.thaw(direction);
    }
    // Now it reads that it was granted.
    tokio::time::sleep(ms(1500)).await;
    assert!(!waiter.is_finished(), "two holders");
    let token = next.token();
    next.release().await.unwrap();
    let late = tokio::time::timeout(SLACK * 2, waiter).await.unwrap();
    let late = late.unwrap().unwrap();
    assert!(late.token() > token);
    late.release().await.unwrap();
}

/// The grant is there, and what counts it can't be done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_falls_silent_while_its_grant_is_counted_keeps_nobody_out() {
    let postgres = server();
    let proxy = Proxy::start(postgres.address()).unwrap();
    let client = connect(&url_at(proxy.address())).await;
    let direct = connect(&postgres.url()).await;
    take(&client, "x", TTL).await.release().await.unwrap();
    let mut other = Session::start(&postgres);
    other.ask("BEGIN; SELECT 1 FROM leasehold.locks WHERE name = 'x' FOR UPDATE;");
    let blocked = lock(&client, "x", TTL);
    let blocked = tokio::spawn(async move { blocked.try_acquire().await });
    until(SLACK, async || holding(&postgres, true).len() == 1).await;
    for direction in Direction::BOTH {
        proxy.freeze(direction);
    }
    let silent = clock::now();
    until(TTL + LATE + SLACK, async || {
        holding(&postgres, true).is_empty()
    })
    .await;
    // A statement ends after a second, and the session a TTL later.
    assert!(since(silent) < TTL + LATE * 2, "{:?}", since(silent));
    other.ask("ROLLBACK; SELECT 1;");
    take(&direct, "x", TTL).await.release().await.unwrap();
    blocked.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_told_at_once_and_costs_no_more_than_that() {
    let postgres = server();
    let proxy = Proxy::start(postgres.address()).unwrap();
    let client = connect(&url_at(proxy.address())).await;
    let holder = take(&client, "x", LONG).await;
    tokio::time::sleep(ms(300)).await;
    proxy.cut();
    let reason = tokio::time::timeout(SLACK, holder.lost()).await.unwrap();
    assert_eq!(reason, LossReason::SessionLost);
    let next = lock(&client, "x", LONG).acquire_within(SLACK).await;
    let next = next.unwrap().expect("the server notices, too");
    assert!(next.token() > holder.token());
    next.release().await.unwrap();
    assert_eq!(holder.release().await.unwrap(), Release::Expired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_makes_holders_uncertain_and_then_lost() {
    let postgres = server();
    let client = connect(&postgres.url()).await;
    let holder = take(&client, "x", TTL).await;
    postgres.freeze().unwrap();
    let frozen = clock::now();
    until(TTL, async || holder.state() == HoldState::Uncertain).await;
    let reason = tokio::time::timeout(TTL + SLACK, holder.lost()).await;
    assert_eq!(reason.unwrap(), LossReason::Unreachable);
    assert!(since(frozen) < TTL, "told after {:?}", since(frozen));
    let refused = lock(&client, "x", TTL).try_acquire().await;
    assert!(refused.is_err() || refused.is_ok_and(|got| got.is_none()));
    postgres.thaw().unwrap();
    let next = lock(&client, "x", TTL).acquire_within(TTL + SLACK).await;
    let next = next.unwrap().expect("free");
    assert!(next.token() > holder.token());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_hold_ends_alone_where_others_are_on_its_session() {
    let postgres = server();
    let client = connect(&postgres.url()).await;
    let operator = connect(&postgres.url()).await;
    let (broken, kept) = (take(&client, "a", TTL).await, take(&client, "b", TTL).await);
    operator.break_hold("a", None).await.unwrap();
    let reason = tokio::time::timeout(TTL, broken.lost()).await.unwrap();
    assert_eq!(reason, LossReason::Broken);
    assert_eq!(broken.release().await.unwrap(), Release::Broken);
    tokio::time::sleep(TTL).await;
    assert!(kept.is_held());
    assert_eq!(kept.release().await.unwrap(), Release::Freed);
}

/// Told too late, it is an error that says what else its session has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_that_its_holder_does_not_hear_of_says_what_would_end_with_its_session() {
    let postgres = server();
    let proxy = Proxy::start(postgres.address()).unwrap();
    let client = connect(&url_at(proxy.address())).await;
    let operator = connect(&postgres.url()).await;
    let ttl = Duration::from_secs(30);
    let _held = (take(&client, "a", ttl).await, take(&client, "b", ttl).await);
    for direction in Direction::BOTH {
        proxy.freeze(direction);
    }
    let error = operator.break_hold("a", None).await.unwrap_err();
    assert!(error.to_string().contains("a, b"), "{error}");
    assert!(
        error.to_string().contains("pg_terminate_backend"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_a_role_break_nothing() {
    let postgres = server();
    let settings = [
        // As long as a session may need on a busy machine to undo them, and less than what waits below.
        "lock_timeout = '500ms'",
        "statement_timeout = '500ms'",
        "idle_session_timeout = '500ms'",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "synchronous_commit = off",
        "search_path = 'nowhere'",
    ];
    // They are for the sessions after this one.
    let set = settings.map(|setting| format!("ALTER ROLE postgres SET {setting};"));
    postgres.query(&set.concat()).unwrap();
    let client = connect(&postgres.url()).await;
    let holder = take(&client, "x", TTL).await;
    let waiting = lock(&client, "x", TTL);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    let other = connect(&postgres.url()).await;
    let others = lock(&other, "x", TTL);
    let third = tokio::spawn(async move { others.acquire().await });
    tokio::time::sleep(ms(1500)).await;
    let token = holder.token();
    holder.release().await.unwrap();
    let mut tokens = vec![token];
    let (mut waiter, mut third) = (Some(waiter), Some(third));
    while waiter.is_some() || third.is_some() {
        let guard = tokio::select! {
            guard = async { waiter.as_mut().unwrap().await }, if waiter.is_some() => { waiter = None; guard }
            guard = async { third.as_mut().unwrap().await }, if third.is_some() => { third = None; guard }
        };
        let guard = guard.unwrap().unwrap();
        tokens.push(guard.token());
        guard.release().await.unwrap();
    }
    assert!(tokens.is_sorted() && tokens.len() == 3, "{tokens:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_table_of_locks_is_never_reached() {
    let settings = ["max_connections=20", "max_locks_per_transaction=10"];
    let postgres = Postgres::start_with(&settings, None).unwrap();
    let client = connect(&postgres.url()).await;
    let held = hold_many(&client, 50, LONG).await;
    let error = lock(&client, "more", LONG).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().contains("max_locks_per_transaction"),
        "{error}"
    );
    for guard in held {
        assert_eq!(guard.release().await.unwrap(), Release::Freed);
    }
    take(&client, "more", LONG).await.release().await.unwrap();
}

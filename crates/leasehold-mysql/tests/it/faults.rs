//! Sessions that are ended, servers that restart, crash and stand still, connections that are cut; never two holders.

use std::time::Duration;

use crate::common::*;
use leasehold::store::Broken;
use leasehold::{HoldState, LossReason, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{Direction, Proxy};

const TTL: Duration = Duration::from_secs(4);
/// The TTL of a hold that a server forgets: it takes a while to be there again.
const HELD: Duration = Duration::from_secs(8);
/// How much later than its TTL a silent session's lock may be free.
const LATE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_session_is_told_soon_and_what_comes_after_has_a_new_one() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let held = take(&client, "x", LONG).await;
        let [id] = holding(&mysql)[..] else {
            panic!("one session holds");
        };
        mysql.query(&format!("KILL {id}")).unwrap();
        // Long before a renewal is due.
        let reason = tokio::time::timeout(SLACK, held.lost()).await.unwrap();
        assert_eq!(reason, LossReason::SessionLost);
        let again = take(&client, "x", LONG).await;
        assert!(again.token() > held.token());
        assert_eq!(held.release().await.unwrap(), Release::Another);
        assert_eq!(again.release().await.unwrap(), Release::Freed);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_over_a_session_that_was_killed_is_answered_over_a_new_one() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        take(&client, "x", LONG).await.release().await.unwrap();
        for round in 0..50 {
            let seen = client.inspect("x").await;
            assert!(seen.is_ok(), "in round {round}: {seen:?}");
            let all = "SELECT ID FROM information_schema.PROCESSLIST \
                WHERE USER = 'root' AND COMMAND <> 'Daemon' AND ID <> CONNECTION_ID()";
            for id in mysql.query(all).unwrap().lines() {
                // It may be gone already.
                let _ = mysql.query(&format!("KILL {id}"));
            }
        }
    })
    .await;
}

/// A statement that is ended leaves the lock where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_wait_waits_anew() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let other = connect(&mysql.url()).await;
        for kill in ["KILL QUERY", "KILL"] {
            let theirs = take(&other, "x", LONG).await;
            let waits = lock(&client, "x", LONG);
            let waiter = tokio::spawn(async move { waits.acquire().await });
            queued(&other, "x", 1).await;
            let of = "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'";
            let id = mysql.query(of).unwrap();
            mysql.query(&format!("{kill} {id}")).unwrap();
            until(SLACK, async || {
                let now = mysql.query(of).unwrap();
                !now.is_empty() && (now != id || kill == "KILL QUERY")
            })
            .await;
            let token = theirs.token();
            theirs.release().await.unwrap();
            let guard = tokio::time::timeout(SLACK, waiter).await.unwrap();
            let guard = guard.unwrap().unwrap();
            assert!(guard.token() > token);
            assert_eq!(guard.release().await.unwrap(), Release::Freed);
        }
    })
    .await;
}

/// Its locks are forgotten, and a holder who was cut off may still believe: nobody gets one before its TTL is over.
async fn assert_held_back(mut mysql: Mysql, end: impl Fn(&mut Mysql)) {
    let client = connect(&mysql.url()).await;
    let held = take(&client, "x", HELD).await;
    let short = take(&client, "short", Duration::from_secs(1)).await;
    end(&mut mysql);
    tokio::time::timeout(SLACK, held.lost()).await.unwrap();
    tokio::time::timeout(SLACK, short.lost()).await.unwrap();
    let other = connect(&mysql.url()).await;
    let next = lock(&other, "x", HELD);
    let next = next.acquire_within(HELD + SLACK).await.unwrap();
    let next = next.expect("free after its time");
    let up = mysql.query("SHOW GLOBAL STATUS LIKE 'Uptime'").unwrap();
    let up: u64 = up.rsplit('\t').next().unwrap().parse().unwrap();
    assert!(up >= HELD.as_secs(), "free after {up} s");
    assert!(next.token() > held.token());
    assert!(take(&other, "short", HELD).await.token() > short.token());
    assert_eq!(next.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_nobody_gets_a_lock_before_its_last_holders_time_is_over() {
    on_each(async |mysql| {
        assert_held_back(mysql, |mysql| {
            mysql.stop().unwrap();
            mysql.start_again().unwrap();
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_tokens_rise_and_nobody_gets_a_lock_too_early() {
    on_each(async |mysql| {
        assert_held_back(mysql, |mysql| {
            mysql.kill().unwrap();
            mysql.start_again().unwrap();
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_counts_from_the_send_of_what_was_answered() {
    on_each(async |mysql| {
        let proxy = Proxy::start(mysql.address()).unwrap();
        let client = connect(&url_at(&mysql, proxy.address())).await;
        let direct = connect(&mysql.url()).await;
        let (ttl, delay) = (Duration::from_secs(15), ms(400));
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
        for guard in [kept, tried, waited] {
            guard.release().await.unwrap();
        }
    })
    .await;
}

/// The client says nothing any more, and the server hears nothing of its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_holders_lock_is_free_within_its_ttl_and_two_seconds_and_the_holder_knows_first() {
    on_each(async |mysql| {
        let proxy = Proxy::start(mysql.address()).unwrap();
        let client = connect(&url_at(&mysql, proxy.address())).await;
        let direct = connect(&mysql.url()).await;
        let holder = take(&client, "x", TTL).await;
        let second = take(&client, "y", TTL).await;
        assert_eq!(holding(&mysql).len(), 1, "they share a session");
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
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_granted_in_its_silence_keeps_the_lock_for_one_ttl_and_never_believes() {
    on_each(async |mysql| {
        let proxy = Proxy::start(mysql.address()).unwrap();
        let client = connect(&url_at(&mysql, proxy.address())).await;
        let direct = connect(&mysql.url()).await;
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
    })
    .await;
}

/// Its process goes on, and so does the thread that keeps sessions alive; but nobody takes the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_runtime_stands_still_keeps_the_lock_for_one_ttl() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let direct = connect(&mysql.url()).await;
        let holder = take(&direct, "x", LONG).await;
        let waits = lock(&client, "x", TTL);
        let waiter = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut acquiring = Box::pin(waits.acquire());
                let waited = tokio::time::timeout(ms(1500), &mut acquiring).await;
                assert!(waited.is_err(), "two holders");
                std::thread::sleep(TTL * 3);
                acquiring.await.unwrap().token()
            })
        });
        queued(&direct, "x", 1).await;
        tokio::time::sleep(ms(2000)).await;
        holder.release().await.unwrap();
        let granted = clock::now();
        let next = lock(&direct, "x", LONG).acquire_within(TTL * 2).await;
        let next = next.unwrap().expect("free");
        assert!(since(granted) < TTL + LATE, "{:?}", since(granted));
        let token = next.token();
        next.release().await.unwrap();
        assert!(waiter.join().unwrap() > token);
    })
    .await;
}

/// The grant is there, and what counts it can't be done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_falls_silent_while_its_grant_is_counted_keeps_nobody_out() {
    on_each(async |mysql| {
        let proxy = Proxy::start(mysql.address()).unwrap();
        let client = connect(&url_at(&mysql, proxy.address())).await;
        let direct = connect(&mysql.url()).await;
        take(&client, "x", TTL).await.release().await.unwrap();
        let mut other = Session::start(&mysql);
        other.ask("BEGIN; SELECT 1 FROM leasehold.locks WHERE name = 'x' FOR UPDATE;");
        let blocked = lock(&client, "x", TTL);
        let blocked = tokio::spawn(async move { blocked.try_acquire().await });
        until(SLACK, async || holding(&mysql).len() == 1).await;
        for direction in Direction::BOTH {
            proxy.freeze(direction);
        }
        let silent = clock::now();
        until(TTL + LATE + SLACK, async || holding(&mysql).is_empty()).await;
        // A statement ends after a second, and the session a TTL later.
        assert!(since(silent) < TTL + LATE * 2, "{:?}", since(silent));
        other.ask("ROLLBACK; SELECT 1;");
        take(&direct, "x", TTL).await.release().await.unwrap();
        blocked.abort();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_told_soon_and_costs_no_more_than_that() {
    on_each(async |mysql| {
        let proxy = Proxy::start(mysql.address()).unwrap();
        let client = connect(&url_at(&mysql, proxy.address())).await;
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
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_makes_holders_uncertain_and_then_lost() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let holder = take(&client, "x", TTL).await;
        mysql.freeze().unwrap();
        let frozen = clock::now();
        until(TTL, async || holder.state() == HoldState::Uncertain).await;
        let reason = tokio::time::timeout(TTL + SLACK, holder.lost()).await;
        assert_eq!(reason.unwrap(), LossReason::Unreachable);
        assert!(since(frozen) < TTL, "told after {:?}", since(frozen));
        let refused = lock(&client, "x", TTL).try_acquire().await;
        assert!(refused.is_err() || refused.is_ok_and(|got| got.is_none()));
        mysql.thaw().unwrap();
        let next = lock(&client, "x", TTL).acquire_within(TTL + SLACK).await;
        let next = next.unwrap().expect("free");
        assert!(next.token() > holder.token());
        next.release().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_hold_ends_alone_where_others_are_on_its_session() {
    on_each(async |mysql| {
        let client = connect(&mysql.url()).await;
        let operator = connect(&mysql.url()).await;
        let (broken, kept) = (take(&client, "a", TTL).await, take(&client, "b", TTL).await);
        operator.break_hold("a", None).await.unwrap();
        let reason = tokio::time::timeout(TTL, broken.lost()).await.unwrap();
        assert_eq!(reason, LossReason::Broken);
        assert_eq!(broken.release().await.unwrap(), Release::Broken);
        tokio::time::sleep(TTL).await;
        assert!(kept.is_held());
        assert_eq!(kept.release().await.unwrap(), Release::Freed);
    })
    .await;
}

/// Its session is ended by the server at the operator's word, where that ends nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_that_its_holder_does_not_hear_of_ends_its_session_unless_that_has_other_locks() {
    on_each(async |mysql| {
        let proxy = Proxy::start(mysql.address()).unwrap();
        let client = connect(&url_at(&mysql, proxy.address())).await;
        let operator = connect(&mysql.url()).await;
        let ttl = Duration::from_secs(30);
        let _held = (take(&client, "a", ttl).await, take(&client, "b", ttl).await);
        let _alone = take(&client, "c", ttl * 2).await;
        for direction in Direction::BOTH {
            proxy.freeze(direction);
        }
        let error = operator.break_hold("a", None).await.unwrap_err();
        assert!(error.to_string().contains("a, b"), "{error}");
        assert!(error.to_string().contains("KILL"), "{error}");
        let broken = operator.break_hold("c", None).await.unwrap();
        assert!(matches!(broken, Broken::Ended(_)), "{broken:?}");
        take(&operator, "c", LONG).await.release().await.unwrap();
    })
    .await;
}

/// There a session's time is watched by another thread than its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_pool_of_threads_a_silent_holders_lock_is_free_in_time_too() {
    let settings = ["thread-handling=pool-of-threads"];
    let mysql = Mysql::start_with(MysqlEdition::MariaDb, &settings, None).unwrap();
    let proxy = Proxy::start(mysql.address()).unwrap();
    let client = connect(&url_at(&mysql, proxy.address())).await;
    let direct = connect(&mysql.url()).await;
    let holder = take(&client, "x", TTL).await;
    for direction in Direction::BOTH {
        proxy.freeze(direction);
    }
    let silent = clock::now();
    let next = lock(&direct, "x", TTL).acquire_within(TTL + SLACK).await;
    let next = next.unwrap().expect("free");
    assert!(since(silent) < TTL + LATE, "free after {:?}", since(silent));
    assert!(!holder.is_held(), "two holders");
    next.release().await.unwrap();
}

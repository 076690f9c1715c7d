//! What stands in the server: other people's keys, our own, and what is left of them.
#![allow(clippy::print_stdout, reason = "the measures")]

use std::time::Duration;

use crate::common::{
    LONG, Raw, SLACK, assert_busy, connect, lock, ms, queued, server, since, take, until,
};
use leasehold::store::Broken;
use leasehold::{ErrorKind, Release};
use leasehold_core::clock;

const WEEK_MS: i64 = 7 * 24 * 3600 * 1000;

#[tokio::test(flavor = "multi_thread")]
async fn key_that_holds_something_else_is_an_error_and_left_alone() {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    raw.ask::<()>(&["HSET", "hash", "field", "1"]);
    raw.ask::<()>(&["RPUSH", "list", "item"]);
    raw.ask::<()>(&["SADD", "set", "item"]);
    for kind in ["hash", "list", "set"] {
        let lock = lock(&client, kind, LONG);
        for error in [
            lock.try_acquire().await.map(drop).unwrap_err(),
            lock.acquire_within(LONG).await.map(drop).unwrap_err(),
            client.inspect(kind).await.map(drop).unwrap_err(),
            client.break_hold(kind, None).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let text = error.to_string();
            assert!(
                text.contains(&format!("holds a {kind}")) && text.contains("prefix"),
                "{text}"
            );
        }
        assert_eq!(raw.ask::<String>(&["TYPE", kind]), kind);
    }
    assert_eq!(raw.keys(), ["hash", "list", "set"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_value_beside_a_lock_is_an_error_and_leaves_the_lock_free() {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    raw.ask::<()>(&["HSET", "leasehold:f:{counter}", "field", "1"]);
    raw.ask::<()>(&["SET", "leasehold:q:{queue}", "text"]);
    for name in ["counter", "queue"] {
        let error = lock(&client, name, LONG).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("beside the lock's"), "{error}");
        assert_eq!(raw.ask::<i64>(&["EXISTS", name]), 0, "{name}");
    }
    let _other = take(&client, "other", LONG).await;
    assert_eq!(client.list("").await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn string_of_any_shape_excludes_as_long_as_it_is_there() {
    // Owners of other makes are any bytes; a string can't be told from a lock. One without an expiry excludes until
    // somebody breaks it.
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    raw.ask::<()>(&["SET", "a", "not utf-8: \u{0}"]);
    assert_busy(&client, "a").await;
    let seen = client.inspect("a").await.unwrap().holder.unwrap();
    assert_eq!(
        (seen.token, seen.expires_in, seen.identity),
        (None, None, None)
    );
    let begun = clock::now();
    let waited = lock(&client, "a", LONG)
        .acquire_within(ms(400))
        .await
        .unwrap();
    assert!(waited.is_none() && since(begun) >= ms(400));
    assert!(matches!(
        client.break_hold("a", None).await.unwrap(),
        Broken::Ended(_)
    ));
    raw.ask::<()>(&["SET", "a", "theirs", "PX", "400"]);
    let begun = clock::now();
    let guard = lock(&client, "a", LONG).acquire().await.unwrap();
    assert!(since(begun) > ms(200) && since(begun) < ms(400) + SLACK);
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_our_own_keys_are_refused() {
    let server = server();
    let client = connect(&server.url()).await;
    let prefixed = connect(&format!("{}?prefix=leasehold:", server.url())).await;
    for (client, name) in [(&client, "leasehold:f:{a}"), (&prefixed, "x")] {
        for error in [
            lock(client, name, LONG)
                .try_acquire()
                .await
                .map(drop)
                .unwrap_err(),
            client.break_hold(name, None).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
    }
    // What only looks like one is a name.
    take(&client, "leasehold", LONG)
        .await
        .release()
        .await
        .unwrap();
    take(&client, "leaseholder:a", LONG)
        .await
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn short_and_odd_ttls_are_kept_to_the_millisecond() {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    for (name, ttl, least) in [
        ("a", Duration::from_millis(100), 100),
        ("b", Duration::from_micros(1_234_567), 1235),
        ("c", Duration::from_nanos(60_000_000_001), 60_001),
        ("d", Duration::from_secs(604_800), 604_800_000),
    ] {
        let guard = take(&client, name, ttl).await;
        let left: i64 = raw.ask(&["PTTL", name]);
        // Rounded up: the holder's count must not outlast the server's.
        assert!(left <= least && left > least - 2000, "{ttl:?}: {left}");
        assert!(guard.remaining() < ttl);
        // One of a tenth of a second may be over by now; it isn't somebody else's.
        let outcome = guard.release().await.unwrap();
        assert!(outcome == Release::Freed || ttl < ms(1000) && outcome == Release::Expired);
    }
    for ttl in [Duration::from_micros(99_999), Duration::from_secs(604_801)] {
        let error = lock(&client, "e", ttl).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_counter_is_left_and_that_for_a_week() {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    // One that waits and is served, one that waits in vain, one that is dropped while it waits.
    let guard = take(&client, "a", LONG).await;
    let next = lock(&client, "a", LONG);
    let next = tokio::spawn(async move { next.acquire().await.unwrap().release().await.unwrap() });
    queued(&client, "a", 1).await;
    let vain = lock(&client, "a", LONG)
        .acquire_within(ms(100))
        .await
        .unwrap();
    assert!(vain.is_none());
    let dropped = tokio::time::timeout(ms(100), lock(&client, "a", LONG).acquire()).await;
    assert!(dropped.is_err());
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    assert_eq!(next.await.unwrap(), Release::Freed);
    let other = take(&client, "b", LONG).await;
    client.break_hold("b", None).await.unwrap();
    other.lost().await;
    drop(other);
    client.close().await;
    until(SLACK, async || {
        raw.keys() == ["leasehold:f:{a}", "leasehold:f:{b}"]
    })
    .await;
    for key in raw.keys() {
        let left: i64 = raw.ask(&["PTTL", &key]);
        assert!(left <= WEEK_MS && left > WEEK_MS - 60_000, "{key}: {left}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counter_ahead_of_the_clock_outlives_the_clock_set_back() {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    // As a server whose clock was a day ahead left it.
    let time: Vec<u64> = raw.ask(&["TIME"]);
    let ahead = (time[0] + 86_400) * 1_000_000;
    raw.ask::<()>(&["SET", "leasehold:f:{a}", &ahead.to_string()]);
    let guard = take(&client, "a", LONG).await;
    assert_eq!(guard.token().get(), ahead + 1);
    let left: i64 = raw.ask(&["PTTL", "leasehold:f:{a}"]);
    assert!(left > WEEK_MS + 86_300_000, "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn braces_and_pattern_characters_in_names_are_plain_characters() {
    let server = server();
    let client = connect(&server.url()).await;
    let names = [
        "{a}",
        "a{b}c",
        "a}b",
        "{}x",
        "{a}:b",
        "a",
        "a*",
        "a?b",
        "[a]",
        "a\\b",
        "a b",
        "\u{e9}\u{fc}",
    ];
    let mut guards = Vec::new();
    for name in names {
        guards.push(take(&client, name, LONG).await);
        assert_busy(&client, name).await;
    }
    let listed = async |prefix: &str| -> Vec<String> {
        let found = client.list(prefix).await.unwrap();
        found.iter().map(|found| found.name.to_string()).collect()
    };
    let mut all = names.map(str::to_owned);
    all.sort();
    assert_eq!(listed("").await, all);
    assert_eq!(listed("{a}").await, ["{a}", "{a}:b"]);
    assert_eq!(listed("a*").await, ["a*"]);
    assert_eq!(listed("[a").await, ["[a]"]);
    assert_eq!(listed("a\\").await, ["a\\b"]);
    assert_eq!(listed("?").await, [""; 0]);
    // Their counters' keys don't begin as the names do.
    assert_eq!(listed("a}").await, ["a}b"]);
    assert_eq!(listed("{}").await, ["{}x"]);
    let prefixed = connect(&format!("{}?prefix=a*:", server.url())).await;
    let _guard = take(&prefixed, "x", LONG).await;
    let found = prefixed.list("").await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name.as_str(), "x");
    assert!(listed("a*").await.contains(&"a*:x".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_became_something_else_hides_no_lock_from_the_list() {
    let server = server();
    let client = connect(&server.url()).await;
    take(&client, "a", LONG).await.release().await.unwrap();
    let _guard = take(&client, "b", LONG).await;
    Raw::to(&server).ask::<()>(&["RPUSH", "a", "item"]);
    let found = client.list("").await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name.as_str(), "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn counter_at_its_end_grants_nothing_and_stays() {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    // The last one there is, and the last that a number of a script can count to.
    for end in [u64::MAX, 1 << 53] {
        let counter = end.to_string();
        raw.ask::<()>(&["SET", "leasehold:f:{a}", &counter]);
        let error = lock(&client, "a", LONG).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("can't rise"), "{error}");
        assert!(!raw.ask::<bool>(&["EXISTS", "a"]));
        assert_eq!(raw.ask::<String>(&["GET", "leasehold:f:{a}"]), counter);
    }
    raw.ask::<()>(&["SET", "leasehold:f:{a}", &((1_u64 << 53) - 1).to_string()]);
    let guard = take(&client, "a", LONG).await;
    assert_eq!(guard.token().get(), 1 << 53);
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_of_one_server_are_apart() {
    let server = server();
    let one = connect(&format!("{}/1", server.url())).await;
    let two = connect(&format!("{}/2", server.url())).await;
    let _guard = take(&one, "a", LONG).await;
    assert_busy(&one, "a").await;
    // Also for those who wait: channels know no databases.
    let held = take(&two, "a", LONG).await;
    let next = lock(&two, "a", LONG);
    let next = tokio::spawn(async move { next.acquire().await.unwrap() });
    queued(&two, "a", 1).await;
    assert!(one.inspect("a").await.unwrap().waiters.is_empty());
    drop(held);
    drop(next.await.unwrap());
    assert_busy(&one, "a").await;
    let mut raw = Raw::at(&format!("{}/2", server.url()));
    until(SLACK, async || raw.keys() == ["leasehold:f:{a}"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_thousand_waiters_are_served_in_order() {
    const WAITERS: usize = 3000;
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    let guard = take(&client, "a", LONG).await;
    let served = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..WAITERS {
        let lock = lock(&client, "a", LONG);
        let served = served.clone();
        waiters.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            served.lock().unwrap().push((number, guard.token()));
            guard.release().await.unwrap()
        });
        // Each has its place before the next comes.
        if number % 100 == 0 {
            let queue = ["ZCARD", "leasehold:q:{a}"];
            until(LONG, async || raw.ask::<usize>(&queue) == number + 1).await;
        }
    }
    until(LONG, async || {
        raw.ask::<usize>(&["ZCARD", "leasehold:q:{a}"]) == WAITERS
    })
    .await;
    // The order of arrival, as the server has it.
    let queue: Vec<String> = raw.ask(&["ZRANGE", "leasehold:q:{a}", "0", "-1"]);
    assert_eq!(queue.len(), WAITERS);
    let begun = clock::now();
    guard.release().await.unwrap();
    while let Some(outcome) = waiters.join_next().await {
        assert_eq!(outcome.unwrap(), Release::Freed);
    }
    let took = since(begun);
    println!(
        "{WAITERS} hand-overs in {took:?}: {:.0} a second",
        WAITERS as f64 / took.as_secs_f64()
    );
    let served = served.lock().unwrap();
    assert_eq!(served.len(), WAITERS);
    assert!(served.windows(2).all(|pair| pair[0].1 < pair[1].1));
    // Those that came a hundred apart never overtook each other.
    let marks: Vec<usize> = served
        .iter()
        .map(|(number, _)| *number)
        .filter(|number| number % 100 == 0)
        .collect();
    assert!(marks.is_sorted(), "{marks:?}");
    assert!(took < Duration::from_secs(40), "{took:?}");
}

//! A cluster: slots that move, masters that change, while the lock is held, waited for and renewed.
#![allow(clippy::print_stdout, reason = "the measures")]

use std::time::Duration;

use crate::common::cluster::{
    TTL, cluster, handed_over, held_and_waited_for, home, is_master, keys, raw, replicated,
    untouched,
};
use crate::common::{LONG, SLACK, connect, lock, ms, queued, since, take, until};
use leasehold::{ErrorKind, HoldState, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{RedisCluster, RedisEdition};

/// How long a cluster may take to make another master on a busy machine.
const FAILOVER_MAX: Duration = Duration::from_secs(60);

/// Has the replica of a master take over, as an operator does.
async fn fail_over(cluster: &RedisCluster, old: usize) {
    let over = || is_master(cluster, old + 3) && !is_master(cluster, old);
    let begun = clock::now();
    while !over() {
        assert!(since(begun) < FAILOVER_MAX, "no failover");
        // On a busy machine it may take the nodes too long, and they leave it.
        raw(cluster, old + 3).ask::<()>(&["CLUSTER", "FAILOVER"]);
        let ordered = clock::now();
        while !over() && since(ordered) < Duration::from_secs(8) {
            tokio::time::sleep(ms(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ordered_failover_keeps_the_hold_and_wakes_the_waiter() {
    for edition in [RedisEdition::Redis7, RedisEdition::Valkey8] {
        let cluster = RedisCluster::start(edition).unwrap();
        let client = connect(&cluster.url()).await;
        let (guard, next) = held_and_waited_for(&client, TTL).await;
        let old = home(&cluster, "a");
        fail_over(&cluster, old).await;
        untouched(&cluster, &guard).await;
        queued(&client, "a", 1).await;
        let next = handed_over(guard, next).await;
        assert_eq!(next.release().await.unwrap(), Release::Freed);
        client.close().await;
        until(SLACK, async || keys(&cluster) == ["leasehold:f:{a}"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_master_costs_a_replicated_hold_nothing() {
    let mut cluster = cluster();
    let client = connect(&cluster.url()).await;
    let (guard, next) = held_and_waited_for(&client, TTL * 2).await;
    replicated(&cluster, "a");
    let old = home(&cluster, "a");
    cluster.node(old).kill().unwrap();
    until(FAILOVER_MAX, async || is_master(&cluster, old + 3)).await;
    // The others hear of it a little later.
    until(FAILOVER_MAX, async || {
        leasehold::connect(&cluster.url()).await.is_ok()
    })
    .await;
    until(TTL, async || guard.state() == HoldState::Held).await;
    untouched(&cluster, &guard).await;
    queued(&client, "a", 1).await;
    drop(handed_over(guard, next).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_at_a_frozen_master_is_told_at_the_new_one() {
    let mut cluster = cluster();
    let client = connect(&cluster.url()).await;
    let (guard, next) = held_and_waited_for(&client, TTL * 3).await;
    replicated(&cluster, "a");
    let old = home(&cluster, "a");
    // Its connections stay open and say nothing.
    cluster.node(old).freeze().unwrap();
    until(FAILOVER_MAX, async || is_master(&cluster, old + 3)).await;
    until(TTL * 2, async || guard.state() == HoldState::Held).await;
    until(TTL * 2, async || {
        let seen = client.inspect("a").await;
        seen.is_ok_and(|seen| seen.waiters.len() == 1)
    })
    .await;
    tokio::time::sleep(ms(500)).await;
    drop(handed_over(guard, next).await);
    cluster.node(old).thaw().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_node_for_less_than_the_lease_costs_nothing() {
    let mut cluster = cluster();
    let client = connect(&cluster.url()).await;
    let (guard, next) = held_and_waited_for(&client, TTL).await;
    let old = home(&cluster, "a");
    for _ in 0..3 {
        cluster.node(old).freeze().unwrap();
        tokio::time::sleep(ms(1000)).await;
        cluster.node(old).thaw().unwrap();
        until(TTL, async || guard.state() == HoldState::Held).await;
        tokio::time::sleep(ms(1000)).await;
    }
    untouched(&cluster, &guard).await;
    drop(handed_over(guard, next).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriber_that_was_cut_off_is_told_again() {
    let cluster = cluster();
    let client = connect(&cluster.url()).await;
    let (guard, next) = held_and_waited_for(&client, LONG).await;
    let mut node = raw(&cluster, home(&cluster, "a"));
    for _ in 0..3 {
        let killed: u32 = node.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert!(killed >= 1);
        tokio::time::sleep(ms(300)).await;
    }
    drop(handed_over(guard, next).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_channels_in_slots_tells_on_a_plain_one() {
    // As Redis 6.2 is.
    let without = ["--rename-command", "SSUBSCRIBE", ""];
    let cluster = RedisCluster::start_with(RedisEdition::Redis7, &without, None).unwrap();
    let client = connect(&cluster.url()).await;
    let (guard, next) = held_and_waited_for(&client, LONG).await;
    let next = handed_over(guard, next).await;
    let channels: Vec<String> =
        raw(&cluster, home(&cluster, "a")).ask(&["PUBSUB", "CHANNELS", "leasehold:c:*"]);
    assert_eq!(channels.len(), 1, "{channels:?}");
    assert_eq!(next.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_braces_lock_and_are_listed_from_every_master() {
    let cluster = cluster();
    let client = connect(&cluster.url()).await;
    let mut names: Vec<String> = ["{a}", "a{b}c", "a}b", "{}x", "{a}:b", "a{b", "}{", "{}{x}"]
        .map(str::to_owned)
        .to_vec();
    names.extend((0..20).map(|number| format!("n{number:02}")));
    names.sort();
    let mut guards = Vec::new();
    for name in &names {
        let guard = take(&client, name, LONG).await;
        let next = lock(&client, name, LONG);
        let next = tokio::spawn(async move { next.acquire().await.unwrap() });
        queued(&client, name, 1).await;
        guards.push(handed_over(guard, next).await);
    }
    let listed = client.list("").await.unwrap();
    let listed: Vec<String> = listed.iter().map(|held| held.name.to_string()).collect();
    assert_eq!(listed, names);
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Release::Freed);
    }
    let left = keys(&cluster);
    assert_eq!(left.len(), names.len(), "{left:?}");
    assert!(
        left.iter().all(|key| key.starts_with("leasehold:f:{")),
        "{left:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_holds_over_many_slots_are_renewed_in_few_requests() {
    const HOLDS: usize = 10_000;
    let cluster = cluster();
    let client = connect(&cluster.url()).await;
    let ttl = Duration::from_secs(20);
    let mut guards = Vec::with_capacity(HOLDS);
    let begun = clock::now();
    for chunk in 0..HOLDS / 100 {
        let mut taking = tokio::task::JoinSet::new();
        for number in 0..100 {
            let lock = lock(&client, &format!("h{}", chunk * 100 + number), ttl);
            taking.spawn(async move { lock.try_acquire().await.unwrap().unwrap() });
        }
        guards.extend(taking.join_all().await);
    }
    println!("{HOLDS} taken in {:?}", since(begun));
    let calls = || -> u64 {
        let masters = (0..3).map(|at| raw(&cluster, at).calls("evalsha"));
        masters.sum()
    };
    let (before, begun) = (calls(), clock::now());
    let held = || guards.iter().filter(|guard| guard.is_held()).count();
    while since(begun) < ttl * 3 / 2 {
        assert_eq!(held(), HOLDS);
        tokio::time::sleep(ms(500)).await;
    }
    let each_third =
        (calls() - before) as f64 / (since(begun).as_secs_f64() / (ttl / 3).as_secs_f64());
    println!("{each_third:.0} requests renew them all");
    assert!(each_third < HOLDS as f64 * 1.2, "{each_third}");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_thousand_waiters_on_one_name_are_served_in_order() {
    const WAITERS: usize = 3000;
    let cluster = cluster();
    let client = connect(&cluster.url()).await;
    let mut node = raw(&cluster, home(&cluster, "a"));
    let guard = take(&client, "a", LONG).await;
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let lock = lock(&client, "a", LONG);
        waiters.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let token = guard.token();
            (token, guard.release().await.unwrap())
        });
    }
    until(LONG, async || {
        node.ask::<usize>(&["ZCARD", "leasehold:q:{a}"]) == WAITERS
    })
    .await;
    let begun = clock::now();
    guard.release().await.unwrap();
    let served = waiters.join_all().await;
    let took = since(begun);
    println!(
        "{WAITERS} hand-overs in {took:?}: {:.0} a second",
        WAITERS as f64 / took.as_secs_f64()
    );
    let tokens: std::collections::BTreeSet<_> = served.iter().map(|(token, _)| *token).collect();
    assert_eq!(tokens.len(), WAITERS);
    assert!(served.iter().all(|(_, outcome)| *outcome == Release::Freed));
    assert!(took < Duration::from_secs(40), "{took:?}");
    client.close().await;
    until(SLACK, async || keys(&cluster) == ["leasehold:f:{a}"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_that_the_replica_does_not_have_is_given_back_at_once() {
    let mut cluster = cluster();
    let url = format!("{}?min-replicas=1&replica-timeout=200ms", cluster.url());
    let client = connect(&url).await;
    take(&client, "a", TTL).await.release().await.unwrap();
    let home = home(&cluster, "a");
    cluster.node(home + 3).freeze().unwrap();
    let error = lock(&client, "a", LONG).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreplicated, "{error}");
    assert!(error.to_string().contains("0 of the 1 replicas"), "{error}");
    assert!(!raw(&cluster, home).ask::<bool>(&["EXISTS", "a"]));
    cluster.node(home + 3).thaw().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_counts_the_masters() {
    let cluster = cluster();
    let found = connect(&cluster.url()).await.check().await.unwrap();
    assert!(
        found
            .iter()
            .any(|finding| finding.what.contains("3 master(s)")),
        "{found:?}"
    );
}

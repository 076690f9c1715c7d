//! Redlock on five real servers: what is left when some of them go, freeze or forget.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    Agent, LONG, Raw, SLACK, assert_busy, connect, lock, ms, queued, since, take, until, url_of,
};
use leasehold::store::{Broken, Verdict};
use leasehold::{Client, ErrorKind, HoldState, LossReason, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{RedisEdition, RedisNodes, ServerClock};

const RECORD: &str = "leasehold:redlock";
const TOMBSTONE: &str = "leasehold:x:";
const COUNTER: &str = "leasehold:redlock:f:{a}";

fn five() -> RedisNodes {
    RedisNodes::start(RedisEdition::Redis7, 5).unwrap()
}

/// Nodes that have on disk what they answered.
fn durable(count: usize) -> RedisNodes {
    let args = ["--appendonly", "yes", "--appendfsync", "always"];
    RedisNodes::start_with(RedisEdition::Redis7, count, &args).unwrap()
}

fn raw(nodes: &RedisNodes, at: usize) -> Raw {
    Raw::at(&url_of(nodes.address(at)))
}

/// Waits until nothing but counter and record is left on these nodes.
async fn nothing_left(nodes: &RedisNodes, of: impl Iterator<Item = usize> + Clone) {
    let kept = |at: usize| {
        let mut keys = raw(nodes, at).keys();
        // On a busy machine a node may answer late; then a tombstone sees to it that the request takes nothing.
        keys.retain(|key| !key.starts_with(TOMBSTONE));
        keys
    };
    let begun = clock::now();
    while !of.clone().all(|at| kept(at) == [RECORD, COUNTER]) {
        let left: Vec<_> = of.clone().map(kept).collect();
        assert!(since(begun) < SLACK, "left: {left:?}");
        tokio::time::sleep(ms(3)).await;
    }
}

async fn restart(nodes: &mut RedisNodes, at: usize) {
    nodes.node(at).kill().unwrap();
    nodes.node(at).start_again().unwrap();
}

/// Waits until as many nodes count.
async fn counting(client: &Client, count: usize) {
    let wanted = format!("{count} of ");
    until(ms(20_000), async || {
        let findings = client.check().await.unwrap();
        findings[0].what.starts_with(&wanted)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_killed_it_goes_on_and_three_it_refuses_and_leaves_nothing() {
    let mut nodes = five();
    let client = connect(&nodes.url()).await;
    let first = take(&client, "a", LONG).await;
    for at in [1, 3] {
        nodes.node(at).kill().unwrap();
    }
    assert_eq!(first.release().await.unwrap(), Release::Freed);
    let guard = take(&client, "a", LONG).await;
    assert_busy(&client, "a").await;
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    // One that comes anew too.
    let other = connect(&nodes.url()).await;
    take(&other, "a", LONG).await.release().await.unwrap();

    nodes.node(4).kill().unwrap();
    for client in [client, other, connect(&nodes.url()).await] {
        let error = lock(&client, "a", LONG).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("2 of 5 nodes") && text.contains("it takes 3"),
            "{text}"
        );
        client.close().await;
    }
    nothing_left(&nodes, [0, 2].into_iter()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_minority_delays_nobody_for_long_and_a_frozen_majority_is_an_outage() {
    let mut nodes = five();
    let client = connect(&nodes.url()).await;
    take(&client, "a", LONG).await.release().await.unwrap();
    for at in [0, 2] {
        nodes.node(at).freeze().unwrap();
        let begun = clock::now();
        let guard = take(&client, "a", LONG).await;
        assert_busy(&client, "a").await;
        assert_eq!(guard.release().await.unwrap(), Release::Freed);
        assert!(since(begun) < ms(1500) + SLACK, "{:?}", since(begun));
    }
    let ttl = ms(2500);
    let guard = take(&client, "a", ttl).await;
    nodes.node(4).freeze().unwrap();
    let error = lock(&client, "b", LONG).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // A minority extends nothing: it ends at its deadline and not before.
    let left = guard.remaining();
    let begun = clock::now();
    assert!(guard.is_held() && left <= ttl);
    assert_eq!(guard.lost().await, LossReason::Unreachable);
    assert!(
        since(begun) < left + SLACK,
        "{:?} of {left:?}",
        since(begun)
    );
    drop(guard);
    for at in [0, 2, 4] {
        nodes.node(at).thaw().unwrap();
    }
    // What they had been sent lands now, and is cleaned up.
    until(ms(20_000), async || {
        (0..5).all(|at| {
            let keys = raw(&nodes, at).keys();
            // A request that was never answered leaves a tombstone, so that it takes nothing when it lands late.
            let stays = |key: &String| key.starts_with(RECORD) || key.starts_with(TOMBSTONE);
            keys.iter().all(stays)
        })
    })
    .await;
    take(&client, "a", LONG).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_left_one_try_unanswered_is_not_waited_for_by_the_next() {
    let mut nodes = five();
    let url = format!("{}?node-timeout=3s", nodes.url());
    let (client, other) = (connect(&url).await, connect(&nodes.url()).await);
    take(&client, "a", LONG).await.release().await.unwrap();
    let guard = take(&other, "a", LONG).await;
    nodes.node(1).freeze().unwrap();
    // Who finds it busy waits for all, once.
    let begun = clock::now();
    assert_busy(&client, "a").await;
    assert!(since(begun) >= ms(3000), "{:?}", since(begun));
    // No census has been through yet.
    let begun = clock::now();
    for _ in 0..5 {
        assert_busy(&client, "a").await;
    }
    assert!(since(begun) < ms(2500), "{:?}", since(begun));
    guard.release().await.unwrap();
    take(&client, "a", LONG).await.release().await.unwrap();
    assert!(since(begun) < ms(2500), "{:?}", since(begun));
    nodes.node(1).thaw().unwrap();
    counting(&client, 5).await;
    nothing_left(&nodes, [0, 2, 3, 4].into_iter()).await;
}

/// Its recovery is over, and entering it takes several rounds with all nodes.
#[tokio::test(flavor = "multi_thread")]
async fn census_waits_for_a_frozen_node_once() {
    let mut nodes = five();
    let client = connect(&nodes.url()).await;
    take(&client, "a", ms(500)).await.release().await.unwrap();
    client.close().await;
    drop(client);
    restart(&mut nodes, 4).await;
    nodes.node(2).freeze().unwrap();
    // The time that the census takes is counted off its uptime.
    tokio::time::sleep(ms(7000)).await;
    let begun = clock::now();
    let client = connect(&format!("{}?node-timeout=3s", nodes.url())).await;
    assert!(since(begun) >= ms(3000), "{:?}", since(begun));
    assert!(since(begun) < ms(5500), "{:?}", since(begun));
    let findings = client.check().await.unwrap();
    assert!(findings[0].what.starts_with("4 of 5"), "{findings:?}");
    nodes.node(2).thaw().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_outlive_the_restart_of_all_nodes_that_keep_what_they_answered() {
    let mut nodes = durable(3);
    let client = connect(&nodes.url()).await;
    let guard = take(&client, "a", ms(6000)).await;
    for at in 0..3 {
        restart(&mut nodes, at).await;
    }
    counting(&client, 3).await;
    tokio::time::sleep(ms(6500)).await;
    assert_eq!(guard.state(), HoldState::Held);
    let other = connect(&nodes.url()).await;
    assert_busy(&other, "a").await;
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    assert!(take(&other, "a", LONG).await.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_is_served_by_nodes_that_came_back_one_after_the_other() {
    let mut nodes = durable(5);
    let client = connect(&nodes.url()).await;
    nodes.node(4).kill().unwrap();
    let guard = take(&client, "a", LONG).await;
    let other = connect(&nodes.url()).await;
    let waiter = tokio::spawn(async move { lock(&other, "a", LONG).acquire().await });
    queued(&client, "a", 1).await;
    for at in 0..3 {
        nodes.node(at).kill().unwrap();
        // Long enough for the waiter's client to see that it is gone.
        tokio::time::sleep(ms(1500)).await;
        nodes.node(at).start_again().unwrap();
        counting(&client, 4).await;
    }
    guard.release().await.unwrap();
    let begun = clock::now();
    let granted = tokio::time::timeout(ms(15_000), waiter).await.unwrap();
    granted.unwrap().unwrap().release().await.unwrap();
    assert!(since(begun) < ms(8000), "after {:?}", since(begun));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_forgot_has_no_vote_until_the_longest_ttl_is_over() {
    let mut nodes = RedisNodes::start(RedisEdition::Redis7, 3).unwrap();
    let client = connect(&nodes.url()).await;
    let ttl = ms(6000);
    let guard = take(&client, "a", ttl).await;
    let begun = clock::now();
    restart(&mut nodes, 0).await;
    // The two others and the one that forgot would be two votes for somebody else once one of them is away.
    nodes.node(1).freeze().unwrap();
    let other = connect(&nodes.url()).await;
    let error = lock(&other, "a", ttl).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    nodes.node(1).thaw().unwrap();
    counting(&other, 2).await;
    let findings = other.check().await.unwrap();
    assert_eq!(findings[0].verdict, Verdict::Warning);
    assert!(
        findings
            .iter()
            .any(|one| one.what.contains("is recovering")),
        "{findings:?}"
    );
    let seen = other.inspect("a").await.unwrap();
    assert!(seen.remarks[0].contains("is recovering"), "{seen:?}");
    // A longer TTL would make it longer.
    let busy = lock(&other, "a", ttl).try_acquire().await.unwrap();
    assert!(busy.is_none(), "{busy:?}");
    counting(&other, 3).await;
    assert!(since(begun) > ttl, "{:?}", since(begun));
    // It was held on the two all the time.
    assert_eq!(guard.state(), HoldState::Held);
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn majority_that_forgot_refuses_until_an_operator_says_that_it_is_safe() {
    let mut nodes = RedisNodes::start(RedisEdition::Redis7, 3).unwrap();
    let client = connect(&nodes.url()).await;
    let token = take(&client, "a", LONG).await.token();
    for at in [0, 1] {
        restart(&mut nodes, at).await;
    }
    let other = connect(&nodes.url()).await;
    let error = lock(&other, "b", LONG).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("redlock rejoin"), "{error}");
    let findings = other.check().await.unwrap();
    assert_eq!(findings[0].verdict, Verdict::Bad, "{findings:?}");

    let url = leasehold::StoreUrl::parse(&nodes.url()).unwrap();
    let findings = leasehold_redis::rejoin(url).await.unwrap();
    assert_eq!(findings[0].verdict, Verdict::Good, "{findings:?}");
    // The counter is gone with the majority; the floor isn't.
    let guard = take(&other, "a", LONG).await;
    assert!(guard.token() > token, "{} after {token}", guard.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_set_of_independent_nodes_is_refused() {
    let nodes = five();
    let [a, b, c] = [0, 1, 2].map(|at| nodes.address(at));
    let client = connect(&nodes.url()).await;
    take(&client, "a", LONG).await.release().await.unwrap();
    let same = format!("redlock://{a},{b},localhost:{}", a.port());
    let fewer = format!("redlock://{a},{b},{c}");
    raw(&nodes, 3).ask::<()>(&["REPLICAOF", "127.0.0.1", &a.port().to_string()]);
    for (url, says) in [
        (same, "are one server"),
        (fewer, "belongs to the nodes"),
        (nodes.url(), "is a replica"),
    ] {
        let error = leasehold::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_serves_redis_and_redlock_side_by_side() {
    let nodes = RedisNodes::start(RedisEdition::Redis7, 3).unwrap();
    let many = connect(&nodes.url()).await;
    let one = connect(&url_of(nodes.address(0))).await;
    // Each keeps a counter of its own kind for this name.
    take(&one, "a", LONG).await.release().await.unwrap();
    take(&many, "a", LONG).await.release().await.unwrap();
    let guard = take(&many, "a", LONG).await;
    assert_busy(&one, "a").await;
    assert_eq!(many.list("").await.unwrap().len(), 1);
    guard.release().await.unwrap();
    // On one of three it takes a vote, and not the lock.
    let guard = take(&one, "a", LONG).await;
    take(&many, "a", LONG).await.release().await.unwrap();
    assert_eq!(
        one.inspect("a").await.unwrap().last_token,
        Some(guard.token())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_several_processes_are_served_in_order_and_one_is_told() {
    const WAITERS: usize = 8;
    let nodes = five();
    let client = connect(&nodes.url()).await;
    let guard = take(&client, "a", LONG).await;
    let mut agents: Vec<Agent> = (0..WAITERS).map(|_| Agent::start(&nodes.url())).collect();
    for (at, agent) in agents.iter_mut().enumerate() {
        agent.acquire("a", LONG);
        queued(&client, "a", at + 1).await;
    }
    let begun = clock::now();
    let before = raw(&nodes, 2).calls("evalsha");
    let mut token = guard.token().get();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    for agent in &mut agents {
        let next: u64 = agent.hear().parse().unwrap();
        assert!(next > token, "{next} after {token}");
        token = next;
        assert_eq!(agent.release("a"), "freed");
    }
    let (calls, took) = (raw(&nodes, 2).calls("evalsha") - before, since(begun));
    // A lock, a token and a release each; were all told, each would ask again for each.
    assert!(calls <= 6 * WAITERS as u64, "{calls} commands");
    assert!(took < SLACK * 4, "{took:?}");
    nothing_left(&nodes, 0..5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_that_dies_or_freezes_is_followed_and_knows_on_waking() {
    let nodes = five();
    let client = connect(&nodes.url()).await;
    let ttl = ms(1500);
    let mut frozen = Agent::start(&nodes.url());
    let token = frozen.take("a", ttl);
    frozen.freeze();
    let begun = clock::now();
    let guard = lock(&client, "a", LONG).acquire().await.unwrap();
    assert!(since(begun) < ttl + SLACK, "{:?}", since(begun));
    assert!(guard.token().get() > token);
    frozen.thaw();
    assert_eq!(frozen.release("a"), "another");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let mut dead = Agent::start(&nodes.url());
    dead.take("a", ttl);
    dead.kill();
    let begun = clock::now();
    let guard = lock(&client, "a", LONG).acquire().await.unwrap();
    assert!(since(begun) < ttl + SLACK, "{:?}", since(begun));
    guard.release().await.unwrap();
    nothing_left(&nodes, 0..5).await;
}

/// The nodes are frozen while it asks, and it is while they answer: it wakes with a majority's lock in its hands that
/// has long been another's.
#[tokio::test(flavor = "multi_thread")]
async fn client_frozen_between_the_lock_and_its_token_is_granted_nothing_of_others() {
    let mut nodes = five();
    let client = connect(&nodes.url()).await;
    let ttl = ms(1000);
    // It waits long enough for an answer that comes when it is stopped.
    let mut frozen = Agent::start(&format!("{}?node-timeout=3s", nodes.url()));
    frozen.take("a", ttl);
    frozen.release("a");
    for at in 0..5 {
        nodes.node(at).freeze().unwrap();
    }
    frozen.acquire("a", ttl);
    tokio::time::sleep(ms(300)).await;
    frozen.freeze();
    for at in 0..5 {
        nodes.node(at).thaw().unwrap();
    }
    // Each has given it the lock by the answer that it doesn't read.
    until(SLACK, async || {
        (0..5).all(|at| raw(&nodes, at).keys().iter().any(|key| key == "a"))
    })
    .await;
    let guard = lock(&client, "a", LONG).acquire().await.unwrap();
    frozen.thaw();
    queued(&client, "a", 1).await;
    assert!(guard.is_held());
    let token = guard.token().get();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    let next: u64 = frozen.hear().parse().unwrap();
    assert!(next > token, "{next} after {token}");
    assert_eq!(frozen.release("a"), "freed");
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_of_one_node_ends_no_hold_and_lowers_no_token() {
    let clock = Arc::new(ServerClock::new().unwrap());
    let nodes = RedisNodes::start_at(RedisEdition::Redis7, 3, &clock).unwrap();
    let (client, other) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
    let ttl = ms(2500);
    let mut newest = 0;
    // Ten seconds fast, ten seconds slow, and at twice the speed.
    for (seconds, percent) in [(10, 0), (-10, 0), (0, 100)] {
        let guard = take(&client, "a", ttl).await;
        clock.set(seconds, percent).unwrap();
        let begun = clock::now();
        while since(begun) < ttl * 2 {
            let busy = lock(&other, "a", ttl).try_acquire().await.unwrap();
            assert!(busy.is_none(), "{busy:?} at {seconds} s, {percent} %");
            tokio::time::sleep(ms(50)).await;
        }
        let state = guard.state();
        assert_eq!(state, HoldState::Held, "at {seconds} s, {percent} %");
        let token = guard.token().get();
        assert!(token > newest, "{token} after {newest}");
        assert_eq!(guard.release().await.unwrap(), Release::Freed);
        newest = take(&other, "a", ttl).await.token().get();
        assert!(newest > token, "{newest} after {token}");
        until(SLACK, async || {
            other.inspect("a").await.unwrap().holder.is_none()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_a_client_does_works_with_two_of_five_away() {
    let mut nodes = five();
    let client = connect(&nodes.url()).await;
    take(&client, "x", LONG).await.release().await.unwrap();
    nodes.node(0).kill().unwrap();
    nodes.node(3).freeze().unwrap();
    crate::common::everything(&client).await.unwrap();
    nodes.node(3).thaw().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_hold_is_told_and_the_next_waiter_with_it() {
    let nodes = five();
    let client = connect(&nodes.url()).await;
    let guard = take(&client, "a", LONG).await;
    let next = lock(&client, "a", LONG);
    let next = tokio::spawn(async move { next.acquire().await.unwrap() });
    queued(&client, "a", 1).await;
    let begun = clock::now();
    let broken = client.break_hold("a", Some(guard.token())).await.unwrap();
    assert!(matches!(broken, Broken::Ended(_)), "{broken:?}");
    let next = next.await.unwrap();
    assert!(since(begun) < SLACK, "{:?}", since(begun));
    assert!(next.token() > guard.token());
    assert_eq!(guard.lost().await, LossReason::Broken);
    assert_eq!(guard.release().await.unwrap(), Release::Another);
    assert!(next.is_held());
}

/// A node's time is not ours: only its own restart and its own clock count.
#[tokio::test(flavor = "multi_thread")]
async fn longer_ttl_is_known_to_a_majority_before_it_is_used() {
    let nodes = five();
    let client = connect(&nodes.url()).await;
    let guard = take(&client, "a", ms(30_000)).await;
    let longest = || {
        let know = (0..5).filter(|at| {
            let longest: Option<u64> = raw(&nodes, *at).ask(&["HGET", RECORD, "longest"]);
            longest >= Some(90_000)
        });
        know.count()
    };
    assert_eq!(longest(), 0);
    guard.extend(Duration::from_secs(90)).await.unwrap();
    assert!(longest() >= 3, "{}", longest());
}

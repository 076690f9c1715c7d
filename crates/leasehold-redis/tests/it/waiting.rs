//! Waiters and holders that are cut off, killed, frozen or robbed.
#![allow(clippy::print_stdout, reason = "the measures")]

use std::time::Duration;

use crate::common::{
    Agent, LONG, Raw, SLACK, connect, lock, ms, proxied, queued, server, since, take, until, url_of,
};
use leasehold::{Guard, LossReason, Release};
use leasehold_core::backend::Attempt;
use leasehold_core::url::StoreUrl;
use leasehold_core::{Claim, Identity, Name, Owner, clock};
use leasehold_testkit::servers::{Direction, Redis};
use tokio::task::JoinHandle;

fn waiter(client: &leasehold::Client, name: &str, ttl: Duration) -> JoinHandle<Guard> {
    let lock = lock(client, name, ttl);
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// Waits until so many processes listen.
async fn listening(server: &Redis, count: usize) {
    let mut raw = Raw::to(server);
    until(ms(8000), async || {
        let channels: Vec<String> = raw.ask(&["PUBSUB", "CHANNELS"]);
        channels.len() == count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_whose_subscription_was_cut_is_still_told() {
    let (server, proxy) = proxied();
    let client = connect(&url_of(proxy.address())).await;
    let holder = connect(&server.url()).await;
    let guard = take(&holder, "a", LONG).await;
    let next = waiter(&client, "a", LONG);
    queued(&holder, "a", 1).await;
    for _ in 0..3 {
        proxy.cut();
        listening(&server, 0).await;
        listening(&server, 1).await;
    }
    // Its next look by itself is seconds away.
    tokio::time::sleep(ms(300)).await;
    let begun = clock::now();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    drop(next.await.unwrap());
    assert!(since(begun) < SLACK, "told after {:?}", since(begun));
}

#[tokio::test(flavor = "multi_thread")]
async fn release_during_a_waiters_outage_is_seen_after_it() {
    let (server, mut proxy) = proxied();
    let client = connect(&url_of(proxy.address())).await;
    let holder = connect(&server.url()).await;
    let guard = take(&holder, "a", LONG).await;
    let next = waiter(&client, "a", LONG);
    queued(&holder, "a", 1).await;
    proxy.refuse();
    listening(&server, 0).await;
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    // Nobody listens, so the lock is free and not with somebody who can't be told.
    assert!(holder.inspect("a").await.unwrap().holder.is_none());
    proxy.accept().unwrap();
    let begun = clock::now();
    drop(next.await.unwrap());
    assert!(since(begun) < SLACK * 2, "after {:?}", since(begun));
}

#[tokio::test(flavor = "multi_thread")]
async fn half_closed_connections_are_made_anew() {
    for direction in Direction::BOTH {
        let (server, proxy) = proxied();
        let client = connect(&url_of(proxy.address())).await;
        let other = connect(&server.url()).await;
        let held = take(&client, "held", ms(3000)).await;
        let guard = take(&other, "a", LONG).await;
        let next = waiter(&client, "a", LONG);
        queued(&other, "a", 1).await;
        proxy.half_close(direction);
        listening(&server, 0).await;
        listening(&server, 1).await;
        let begun = clock::now();
        guard.release().await.unwrap();
        drop(next.await.unwrap());
        assert!(
            since(begun) < SLACK * 2,
            "{direction:?}: {:?}",
            since(begun)
        );
        tokio::time::sleep(ms(3500)).await;
        assert!(held.is_held(), "{direction:?}");
        assert_eq!(held.release().await.unwrap(), Release::Freed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_cut_off_together_come_back_on_one_connection() {
    const WAITERS: usize = 300;
    let (server, proxy) = proxied();
    let client = connect(&url_of(proxy.address())).await;
    let holder = connect(&server.url()).await;
    let _guard = take(&holder, "a", LONG).await;
    let waiters: Vec<_> = (0..WAITERS).map(|_| waiter(&client, "a", LONG)).collect();
    let mut raw = Raw::to(&server);
    let queue = ["ZCARD", "leasehold:q:{a}"];
    until(ms(10_000), async || raw.ask::<usize>(&queue) == WAITERS).await;
    let connections = |raw: &mut Raw| -> u64 {
        let stats: String = raw.ask(&["INFO", "stats"]);
        let found = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        found.unwrap().trim().parse().unwrap()
    };
    let tries = raw.calls("evalsha");
    let before = connections(&mut raw);
    proxy.cut();
    // All look again.
    until(ms(10_000), async || {
        raw.calls("evalsha") >= tries + WAITERS as u64
    })
    .await;
    let more = connections(&mut raw) - before;
    assert!(more <= 6, "{more} connections");
    for waiter in waiters {
        waiter.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_that_looks_out_of_turn_keeps_its_place() {
    let server = server();
    let url = StoreUrl::parse(&server.url()).unwrap();
    let backend = leasehold_redis::connect(url).await.unwrap();
    let mut contenders = Vec::new();
    for place in 0..5 {
        let claim = Claim {
            name: Name::new("a").unwrap(),
            owner: Owner::random().unwrap(),
            ttl: LONG,
            waits: true,
            identity: Identity::of_this_process(),
        };
        let mut contender = backend.contend(claim).await.unwrap();
        let position = match contender.try_acquire().await.unwrap() {
            Attempt::Granted(_) => 0,
            Attempt::Busy(busy) => busy.position.unwrap() + 1,
        };
        assert_eq!(position, place);
        contenders.push(contender);
    }
    // As if it had expired: the third in the queue looks before the first.
    Raw::to(&server).ask::<()>(&["DEL", "a"]);
    for (looker, place) in [(3, 1), (2, 0), (4, 2), (3, 1)] {
        match contenders[looker].try_acquire().await.unwrap() {
            Attempt::Busy(busy) => assert_eq!(busy.position, Some(place), "of {looker}"),
            Attempt::Granted(grant) => panic!("{looker} overtook: {grant:?}"),
        }
    }
    assert!(matches!(
        contenders[1].try_acquire().await.unwrap(),
        Attempt::Granted(_)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_gone_without_a_word_are_probed_for() {
    let server = server();
    let client = connect(&server.url()).await;
    let _guard = take(&client, "a", ms(600)).await;
    let _next = waiter(&client, "a", LONG);
    queued(&client, "a", 1).await;
    // Grants, renewals, messages: each of our ends has the kernel's keep-alive timer running. Fields of a line:
    // number, local, remote, state, queues, timer:when, …
    let remote = format!("0100007F:{:04X}", server.address().port());
    until(SLACK, async || {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let ours: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|fields| fields[2] == remote && fields[3] == "01")
            .collect();
        ours.len() == 3 && ours.iter().all(|fields| fields[5].starts_with("02:"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_waiter_is_passed_over_at_once() {
    let server = server();
    let client = connect(&server.url()).await;
    let guard = take(&client, "a", LONG).await;
    let mut dead = Agent::start(&server.url());
    dead.acquire("a", LONG);
    queued(&client, "a", 1).await;
    let next = waiter(&client, "a", LONG);
    queued(&client, "a", 2).await;
    dead.kill();
    listening(&server, 1).await;
    let begun = clock::now();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    drop(next.await.unwrap());
    // Its alive window would have been ten seconds.
    assert!(since(begun) < SLACK, "after {:?}", since(begun));
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_waiter_is_passed_over_after_its_alive_window() {
    let server = server();
    let client = connect(&server.url()).await;
    let guard = take(&client, "a", LONG).await;
    let mut frozen = Agent::start(&server.url());
    let alive = ms(1500);
    frozen.acquire("a", alive);
    queued(&client, "a", 1).await;
    let next = waiter(&client, "a", LONG);
    queued(&client, "a", 2).await;
    frozen.freeze();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    let begun = clock::now();
    let next = next.await.unwrap();
    let took = since(begun);
    println!("a frozen waiter cost {took:?} of {alive:?}");
    // The next one looks by itself every third of its own ten seconds, a tenth of that later at most.
    assert!(took < alive + ms(3667) + SLACK, "after {took:?}");
    // Woken, it finds its hand-over void, and waits for another.
    frozen.thaw();
    tokio::time::sleep(alive).await;
    let token = next.token();
    assert_eq!(next.release().await.unwrap(), Release::Freed);
    assert!(frozen.hear().parse::<u64>().unwrap() > token.get());
    assert_eq!(frozen.release("a"), "freed");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_holder_frees_within_ttl() {
    let server = server();
    let client = connect(&server.url()).await;
    let ttl = ms(2000);
    for others in [0, 1, 3] {
        let mut holder = Agent::start(&server.url());
        let name = format!("a{others}");
        let token = holder.take(&name, ttl);
        // Some come before it dies and one after.
        let mut waiters = tokio::task::JoinSet::new();
        let wait = |waiters: &mut tokio::task::JoinSet<_>| {
            let lock = lock(&client, &name, LONG);
            waiters.spawn(async move { lock.acquire().await.unwrap().token().get() });
        };
        for _ in 0..others {
            wait(&mut waiters);
        }
        queued(&client, &name, others).await;
        holder.kill();
        let begun = clock::now();
        wait(&mut waiters);
        let next = waiters.join_next().await.unwrap().unwrap();
        let took = since(begun);
        println!("{others} waited: free {took:?} after its holder's death, with a TTL of {ttl:?}");
        // Promised is half a second; the rest is for a busy machine.
        assert!(took < ttl + ms(500) + SLACK, "after {took:?}");
        assert!(next > token);
        waiters.join_all().await;
    }
}

/// Takes a lock away by commands of another; the holder must be told of it soon and change nothing any more.
async fn robbed(commands: &[&[&str]], reason: LossReason, outcome: Release) {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    let ttl = ms(3000);
    let guard = take(&client, "a", ttl).await;
    tokio::time::sleep(ttl / 2).await;
    let begun = clock::now();
    for command in commands {
        raw.ask::<()>(command);
    }
    let value: Option<String> = raw.ask(&["GET", "a"]);
    let lost = tokio::time::timeout(ttl * 2, guard.lost()).await;
    assert_eq!(lost.ok(), Some(reason));
    let told = since(begun);
    println!("{commands:?}: told after {told:?}");
    // A third of the TTL, and a tenth of that for spreading.
    assert!(told < ttl / 3 * 11 / 10 + SLACK / 2, "told after {told:?}");
    tokio::time::sleep(ttl / 2).await;
    assert_eq!(raw.ask::<Option<String>>(&["GET", "a"]), value);
    assert_eq!(guard.release().await.unwrap(), outcome);
    assert_eq!(raw.ask::<Option<String>>(&["GET", "a"]), value);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_deleted_by_hand_is_told_and_not_made_anew() {
    robbed(&[&["DEL", "a"]], LossReason::Gone, Release::Expired).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_flushed_is_told_and_not_made_anew() {
    robbed(&[&["FLUSHALL"]], LossReason::Gone, Release::Expired).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn key_taken_over_by_another_client_is_told_and_left_alone() {
    let steal: &[&str] = &["SET", "a", "theirs", "PX", "60000"];
    robbed(&[steal], LossReason::Stolen, Release::Another).await;
    robbed(
        &[&["DEL", "a"], steal],
        LossReason::Stolen,
        Release::Another,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_became_something_else_is_told_and_left_alone() {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    let guard = take(&client, "a", ms(3000)).await;
    let beside = take(&client, "beside", ms(3000)).await;
    raw.ask::<()>(&["DEL", "a"]);
    raw.ask::<()>(&["HSET", "a", "field", "value"]);
    assert_eq!(guard.lost().await, LossReason::Stolen);
    assert_eq!(guard.release().await.unwrap(), Release::Another);
    assert_eq!(raw.ask::<String>(&["HGET", "a", "field"]), "value");
    // It is renewed in the same request as the other.
    tokio::time::sleep(ms(3000)).await;
    assert!(beside.is_held());
}

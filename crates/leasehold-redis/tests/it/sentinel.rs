//! A master behind sentinels: failovers while the lock is held, waited for and renewed.

use std::time::Duration;

use crate::common::{
    LONG, Raw, SLACK, assert_busy, connect, lock, ms, queued, server, since, take, until,
};
use leasehold::store::Verdict;
use leasehold::{ErrorKind, Guard, HoldState, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{RedisEdition, RedisSentinel};

/// Long enough for a failover, short enough to wait for.
const TTL: Duration = Duration::from_secs(12);
/// How long sentinels may take to make another master on a busy machine.
const FAILOVER_MAX: Duration = Duration::from_secs(60);

fn group() -> RedisSentinel {
    RedisSentinel::start(RedisEdition::Redis7).unwrap()
}

fn raw(group: &RedisSentinel, at: usize) -> Raw {
    Raw::at(&format!("redis://{}", group.address(at)))
}

fn is_master(group: &RedisSentinel, at: usize) -> bool {
    let url = format!("redis://{}", group.address(at));
    let Ok(client) = redis::Client::open(url) else {
        return false;
    };
    let Ok(mut connection) = client.get_connection_with_timeout(ms(500)) else {
        return false;
    };
    connection.set_read_timeout(Some(ms(500))).unwrap();
    let info: redis::RedisResult<String> = redis::cmd("INFO").query(&mut connection);
    info.is_ok_and(|info| info.contains("role:master"))
}

/// The server, other than this one, that is the master now.
async fn other_master(group: &RedisSentinel, old: usize) -> usize {
    let mut found = None;
    until(FAILOVER_MAX, async || {
        found = (0..group.size()).find(|at| *at != old && is_master(group, *at));
        found.is_some()
    })
    .await;
    // The sentinels tell each other of it a little later.
    until(FAILOVER_MAX, async || {
        leasehold::connect(&group.url()).await.is_ok()
    })
    .await;
    found.unwrap()
}

/// A failover that an operator orders: the old master lives on as a replica.
async fn fail_over(group: &RedisSentinel) -> usize {
    let mut sentinel = Raw::at(&format!("redis://{}", group.sentinel_address(0)));
    sentinel.ask::<()>(&["SENTINEL", "FAILOVER", group.name()]);
    let new = other_master(group, 0).await;
    until(FAILOVER_MAX, async || !is_master(group, 0)).await;
    new
}

/// Waits until the replicas have what the master has.
fn replicated(group: &RedisSentinel) {
    let mut master = raw(group, 0);
    master.ask::<()>(&["SET", "mark", "x"]);
    assert_eq!(master.ask::<u32>(&["WAIT", "2", "10000"]), 2);
    master.ask::<()>(&["DEL", "mark"]);
}

/// Still held after more than a TTL, and nobody else got in.
async fn untouched(group: &RedisSentinel, guard: &Guard) {
    let other = connect(&group.url()).await;
    let begun = clock::now();
    while since(begun) < TTL + ms(500) {
        assert!(guard.is_held(), "{guard:?}");
        assert_busy(&other, "a").await;
        tokio::time::sleep(ms(100)).await;
    }
    until(SLACK, async || guard.state() == HoldState::Held).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ordered_failover_keeps_the_hold_and_wakes_the_waiter() {
    for edition in [RedisEdition::Redis7, RedisEdition::Valkey8] {
        let group = RedisSentinel::start(edition).unwrap();
        let client = connect(&group.url()).await;
        let guard = take(&client, "a", TTL).await;
        let next = lock(&client, "a", LONG);
        let next = tokio::spawn(async move { next.acquire().await.unwrap() });
        queued(&client, "a", 1).await;
        replicated(&group);
        let new = fail_over(&group).await;
        untouched(&group, &guard).await;
        // The waiter is heard of at the new master, and told there.
        queued(&client, "a", 1).await;
        let (token, begun) = (guard.token(), clock::now());
        assert_eq!(guard.release().await.unwrap(), Release::Freed);
        let next = next.await.unwrap();
        assert!(since(begun) < SLACK, "told after {:?}", since(begun));
        assert!(next.token() > token);
        assert_eq!(next.release().await.unwrap(), Release::Freed);
        client.close().await;
        until(SLACK, async || {
            raw(&group, new).keys() == ["leasehold:f:{a}"]
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_master_costs_a_replicated_hold_nothing() {
    let mut group = group();
    let client = connect(&group.url()).await;
    let guard = take(&client, "a", TTL).await;
    replicated(&group);
    group.server(0).kill().unwrap();
    other_master(&group, 0).await;
    until(TTL, async || guard.state() == HoldState::Held).await;
    untouched(&group, &guard).await;
    // The one that comes back is made a replica, and nobody is sent to it.
    group.server(0).start_again().unwrap();
    assert_busy(&connect(&group.url()).await, "a").await;
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_master_that_thaws_grants_nothing_to_who_was_connected() {
    let mut group = group();
    let client = connect(&group.url()).await;
    // Its connection for grants is to the old master.
    take(&client, "a", TTL).await.release().await.unwrap();
    group.server(0).freeze().unwrap();
    other_master(&group, 0).await;
    let holder = take(&connect(&group.url()).await, "a", LONG).await;
    // What was told of the new master is told within moments.
    tokio::time::sleep(ms(500)).await;
    group.server(0).thaw().unwrap();
    for _ in 0..20 {
        let tried = lock(&client, "a", TTL).try_acquire().await;
        assert!(!matches!(tried, Ok(Some(_))), "two holders: {tried:?}");
        tokio::time::sleep(ms(50)).await;
    }
    assert!(holder.is_held());
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_at_a_frozen_master_is_told_at_the_new_one() {
    let mut group = group();
    let client = connect(&group.url()).await;
    let guard = take(&client, "a", Duration::from_secs(30)).await;
    let other = connect(&group.url()).await;
    let next = lock(&other, "a", LONG);
    let next = tokio::spawn(async move { next.acquire().await.unwrap() });
    queued(&client, "a", 1).await;
    replicated(&group);
    // Its connections stay open and say nothing.
    group.server(0).freeze().unwrap();
    other_master(&group, 0).await;
    until(Duration::from_secs(20), async || {
        guard.state() == HoldState::Held
    })
    .await;
    until(Duration::from_secs(20), async || {
        let seen = client.inspect("a").await;
        seen.is_ok_and(|seen| seen.waiters.len() == 1)
    })
    .await;
    tokio::time::sleep(ms(500)).await;
    let begun = clock::now();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    drop(next.await.unwrap());
    assert!(since(begun) < SLACK, "told after {:?}", since(begun));
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_forgets_what_was_not_replicated_and_the_token_tells() {
    let mut group = group();
    let client = connect(&group.url()).await;
    for at in 1..group.size() {
        group.server(at).freeze().unwrap();
    }
    // Else they would find it in their sockets.
    raw(&group, 0).ask::<u32>(&["CLIENT", "KILL", "TYPE", "replica"]);
    let guard = take(&client, "a", LONG).await;
    group.server(0).kill().unwrap();
    for at in 1..group.size() {
        group.server(at).thaw().unwrap();
    }
    other_master(&group, 0).await;
    let next = take(&connect(&group.url()).await, "a", LONG).await;
    // Two at once, as the README says.
    assert!(next.token() > guard.token());
    assert!(next.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_are_down_are_passed_over_and_a_wrong_name_is_said() {
    let mut group = group();
    let wrong = group.url().replace(group.name(), "other");
    let error = leasehold::connect(&wrong).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("\"other\""), "{error}");
    group.sentinel(0).kill().unwrap();
    group.sentinel(1).freeze().unwrap();
    let client = connect(&group.url()).await;
    take(&client, "a", TTL).await.release().await.unwrap();
    let found = client.check().await.unwrap();
    let told = |text: &str| found.iter().any(|finding| finding.what.contains(text));
    assert!(
        told("3 sentinel(s) are asked for the master \"mymaster\""),
        "{found:?}"
    );
    assert!(told("2 replica(s)"), "{found:?}");
    group.sentinel(2).kill().unwrap();
    let error = leasehold::connect(&group.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("sentinel"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_have_credentials_of_their_own() {
    let lines = [
        "user watcher on >canary-4711 -@all +sentinel|master +sentinel|get-master-addr-by-name +subscribe &* +hello",
        "user blind on >canary-4711 -@all +hello",
    ];
    let group = RedisSentinel::start_with(RedisEdition::Redis7, &[], &lines, None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (right, wrong) = (file("right", "canary-4711\n"), file("wrong", "canary\n"));
    let url = |user: &str, file: &str| {
        format!(
            "{}&sentinel-user={user}&sentinel-password-file={file}",
            group.url()
        )
    };
    let client = connect(&url("watcher", &right)).await;
    drop(take(&client, "a", TTL).await);
    for (user, file) in [("watcher", &wrong), ("blind", &right)] {
        let error = leasehold::connect(&url(user, file)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("sentinel-user") && !text.contains("canary"),
            "{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_made_a_replica_is_an_outage_and_no_loss() {
    let server = server();
    let client = connect(&server.url()).await;
    let mut raw = Raw::to(&server);
    let guard = take(&client, "a", ms(6000)).await;
    // Of a master that isn't there, so that it keeps what it has.
    raw.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = lock(&client, "b", TTL).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("replica"), "{error}");
    tokio::time::sleep(ms(3000)).await;
    assert_eq!(guard.state(), HoldState::Uncertain);
    raw.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    until(SLACK, async || guard.state() == HoldState::Held).await;
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
}

fn with_replicas(group: &RedisSentinel, wanted: u32) -> String {
    format!(
        "{}&min-replicas={wanted}&replica-timeout=200ms",
        group.url()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_that_too_few_replicas_have_is_given_back_at_once() {
    let mut group = group();
    let client = connect(&with_replicas(&group, 2)).await;
    assert_eq!(
        take(&client, "a", TTL).await.release().await.unwrap(),
        Release::Freed
    );
    group.server(1).freeze().unwrap();
    let error = lock(&client, "a", LONG).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreplicated, "{error}");
    assert!(error.to_string().contains("1 of the 2 replicas"), "{error}");
    assert!(!raw(&group, 0).ask::<bool>(&["EXISTS", "a"]));
    // Who asks for fewer gets it.
    drop(take(&connect(&with_replicas(&group, 1)).await, "b", TTL).await);
    group.server(1).thaw().unwrap();
    until(SLACK, async || {
        let tried = lock(&client, "a", TTL).try_acquire().await;
        tried.is_ok_and(|got| got.is_some())
    })
    .await;
    // An operator is told.
    let greedy = connect(&with_replicas(&group, 3)).await;
    let found = greedy.check().await.unwrap();
    let bad = found
        .iter()
        .find(|finding| finding.verdict == Verdict::Bad)
        .unwrap();
    assert!(bad.what.contains("2 of the 3"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_that_is_handed_the_lock_has_it_once_the_replicas_do() {
    let mut group = group();
    // The hand-over is written by another's connection: the waiter's own has nothing that a replica lacks.
    let holder = connect(&group.url()).await;
    let guard = take(&holder, "a", LONG).await;
    let client = connect(&with_replicas(&group, 2)).await;
    // All its connections are there, and wrote last before the replica froze.
    for name in ["w1", "w2", "w3", "w4"] {
        take(&client, name, TTL).await.release().await.unwrap();
    }
    let next = lock(&client, "a", LONG);
    let next = tokio::spawn(async move { next.acquire().await.unwrap() });
    queued(&holder, "a", 1).await;
    replicated(&group);
    group.server(1).freeze().unwrap();
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    tokio::time::sleep(ms(2000)).await;
    assert!(!next.is_finished(), "granted without its replicas");
    group.server(1).thaw().unwrap();
    let next = tokio::time::timeout(LONG, next).await.unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(next.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_without_its_replicas_stands_in_nobodys_way() {
    let mut group = group();
    let holder = connect(&group.url()).await;
    let guard = take(&holder, "a", LONG).await;
    let client = connect(&with_replicas(&group, 2)).await;
    let first = lock(&client, "a", LONG);
    let first = tokio::spawn(async move { first.acquire().await });
    queued(&holder, "a", 1).await;
    let second = lock(&holder, "a", LONG);
    let second = tokio::spawn(async move { second.acquire().await.unwrap() });
    queued(&holder, "a", 2).await;
    replicated(&group);
    group.server(1).freeze().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    let second = tokio::time::timeout(ms(3000) + SLACK, second).await;
    let second = second.expect("the first keeps the lock").unwrap();
    assert!(!first.is_finished());
    drop(second);
    group.server(1).thaw().unwrap();
    drop(first.await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_that_wait_for_replicas_hold_no_renewal_up() {
    let mut group = group();
    let client = connect(&with_replicas(&group, 2)).await;
    let guard = take(&client, "held", ms(3000)).await;
    group.server(1).freeze().unwrap();
    let begun = clock::now();
    let mut tries = tokio::task::JoinSet::new();
    for task in 0..32 {
        let client = client.clone();
        tries.spawn(async move {
            while since(begun) < Duration::from_secs(6) {
                let tried = lock(&client, &format!("t{task}"), TTL).try_acquire().await;
                assert!(tried.is_err(), "{tried:?}");
            }
        });
    }
    while let Some(tried) = tries.join_next().await {
        tried.unwrap();
        assert!(guard.is_held());
    }
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
}

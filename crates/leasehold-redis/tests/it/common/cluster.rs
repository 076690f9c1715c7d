//! A cluster of one's own, and what is looked at in it.

use std::time::Duration;

use leasehold::{Client, Guard, HoldState, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{RedisCluster, RedisEdition};

use super::{LONG, Raw, SLACK, assert_busy, connect, lock, ms, queued, since, take, until};

/// Long enough for a failover, short enough to wait for.
pub(crate) const TTL: Duration = Duration::from_secs(12);
pub(crate) fn cluster() -> RedisCluster {
    RedisCluster::start(RedisEdition::Redis7).unwrap()
}

pub(crate) fn raw(cluster: &RedisCluster, at: usize) -> Raw {
    Raw::at(&format!("redis://{}", cluster.address(at)))
}

pub(crate) fn slot(cluster: &RedisCluster, key: &str) -> u64 {
    raw(cluster, 0).ask(&["CLUSTER", "KEYSLOT", key])
}

/// The master of the beginning that has a key's slot.
pub(crate) fn home(cluster: &RedisCluster, key: &str) -> usize {
    (slot(cluster, key) as usize * 3) / 16_384
}

/// The keys of all masters.
pub(crate) fn keys(cluster: &RedisCluster) -> Vec<String> {
    let masters = (0..cluster.size()).filter(|at| is_master(cluster, *at));
    let mut keys: Vec<String> = masters.flat_map(|at| raw(cluster, at).keys()).collect();
    keys.sort();
    keys
}

pub(crate) fn is_master(cluster: &RedisCluster, at: usize) -> bool {
    let Ok(client) = redis::Client::open(format!("redis://{}", cluster.address(at))) else {
        return false;
    };
    let Ok(mut connection) = client.get_connection_with_timeout(ms(500)) else {
        return false;
    };
    connection.set_read_timeout(Some(ms(500))).unwrap();
    let info: redis::RedisResult<String> = redis::cmd("INFO").query(&mut connection);
    info.is_ok_and(|info| info.contains("role:master"))
}

/// Waits until a master's replica has what the master has.
pub(crate) fn replicated(cluster: &RedisCluster, key: &str) {
    let mut master = raw(cluster, home(cluster, key));
    let mark = format!("mark{{{key}}}");
    master.ask::<()>(&["SET", &mark, "x"]);
    assert_eq!(master.ask::<u32>(&["WAIT", "1", "10000"]), 1);
    master.ask::<()>(&["DEL", &mark]);
}

/// Still held after more than a TTL, and nobody else got in.
pub(crate) async fn untouched(cluster: &RedisCluster, guard: &Guard) {
    let other = connect(&cluster.url()).await;
    let begun = clock::now();
    while since(begun) < TTL + ms(500) {
        assert!(guard.is_held(), "{guard:?}");
        assert_busy(&other, "a").await;
        tokio::time::sleep(ms(100)).await;
    }
    until(SLACK, async || guard.state() == HoldState::Held).await;
}

/// A hold of `a` and one that waits for it.
pub(crate) async fn held_and_waited_for(
    client: &Client,
    ttl: Duration,
) -> (Guard, tokio::task::JoinHandle<Guard>) {
    let guard = take(client, "a", ttl).await;
    let next = lock(client, "a", LONG);
    let next = tokio::spawn(async move { next.acquire().await.unwrap() });
    queued(client, "a", 1).await;
    (guard, next)
}

/// The waiter is told of the release at once: it would look by itself some seconds later.
pub(crate) async fn handed_over(guard: Guard, next: tokio::task::JoinHandle<Guard>) -> Guard {
    let (token, begun) = (guard.token(), clock::now());
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    let next = next.await.unwrap();
    assert!(since(begun) < SLACK, "told after {:?}", since(begun));
    assert!(next.token() > token);
    next
}

//! A cluster whose slots move while locks in them are held and waited for.

use crate::common::cluster::{
    TTL, cluster, handed_over, held_and_waited_for, home, keys, raw, slot, untouched,
};
use crate::common::{LONG, Raw, SLACK, assert_busy, connect, lock, ms, queued, since, take, until};
use leasehold::{ErrorKind, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{RedisCluster, RedisEdition};

/// A slot on its way from one master to another.
struct Move {
    slot: String,
    from: Raw,
    to: Raw,
    all: Vec<Raw>,
    target: (String, String, String),
}

impl Move {
    fn begin(cluster: &RedisCluster, key: &str) -> Self {
        let (from_at, to_at) = (home(cluster, key), (home(cluster, key) + 1) % 3);
        let slot = slot(cluster, key).to_string();
        let (mut from, mut to) = (raw(cluster, from_at), raw(cluster, to_at));
        let from_id: String = from.ask(&["CLUSTER", "MYID"]);
        let to_id: String = to.ask(&["CLUSTER", "MYID"]);
        to.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        let address = cluster.address(to_at);
        Self {
            slot,
            from,
            to,
            all: (0..3).map(|at| raw(cluster, at)).collect(),
            target: (address.ip().to_string(), address.port().to_string(), to_id),
        }
    }

    fn keys(&mut self) -> Vec<String> {
        self.from
            .ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"])
    }

    fn key(&mut self, key: &str) {
        let (host, port, _) = &self.target;
        let moved: String = self.from.ask(&["MIGRATE", host, port, key, "0", "5000"]);
        assert_eq!(moved, "OK", "{key}");
    }

    fn end(mut self) {
        for key in self.keys() {
            self.key(&key);
        }
        let id = self.target.2.clone();
        for node in [&mut self.to].into_iter().chain(&mut self.all) {
            node.ask::<()>(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_of_a_held_lock_is_moved_and_the_waiter_is_told_at_its_new_node() {
    for edition in [RedisEdition::Redis7, RedisEdition::Valkey8] {
        let cluster = RedisCluster::start(edition).unwrap();
        let client = connect(&cluster.url()).await;
        let (guard, next) = held_and_waited_for(&client, TTL).await;
        Move::begin(&cluster, "a").end();
        untouched(&cluster, &guard).await;
        queued(&client, "a", 1).await;
        let next = handed_over(guard, next).await;
        // And for another client, which had the old map.
        assert_busy(&client, "a").await;
        assert_eq!(next.release().await.unwrap(), Release::Freed);
        client.close().await;
        until(SLACK, async || keys(&cluster) == ["leasehold:f:{a}"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_is_renewed_while_its_slot_is_between_two_nodes() {
    let cluster = cluster();
    let client = connect(&cluster.url()).await;
    let ttl = ms(3000);
    let guard = take(&client, "a", ttl).await;
    // One more in the slot stays behind: what is renewed together is parted.
    let beside = take(&client, "b{a}", ttl).await;
    let mut moving = Move::begin(&cluster, "a");
    let here = async |what: &str| {
        let begun = clock::now();
        while since(begun) < ttl * 3 / 2 {
            assert!(guard.is_held() && beside.is_held(), "{what}");
            tokio::time::sleep(ms(20)).await;
        }
    };
    here("before its keys are moved").await;
    for key in ["a", "leasehold:f:{a}"] {
        moving.key(key);
    }
    here("its keys are there, the other's are here").await;
    // Asked for together, and each at its own node.
    for _ in 0..20 {
        let (here, there) = tokio::join!(guard.extend(ttl), beside.extend(ttl));
        here.and(there).unwrap();
    }
    // Nobody can take a lock whose keys may be on either side; it is an outage that ends.
    let error = lock(&client, "c{a}", ttl).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("slot"), "{error}");
    moving.end();
    here("after all was moved").await;
    for guard in [guard, beside, take(&client, "c{a}", ttl).await] {
        assert_eq!(guard.release().await.unwrap(), Release::Freed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_hears_at_the_new_node_before_it_looks_by_itself() {
    let cluster = cluster();
    let (holder, waiter) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    // It looks every three seconds; what it doesn't hear would show in one of several.
    for name in ["a", "b", "c", "d", "e"] {
        let guard = take(&holder, name, LONG).await;
        let next = lock(&waiter, name, LONG);
        let next = tokio::spawn(async move { next.acquire().await.unwrap() });
        queued(&holder, name, 1).await;
        Move::begin(&cluster, name).end();
        tokio::time::sleep(ms(500)).await;
        drop(handed_over(guard, next).await);
    }
}

//! Servers that die, freeze and are cut off; never two holders.

use std::time::Duration;

use crate::common::*;
use leasehold::{ErrorKind, HoldState, LossReason, Release};
use leasehold_core::clock;
use leasehold_testkit::clusters::{self, Cluster as _, Scene};
use leasehold_testkit::servers::{Direction, Proxy, ZooKeeper};

const TTL: Duration = Duration::from_secs(8);
/// A session may end this much later than it was asked to.
const TICK: Duration = Duration::from_millis(200);

/// A follower that the leader doesn't hear any more goes on answering pings and reads. The leader ends the session, and
/// gives the lock to another; a holder on that follower must have known before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_on_a_follower_that_is_cut_off_knows_first() {
    // The follower takes long to notice that it is alone.
    let zookeeper = ZooKeeper::start_linked(3, &["syncLimit=150"]).unwrap();
    let leader = zookeeper.leader().unwrap();
    let follower = (leader + 1) % 3;
    let cut_off = connect(&zookeeper.url_of_one(follower)).await;
    let other = connect(&zookeeper.url_of_one(leader)).await;
    let holder = take(&cut_off, "x", TTL).await;
    let token = holder.token();
    let held = holder.held();
    let next = lock(&other, "x", TTL);
    let waiter = tokio::spawn(async move {
        let next = next.acquire().await;
        (next, held.is_held())
    });
    queued(&other, "x", 1).await;
    // It has been renewed a few times.
    tokio::time::sleep(TTL).await;
    zookeeper.link(follower, leader).freeze(Direction::ToServer);
    let frozen = clock::now();
    let lost = tokio::time::timeout(TTL, holder.lost()).await;
    assert_eq!(lost.expect("lost within its TTL"), LossReason::Unreachable);
    let (next, believed) = tokio::time::timeout(TTL * 2 + SLACK, waiter)
        .await
        .unwrap()
        .unwrap();
    let next = next.unwrap();
    assert!(!believed, "two holders");
    assert!(next.token() > token);
    // Without that the follower would have noticed, and nothing was tested.
    let mode = zookeeper.says(follower, "srvr");
    assert!(
        mode.contains("Mode: follower"),
        "after {:?}: {mode}",
        since(frozen)
    );
    assert!(since(frozen) < TTL + TICK + ms(1000) + SLACK);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_no_lock() {
    clusters::killed_leader_costs_no_lock(&mut three(), TTL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_leader_costs_no_lock_or_the_holder_knows_first() {
    let mut zookeeper = ZooKeeper::start_with(3, &["syncLimit=5"], None).unwrap();
    let leader = zookeeper.leader().unwrap();
    let Scene { holder, waiter, .. } = Scene::begin(&zookeeper.url(), TTL).await;
    zookeeper.member(leader).freeze().unwrap();
    tokio::time::sleep(TTL * 2).await;
    zookeeper.member(leader).thaw().unwrap();
    assert!(
        !(holder.is_held() && waiter.is_finished()),
        "{holder:?}, and the waiter has it, too"
    );
    drop(holder);
    let next = tokio::time::timeout(SLACK * 2, waiter).await.unwrap();
    next.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_restarted_one_after_the_other_cost_no_lock() {
    clusters::restarted_members_cost_no_lock(&mut three(), TTL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cut_off_from_one_server_turns_to_another() {
    let zookeeper = three();
    let proxies: Vec<Proxy> = (0..3)
        .map(|at| Proxy::start(zookeeper.address(at)).unwrap())
        .collect();
    let hosts: Vec<_> = proxies.iter().map(Proxy::address).collect();
    let scene = Scene::begin(&zookeeper.url_of(&hosts), TTL).await;
    for proxy in &proxies {
        for direction in Direction::BOTH {
            proxy.freeze(direction);
        }
        tokio::time::sleep(TTL).await;
        assert!(scene.holder.is_held(), "{scene:?}");
        for direction in Direction::BOTH {
            proxy.thaw(direction);
        }
    }
    scene.assert_unharmed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_is_uncertain_at_once_and_its_lock_free_in_time() {
    let zookeeper = single();
    let mut proxy = Proxy::start(zookeeper.address(0)).unwrap();
    let client = connect(&format!("zookeeper://{}", proxy.address())).await;
    let direct = connect(&zookeeper.url()).await;
    let ttl = Duration::from_secs(12);
    let holder = take(&client, "x", ttl).await;
    tokio::time::sleep(ms(300)).await;
    let next = lock(&direct, "x", ttl);
    let waiter = tokio::spawn(async move { next.acquire().await });
    queued(&direct, "x", 1).await;
    proxy.refuse();
    let cut = clock::now();
    let told = until(SLACK, async || holder.state() == HoldState::Uncertain).await;
    assert!(
        told < ms(1000),
        "told after {told:?}: by a renewal, not by the connection"
    );
    let lost = tokio::time::timeout(ttl, holder.lost()).await;
    assert_eq!(lost.unwrap(), LossReason::Unreachable);
    assert!(!waiter.is_finished(), "two holders");
    let next = tokio::time::timeout(ttl + SLACK, waiter).await.unwrap();
    let free = since(cut);
    assert!(free < ttl + TICK + ms(1000), "free after {free:?}");
    next.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_counts_from_its_send_and_is_worth_three_quarters() {
    clusters::renewal_counts_from_its_send(&single(), 1, 0.75).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_nobody_renews_ends_in_time_though_its_session_goes_on() {
    clusters::left_hold_ends_in_time(&single(), TTL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_is_broken_is_told_at_once() {
    let zookeeper = single();
    let proxy = Proxy::start(zookeeper.address(0)).unwrap();
    let client = connect(&format!("zookeeper://{}", proxy.address())).await;
    let operator = connect(&zookeeper.url()).await;
    for cuts in [false, true] {
        let holder = take(&client, "x", LONG).await;
        if cuts {
            proxy.cut();
            until(SLACK, async || holder.state() == HoldState::Held).await;
        }
        tokio::time::sleep(ms(300)).await;
        operator.break_hold("x", None).await.unwrap();
        let reason = tokio::time::timeout(ms(3000), holder.lost()).await;
        assert_eq!(reason.expect("told by its watch"), LossReason::Broken);
    }
}

/// A server that lost its memory knows no sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_session_is_told_and_what_comes_after_has_a_new_one() {
    let mut zookeeper = single();
    let client = connect(&zookeeper.url()).await;
    let held = take(&client, "x", LONG).await;
    zookeeper.member(0).stop().unwrap();
    let data = zookeeper.member(0).folder().join("data/version-2");
    std::fs::remove_dir_all(data).unwrap();
    zookeeper.start_again(0).unwrap();
    let reason = tokio::time::timeout(LONG / 3, held.lost()).await.unwrap();
    assert_eq!(reason, LossReason::SessionLost);
    let again = lock(&client, "x", LONG).acquire_within(SLACK).await;
    let again = again.unwrap().expect("nobody has it");
    assert!(again.is_held());
    again.release().await.unwrap();
    client.close().await;
}

/// Wherever the answers to a try end, the try is found again or cleaned up, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_whose_answer_is_lost_leaves_nothing_and_is_never_doubled() {
    let zookeeper = single();
    let proxy = Proxy::start(zookeeper.address(0)).unwrap();
    let client = connect(&format!("zookeeper://{}", proxy.address())).await;
    take(&client, "x", TTL).await.release().await.unwrap();
    for bytes in (0..400).step_by(40) {
        proxy.cut_after(Direction::ToClient, bytes);
        if let Some(guard) = lock(&client, "x", TTL).try_acquire().await.unwrap() {
            let nodes: usize = ephemerals(&zookeeper).iter().map(Vec::len).sum();
            assert_eq!(nodes, 1, "after {bytes} bytes");
            // The cut may come as late as that: then the release goes on by itself.
            match guard.release().await {
                Ok(released) => assert_eq!(released, Release::Freed),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Ambiguous, "{error}"),
            }
        }
        until(SLACK, async || ephemerals(&zookeeper).is_empty()).await;
    }
}

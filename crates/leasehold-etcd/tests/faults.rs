//! Members that die, freeze and are cut off; never two holders.
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

mod common;

use std::time::Duration;

use common::*;
use leasehold::{Client, ErrorKind, Guard, HoldState, LossReason, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{Direction, Etcd, EtcdEdition, Proxy};

const TTL: Duration = Duration::from_secs(6);

/// The URL of the cluster with this member first.
fn url_from(etcd: &Etcd, first: usize) -> String {
    let hosts: Vec<String> = (0..etcd.members())
        .map(|at| etcd.address((first + at) % etcd.members()).to_string())
        .collect();
    format!("etcd://{}", hosts.join(","))
}

/// A holder, a waiter behind it, both on the member `at` first.
async fn scene(
    etcd: &Etcd,
    at: usize,
) -> (
    Client,
    Guard,
    tokio::task::JoinHandle<leasehold::Result<Guard>>,
) {
    let client = connect(&url_from(etcd, at)).await;
    let holder = take(&client, "x", TTL).await;
    let next = lock(&client, "x", TTL);
    let waiter = tokio::spawn(async move { next.acquire().await });
    queued(&client, "x", 1).await;
    (client, holder, waiter)
}

/// The holder kept its lock all the while, and the waiter is next.
async fn assert_unharmed(holder: Guard, waiter: tokio::task::JoinHandle<leasehold::Result<Guard>>) {
    assert!(holder.is_held(), "{holder:?}");
    assert!(!waiter.is_finished(), "two holders");
    let token = holder.token();
    until(SLACK * 2, async || holder.state() == HoldState::Held).await;
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
    let next = tokio::time::timeout(SLACK * 2, waiter).await.unwrap();
    let next = next.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_no_lock() {
    for edition in EtcdEdition::ALL {
        let mut etcd = Etcd::start(edition, 3).unwrap();
        let leader = etcd.leader().unwrap();
        let (_client, holder, waiter) = scene(&etcd, leader).await;
        etcd.member(leader).kill().unwrap();
        tokio::time::sleep(TTL * 2).await;
        assert_unharmed(holder, waiter).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_leader_costs_no_lock() {
    let mut etcd = three();
    let leader = etcd.leader().unwrap();
    let (_client, holder, waiter) = scene(&etcd, leader).await;
    etcd.member(leader).freeze().unwrap();
    tokio::time::sleep(TTL * 2).await;
    etcd.member(leader).thaw().unwrap();
    assert_unharmed(holder, waiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_restarted_one_after_the_other_cost_no_lock() {
    let mut etcd = three();
    let (_client, holder, waiter) = scene(&etcd, 0).await;
    for at in 0..3 {
        etcd.member(at).stop().unwrap();
        etcd.start_again(at).unwrap();
        tokio::time::sleep(TTL / 2).await;
    }
    assert_unharmed(holder, waiter).await;
}

/// The holder knows no other member than the old leader, which comes back after the others have given the lock away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_on_a_frozen_old_leader_knows_first_and_stays_lost() {
    for edition in EtcdEdition::ALL {
        let mut etcd = Etcd::start(edition, 3).unwrap();
        let leader = etcd.leader().unwrap();
        let alone = connect(&format!("etcd://{}", etcd.address(leader))).await;
        let holder = take(&alone, "x", TTL).await;
        let others = format!(
            "etcd://{},{}",
            etcd.address((leader + 1) % 3),
            etcd.address((leader + 2) % 3)
        );
        let others = connect(&others).await;
        etcd.member(leader).freeze().unwrap();
        let held = holder.held();
        let next = lock(&others, "x", TTL);
        let next = tokio::spawn(async move {
            let next = next.acquire_within(TTL * 6).await;
            (next, held.is_held())
        });
        let reason = tokio::time::timeout(TTL + SLACK, holder.lost())
            .await
            .unwrap();
        assert_eq!(reason, LossReason::Unreachable);
        let (next, believed) = next.await.unwrap();
        let next = next.unwrap().expect("free after its TTL");
        assert!(!believed, "two holders");
        etcd.member(leader).thaw().unwrap();
        tokio::time::sleep(TTL / 2).await;
        assert!(!holder.is_held() && next.is_held());
        assert_eq!(next.release().await.unwrap(), Release::Freed);
    }
}

/// Two of three members stand still, so that none can agree with another: the holder on one of those, then on the third,
/// and who waits on the other side. A waiter hears of nothing until they go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_two_members_agree_the_holder_knows_first_on_either_side() {
    for (holders, waiters) in [(0, 2), (2, 0)] {
        let mut etcd = three();
        let only = |at: usize| format!("etcd://{}", etcd.address(at));
        let (here, there) = (connect(&only(holders)).await, connect(&only(waiters)).await);
        let holder = take(&here, "x", TTL).await;
        let token = holder.token();
        let held = holder.held();
        let next = lock(&there, "x", TTL);
        let waiter = tokio::spawn(async move {
            let next = next.acquire().await;
            (next, held.is_held())
        });
        queued(&there, "x", 1).await;
        etcd.member(0).freeze().unwrap();
        etcd.member(1).freeze().unwrap();
        let lost = tokio::time::timeout(TTL + SLACK, holder.lost()).await;
        assert_eq!(lost.unwrap(), LossReason::Unreachable);
        tokio::time::sleep(TTL / 2).await;
        assert!(!waiter.is_finished(), "granted by a minority");
        etcd.member(0).thaw().unwrap();
        etcd.member(1).thaw().unwrap();
        let (next, believed) = tokio::time::timeout(TTL * 4 + SLACK, waiter)
            .await
            .unwrap()
            .unwrap();
        let next = next.unwrap();
        assert!(!believed && !holder.is_held(), "two holders");
        assert!(next.token() > token);
        assert_eq!(next.release().await.unwrap(), Release::Freed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cut_off_from_one_member_turns_to_another() {
    let etcd = three();
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let url = format!(
        "etcd://{},{},{}",
        proxy.address(),
        etcd.address(1),
        etcd.address(2)
    );
    let client = connect(&url).await;
    let holder = take(&client, "x", TTL).await;
    for direction in Direction::BOTH {
        proxy.freeze(direction);
    }
    tokio::time::sleep(TTL * 2).await;
    assert!(holder.is_held());
    // Grants and releases have a connection of their own, which finds it out by itself.
    take(&client, "y", TTL).await.release().await.unwrap();
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_is_uncertain_at_once_and_lost_at_its_deadline() {
    let etcd = single();
    let mut proxy = Proxy::start(etcd.address(0)).unwrap();
    let client = connect(&format!("etcd://{}", proxy.address())).await;
    let ttl = Duration::from_secs(16);
    let holder = take(&client, "x", ttl).await;
    tokio::time::sleep(ms(300)).await;
    proxy.refuse();
    let told = until(SLACK, async || holder.state() == HoldState::Uncertain).await;
    assert!(
        told < ms(3000),
        "told after {told:?}: by a renewal, not by the connection"
    );
    let lost = tokio::time::timeout(ttl + SLACK, holder.lost()).await;
    assert_eq!(lost.unwrap(), LossReason::Unreachable);
    let direct = connect(&etcd.url()).await;
    let next = lock(&direct, "x", ttl).acquire_within(SLACK).await.unwrap();
    next.expect("free within two seconds")
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_counts_from_its_send_and_not_from_its_answer() {
    let etcd = single();
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let client = connect(&format!("etcd://{}", proxy.address())).await;
    let ttl = Duration::from_secs(20);
    let holder = take(&client, "x", ttl).await;
    let delay = ms(600);
    proxy.delay(Direction::ToClient, delay);
    holder.extend(ttl).await.unwrap();
    // Three answers came after the send.
    let most = ttl.mul_f64(0.99) - delay * 3;
    assert!(holder.remaining() <= most, "{holder:?}");
    proxy.delay(Direction::ToClient, Duration::ZERO);
    holder.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_nobody_renews_ends_in_time_though_its_lease_goes_on() {
    let etcd = single();
    let client = connect(&etcd.url()).await;
    let other = connect(&etcd.url()).await;
    let renewed = take(&client, "renewed", TTL).await;
    let lock = lock(&client, "left", TTL).renew(false);
    let left = lock.try_acquire().await.unwrap().unwrap();
    let taken = clock::now();
    // Its guard stays, and nobody releases it.
    let next = common::lock(&other, "left", TTL)
        .acquire_within(TTL * 3)
        .await;
    let next = next.unwrap().expect("free after its TTL");
    assert!(since(taken) < TTL + Duration::from_secs(2) + SLACK);
    assert!(!left.is_held() && renewed.is_held());
    assert!(next.token() > left.token());
    assert_eq!(left.release().await.unwrap(), Release::Another);
    assert!(next.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_session_is_told_and_what_comes_after_has_a_new_one() {
    let etcd = single();
    let client = connect(&etcd.url()).await;
    let held = take(&client, "x", TTL).await;
    let lease = common::keys(&etcd)
        .iter()
        .find_map(|key| key.strip_prefix("x/").map(str::to_owned))
        .unwrap();
    ctl(&etcd, &["lease", "revoke", &lease]);
    let reason = tokio::time::timeout(TTL, held.lost()).await.unwrap();
    assert_eq!(reason, LossReason::SessionLost);
    let again = take(&client, "x", TTL).await;
    assert!(again.token() > held.token());
    assert!(
        !common::keys(&etcd).contains(&format!("x/{lease}")),
        "adopted from the old one"
    );
    tokio::time::sleep(TTL).await;
    assert!(again.is_held());
    again.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiters_session_that_ends_is_no_grant() {
    let etcd = single();
    let (one, two) = (connect(&etcd.url()).await, connect(&etcd.url()).await);
    let holder = take(&one, "x", LONG).await;
    let waiting = lock(&two, "x", TTL);
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    queued(&one, "x", 1).await;
    let place = common::keys(&etcd)
        .into_iter()
        .filter(|key| key.starts_with("x/"));
    for key in place {
        let of_holder =
            leasehold_etcd::IsOwner::of(&holder).is_some_and(|owner| owner.key() == key);
        if !of_holder {
            ctl(&etcd, &["lease", "revoke", key.trim_start_matches("x/")]);
        }
    }
    // It comes back at the end of the queue.
    queued(&one, "x", 1).await;
    assert!(!waiter.is_finished());
    holder.release().await.unwrap();
    let next = tokio::time::timeout(SLACK, waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    until(TTL, async || next.state() == HoldState::Held).await;
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_hears_of_its_turn_after_compactions_and_broken_watches() {
    let etcd = single();
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let direct = connect(&etcd.url()).await;
    let client = connect(&format!("etcd://{}", proxy.address())).await;
    for round in 0..4 {
        let holder = take(&direct, "x", LONG).await;
        let waiting = lock(&client, "x", LONG);
        let waiter = tokio::spawn(async move { waiting.acquire().await });
        queued(&direct, "x", 1).await;
        if round % 2 == 1 {
            proxy.cut();
        }
        let revision = holder.token().to_string();
        ctl(&etcd, &["compaction", &revision]);
        if round > 1 {
            tokio::time::sleep(ms(200)).await;
        }
        holder.release().await.unwrap();
        let next = tokio::time::timeout(SLACK, waiter).await.unwrap();
        next.unwrap().unwrap().release().await.unwrap();
    }
}

/// A snapshot restored as a new cluster, whose revision may have gone back, is noticed by whom knew the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_cluster_is_an_error_and_with_a_bump_tokens_go_on_rising() {
    for bump in [false, true] {
        let mut etcd = single();
        let client = connect(&etcd.url()).await;
        take(&client, "x", TTL).await.release().await.unwrap();
        let snapshot = etcd.member(0).folder().join("snapshot");
        ctl(&etcd, &["snapshot", "save", snapshot.to_str().unwrap()]);
        let mut last = None;
        for _ in 0..20 {
            let guard = take(&client, "x", TTL).await;
            last = Some(guard.token());
            guard.release().await.unwrap();
        }
        let holder = take(&client, "held", TTL).await;
        etcd.member(0).stop().unwrap();
        let args = ["--bump-revision", "1000000", "--mark-compacted"];
        etcd.restore(&snapshot, if bump { &args } else { &[] })
            .unwrap();
        etcd.start_again(0).unwrap();
        let refused = lock(&client, "x", TTL).try_acquire().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        assert!(
            refused.to_string().contains("another cluster answers"),
            "{refused}"
        );
        let lost = tokio::time::timeout(TTL + SLACK, holder.lost()).await;
        assert!(lost.is_ok(), "a hold of the old cluster went on");

        let after = connect(&etcd.url()).await;
        // The refused try may have left a place there: its client is still open, and lets its lease end.
        let taken = lock(&after, "x", TTL).acquire_within(TTL * 2 + SLACK).await;
        let guard = taken.unwrap().expect("x is never free again");
        assert_eq!(
            Some(guard.token()) > last,
            bump,
            "{:?} after {last:?}",
            guard.token()
        );
        guard.release().await.unwrap();
        client.close().await;
    }
}

//! Members that die, freeze and are cut off; never two holders.

use std::time::Duration;

use crate::common::*;
use leasehold::{ErrorKind, HoldState, LossReason, Release};
use leasehold_testkit::clusters;
use leasehold_testkit::servers::{Direction, Etcd, EtcdEdition, Proxy};

const TTL: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_no_lock() {
    for edition in EtcdEdition::ALL {
        let mut etcd = Etcd::start(edition, 3).unwrap();
        clusters::killed_leader_costs_no_lock(&mut etcd, TTL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_frozen_for_less_than_the_ttl_costs_no_lock() {
    // Another one leads after a second or two.
    clusters::frozen_leader_costs_no_lock(&mut three(), TTL, TTL / 2).await;
}

/// It may end leases that another one has kept alive since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_frozen_for_longer_costs_a_hold_at_most_and_its_holder_is_told() {
    clusters::frozen_leader_costs_a_hold_at_most(&mut three(), TTL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_restarted_one_after_the_other_cost_no_lock() {
    clusters::restarted_members_cost_no_lock(&mut three(), TTL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_on_a_frozen_old_leader_knows_first_and_stays_lost() {
    for edition in EtcdEdition::ALL {
        let mut etcd = Etcd::start(edition, 3).unwrap();
        let next = clusters::holder_on_a_frozen_old_leader_knows_first(&mut etcd, TTL).await;
        // An old leader of before 3.4.31 and 3.5.13 may end a lease that the new one keeps: its holder is told.
        let ended = HoldState::Lost(LossReason::SessionLost);
        if edition == EtcdEdition::Etcd34 && next.state() == ended {
            continue;
        }
        assert_eq!(next.release().await.unwrap(), Release::Freed, "{edition:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_two_members_agree_the_holder_knows_first_on_either_side() {
    clusters::where_no_two_members_agree_the_holder_knows_first(three, TTL).await;
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
    clusters::renewal_counts_from_its_send(&single(), 3, 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_nobody_renews_ends_in_time_though_its_lease_goes_on() {
    clusters::left_hold_ends_in_time(&single(), TTL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_session_is_told_and_what_comes_after_has_a_new_one() {
    let etcd = single();
    let client = connect(&etcd.url()).await;
    let held = take(&client, "x", TTL).await;
    let lease = crate::common::keys(&etcd)
        .iter()
        .find_map(|key| key.strip_prefix("x/").map(str::to_owned))
        .unwrap();
    ctl(&etcd, &["lease", "revoke", &lease]);
    let reason = tokio::time::timeout(TTL, held.lost()).await.unwrap();
    assert_eq!(reason, LossReason::SessionLost);
    let again = take(&client, "x", TTL).await;
    assert!(again.token() > held.token());
    assert!(
        !crate::common::keys(&etcd).contains(&format!("x/{lease}")),
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
    let place = crate::common::keys(&etcd)
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

//! Servers that die, freeze and are cut off; never two holders.

use std::time::Duration;

use crate::common::*;
use leasehold::{Client, ErrorKind, HoldState, LossReason, Release};
use leasehold_core::clock;
use leasehold_testkit::clusters::{self, Scene};
use leasehold_testkit::servers::{Consul, Direction, Proxy};

const TTL: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_no_lock() {
    clusters::killed_leader_costs_no_lock(&mut three(), TTL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_leader_costs_no_lock() {
    clusters::frozen_leader_costs_no_lock(&mut three(), TTL, TTL * 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_restarted_one_after_the_other_cost_no_lock() {
    clusters::restarted_members_cost_no_lock(&mut three(), TTL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_on_a_frozen_old_leader_knows_first_and_stays_lost() {
    let mut consul = three();
    let next = clusters::holder_on_a_frozen_old_leader_knows_first(&mut consul, TTL).await;
    assert_eq!(next.release().await.unwrap(), Release::Freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_two_servers_agree_the_holder_knows_first_on_either_side() {
    clusters::where_no_two_members_agree_the_holder_knows_first(three, TTL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cut_off_from_one_server_turns_to_another() {
    let consul = three();
    let proxy = Proxy::start(consul.address(0)).unwrap();
    let url = format!(
        "consul://{},{},{}",
        proxy.address(),
        consul.address(1),
        consul.address(2)
    );
    let scene = Scene::begin(&url, TTL).await;
    for direction in Direction::BOTH {
        proxy.freeze(direction);
    }
    tokio::time::sleep(TTL * 2).await;
    let client = connect(&url).await;
    take(&client, "y", TTL).await.release().await.unwrap();
    scene.assert_unharmed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_is_uncertain_at_once_and_lost_at_its_deadline() {
    let consul = single();
    let mut proxy = Proxy::start(consul.address(0)).unwrap();
    let url = format!("consul://{}?lock-delay=3s", proxy.address());
    let client = connect(&url).await;
    let ttl = Duration::from_secs(16);
    let holder = take(&client, "x", ttl).await;
    let taken = clock::now();
    tokio::time::sleep(ms(300)).await;
    proxy.refuse();
    let told = until(SLACK, async || holder.state() == HoldState::Uncertain).await;
    assert!(
        told < ms(2500),
        "told after {told:?}: by a renewal, not by the connection"
    );
    let lost = tokio::time::timeout(ttl + SLACK, holder.lost()).await;
    assert_eq!(lost.unwrap(), LossReason::Unreachable);
    let direct = connect(&consul.url()).await;
    // For the server it is dead: two TTLs and the lock-delay.
    let next = lock(&direct, "x", ttl)
        .acquire_within(ttl + ms(4000) + SLACK)
        .await;
    let next = next
        .unwrap()
        .expect("free after two TTLs and the lock-delay");
    let free = since(taken);
    assert!(
        free > ttl * 2 + ms(3000),
        "free after {free:?}: no lock-delay?"
    );
    assert!(free < ttl * 2 + ms(4000) + SLACK, "free after {free:?}");
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holders_lock_is_free_within_two_ttls_of_ten_seconds() {
    // As servers are by themselves.
    let consul = Consul::start(1).unwrap();
    let mut proxy = Proxy::start(consul.address(0)).unwrap();
    let client = connect(&format!("consul://{}", proxy.address())).await;
    let bounds = client.info().capabilities;
    let ttl = Duration::from_secs(10);
    assert_eq!(bounds.ttl_min, ttl);
    assert_eq!(bounds.ttl_max, Duration::from_secs(86_400));
    let short = lock(&client, "x", ttl - ms(1)).try_acquire().await;
    let short = short.unwrap_err();
    assert_eq!(short.kind(), ErrorKind::Invalid);
    assert!(short.to_string().contains("10s to 86400s"), "{short}");

    let _holder = take(&client, "x", ttl).await;
    proxy.refuse();
    let dead = clock::now();
    let direct = connect(&consul.url()).await;
    let next = lock(&direct, "x", ttl)
        .acquire_within(ttl * 2 + SLACK)
        .await;
    next.unwrap().expect("free").release().await.unwrap();
    assert!(
        since(dead) < ttl * 2 + ms(1000) + SLACK,
        "{:?}",
        since(dead)
    );
    // A dead holder's key stays, unlocked, until somebody has held the lock and released it.
    assert_eq!(keys(&consul), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_counts_from_its_send_and_not_from_its_answer() {
    clusters::renewal_counts_from_its_send(&single(), 3, 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_nobody_renews_ends_in_time_though_its_session_goes_on() {
    clusters::left_hold_ends_in_time(&single(), TTL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destroyed_session_is_told_at_once_and_what_comes_after_has_a_new_one() {
    let consul = single();
    let client = connect(&consul.url()).await;
    let ttl = Duration::from_secs(30);
    let held = take(&client, "x", ttl).await;
    let session = session_of(&consul, "x").unwrap();
    tokio::time::sleep(ms(300)).await;
    consul
        .call(0, "PUT", &format!("/v1/session/destroy/{session}"), "")
        .unwrap();
    // Long before a renewal is due.
    let reason = tokio::time::timeout(SLACK, held.lost()).await.unwrap();
    assert_eq!(reason, LossReason::SessionLost);
    let again = take(&client, "x", ttl).await;
    assert!(again.token() > held.token());
    assert_ne!(session_of(&consul, "x").unwrap(), session, "adopted");
    again.release().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Release::Expired);
    assert_eq!(keys(&consul), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_or_stolen_key_is_told_of_at_the_next_beat() {
    let consul = single();
    let client = connect(&consul.url()).await;
    let (deleted, stolen, kept) = (
        take(&client, "deleted", TTL).await,
        take(&client, "stolen", TTL).await,
        take(&client, "kept", TTL).await,
    );
    let call = |path: &str, body: &str| consul.call(0, "PUT", path, body).unwrap();
    consul
        .call(0, "DELETE", "/v1/kv/deleted/.lock", "")
        .unwrap();
    let session = session_of(&consul, "stolen").unwrap();
    call(&format!("/v1/kv/stolen/.lock?release={session}"), "");
    let thief = call("/v1/session/create", r#"{"TTL":"60s"}"#);
    let thief = values(&thief, "ID").pop().unwrap();
    call(&format!("/v1/kv/stolen/.lock?acquire={thief}"), "theirs");
    for lost in [&deleted, &stolen] {
        let reason = tokio::time::timeout(TTL / 2 + SLACK, lost.lost()).await;
        assert_eq!(reason.unwrap(), LossReason::Broken);
    }
    assert!(kept.is_held());
    assert_eq!(kept.release().await.unwrap(), Release::Freed);
    assert_eq!(deleted.release().await.unwrap(), Release::Expired);
    assert_eq!(stolen.release().await.unwrap(), Release::Another);
    assert_eq!(session_of(&consul, "stolen"), Some(thief));
}

/// The request waits on its way, its sender gives up, and it lands after the clean-up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_lands_late_is_undone_and_costs_no_other_hold() {
    let consul = single();
    let proxy = Proxy::start(consul.address(0)).unwrap();
    let client = connect(&format!("consul://{}", proxy.address())).await;
    let direct = connect(&consul.url()).await;
    let ttl = Duration::from_secs(40);
    let holder = take(&client, "other", ttl).await;
    let session = session_of(&consul, "other").unwrap();
    let lost = {
        let lock = lock(&client, "late", ttl);
        proxy.freeze(Direction::ToServer);
        lock.try_acquire().await.unwrap_err()
    };
    assert!(lost.is_retryable(), "{lost}");
    proxy.thaw(Direction::ToServer);
    // Whether it landed or not: nobody holds it, and nobody does later.
    until(SLACK, async || take_and_give(&direct, "late", ttl).await).await;
    tokio::time::sleep(ms(3000)).await;
    assert_eq!(direct.inspect("late").await.unwrap().holder, None);
    assert!(holder.is_held());
    assert_eq!(session_of(&consul, "other"), Some(session.clone()));
    // What comes after has another session; that one is ended when nobody holds by it any more.
    let next = take(&client, "next", ttl).await;
    assert_ne!(session_of(&consul, "next"), Some(session.clone()));
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
    until(SLACK * 3, async || !sessions(&consul).contains(&session)).await;
    assert!(next.is_held());
}

async fn take_and_give(client: &Client, name: &str, ttl: Duration) -> bool {
    match lock(client, name, ttl).try_acquire().await.unwrap() {
        Some(guard) => guard.release().await.unwrap() == Release::Freed,
        None => false,
    }
}

/// A snapshot restored into a new cluster, whose index is lower: noticed by whom knew the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fallen_token_is_an_error_for_whom_knew_a_higher_one() {
    let mut consul = single();
    let client = connect(&consul.url()).await;
    take(&client, "x", TTL).await.release().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let snapshot = folder.path().join("snapshot");
    let saved = consul
        .control(0)
        .unwrap()
        .args(["snapshot", "save"])
        .arg(&snapshot)
        .output()
        .unwrap();
    assert!(saved.status.success(), "{saved:?}");
    let mut last = None;
    for _ in 0..100 {
        let guard = take(&client, "x", TTL).await;
        last = Some(guard.token());
        guard.release().await.unwrap();
    }
    let holder = take(&client, "held", TTL).await;

    consul.member(0).stop().unwrap();
    consul.forget(0).unwrap();
    consul.start_again(0).unwrap();
    consul.restore(&snapshot).unwrap();
    let refused = loop {
        // Until the new leader has read what it was given.
        match lock(&client, "x", TTL).try_acquire().await {
            Err(error) if error.is_retryable() => tokio::time::sleep(ms(200)).await,
            Err(error) => break error,
            Ok(taken) => panic!("not noticed: {taken:?} after {last:?}"),
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("gone back"), "{refused}");
    let lost = tokio::time::timeout(TTL + SLACK, holder.lost()).await;
    assert!(lost.is_ok(), "a hold of the old cluster went on");
    // Who begins anew gets lower tokens than there were: the README says so.
    let after = connect(&consul.url()).await;
    let guard = take(&after, "x", TTL).await;
    assert!(Some(guard.token()) < last);
    guard.release().await.unwrap();
}

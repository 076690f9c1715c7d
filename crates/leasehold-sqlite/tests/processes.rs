//! Several processes on one file: what the kernel does to some of them, and what the others see.

mod common;

use std::time::Duration;

use common::{Agent, LONG, Place, contend, granted, now, until};
use leasehold_core::backend::Attempt;
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn agent() {
    common::agent();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_process_frees_its_holds_at_once() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut agent = Agent::start(&place);
    let before = agent.acquire("a", LONG);
    let mut contender = contend(&backend, "a", LONG, false).await;
    common::busy(&mut contender).await;
    agent.kill();
    let grant = granted(&mut contender).await;
    assert!(grant.token.get() > before);
    // Its file is gone with it.
    assert_eq!(place.live_files(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_process_wakes_who_waits_for_it() {
    let place = Place::new();
    let client = place.client().await;
    for _ in 0..5 {
        let mut agent = Agent::start(&place);
        agent.acquire("a", LONG);
        let lock = client.lock("a").unwrap();
        let waiter = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            (guard, now())
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let killed = now();
        agent.kill();
        let (guard, woken) = waiter.await.unwrap();
        let took = Duration::from_nanos(woken - killed);
        println!("death to grant: {took:?}");
        assert!(took < Duration::from_millis(700), "{took:?}");
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inherited_descriptor_keeps_the_hold_after_its_process() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut agent = Agent::start(&place);
    agent.acquire("a", LONG);
    let child = agent.ask("inherit 60");
    let child: i32 = child.split(' ').nth(1).unwrap().parse().unwrap();
    agent.kill();
    let mut contender = contend(&backend, "a", LONG, false).await;
    for _ in 0..20 {
        common::busy(&mut contender).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    until(Duration::from_secs(5), async || {
        matches!(contender.try_acquire().await.unwrap(), Attempt::Granted(_))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_liveness_file_waits_for_the_ttl() {
    let place = Place::new();
    let backend = place.backend().await;
    let ttl = Duration::from_secs(2);
    let mut agent = Agent::start(&place);
    let own: Vec<_> = std::fs::read_dir(place.live()).unwrap().collect();
    assert_eq!(own.len(), 2);
    agent.acquire("a", ttl);
    let live = place.sql("SELECT live FROM locks").unwrap();
    std::fs::remove_file(place.live().join(live)).unwrap();
    let killed = now();
    agent.kill();
    let mut contender = contend(&backend, "a", LONG, false).await;
    for _ in 0..5 {
        common::busy(&mut contender).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until(ttl + Duration::from_secs(2), async || {
        matches!(contender.try_acquire().await.unwrap(), Attempt::Granted(_))
    })
    .await;
    assert!(Duration::from_nanos(now() - killed) > ttl / 2);
}

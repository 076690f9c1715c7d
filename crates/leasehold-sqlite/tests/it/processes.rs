//! Several processes on one file: what the kernel does to some of them, and what the others see.

use std::time::Duration;

use crate::common::{Agent, LONG, Place, contend, granted, now, until};
use leasehold_core::backend::Attempt;
use rustix::process::{Pid, Signal, kill_process};

#[tokio::test(flavor = "multi_thread")]
async fn killed_process_frees_its_holds_at_once() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut agent = Agent::start(&place);
    let before = agent.acquire("a", LONG);
    let mut contender = contend(&backend, "a", LONG, false).await;
    crate::common::busy(&mut contender).await;
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
        crate::common::busy(&mut contender).await;
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
        crate::common::busy(&mut contender).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until(ttl + Duration::from_secs(2), async || {
        matches!(contender.try_acquire().await.unwrap(), Attempt::Granted(_))
    })
    .await;
    assert!(Duration::from_nanos(now() - killed) > ttl / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_first_waiter_is_passed_over_and_waits_on() {
    let place = Place::new();
    let client = place.client().await;
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    let mut frozen = Agent::start(&place);
    frozen.say("acquire a 60000");
    until(Duration::from_secs(5), async || {
        client.inspect("a").await.unwrap().waiters.len() == 1
    })
    .await;
    frozen.freeze();
    guard.release().await.unwrap();
    let begun = now();
    let next = client.lock("a").unwrap().acquire().await.unwrap();
    let took = Duration::from_nanos(now() - begun);
    println!("passed over after {took:?}");
    assert!(took > Duration::from_millis(300), "{took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    // It lost its place, and comes back for another.
    assert!(client.inspect("a").await.unwrap().waiters.is_empty());
    frozen.thaw();
    tokio::time::sleep(Duration::from_millis(300)).await;
    next.release().await.unwrap();
    let released = now();
    assert!(frozen.hear().starts_with("granted a "));
    let took = Duration::from_nanos(now() - released);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_probers_of_a_dead_holder_one_gets_the_lock() {
    let place = Place::new();
    let backends = [place.backend().await, place.backend().await];
    for _ in 0..20 {
        let mut agent = Agent::start(&place);
        agent.acquire("a", LONG);
        agent.kill();
        let mut tries = tokio::task::JoinSet::new();
        for backend in &backends {
            let backend = backend.clone();
            tries.spawn(async move {
                let mut contender = contend(&backend, "a", LONG, false).await;
                let attempt = contender.try_acquire().await.unwrap();
                (contender, matches!(attempt, Attempt::Granted(_)))
            });
        }
        let mut grants = 0;
        for (mut contender, granted) in tries.join_all().await {
            if granted {
                grants += 1;
                contender.release(Duration::ZERO).await.unwrap();
            }
        }
        // Both, where the first had released by the time the second asked.
        assert_ne!(grants, 0);
        assert_eq!(place.live_files(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_process_lets_go_of_all_it_held_and_waited_for() {
    let place = Place::new();
    let client = place.client().await;
    let mut holder = Agent::start(&place);
    for name in ["a", "b", "c"] {
        holder.acquire(name, LONG);
    }
    let guard = client.lock("d").unwrap().acquire().await.unwrap();
    holder.say("acquire d 60000");
    until(Duration::from_secs(5), async || {
        client.inspect("d").await.unwrap().waiters.len() == 1
    })
    .await;
    let mut next = Agent::start(&place);
    for name in ["a", "b", "c", "d"] {
        next.say(&format!("acquire {name} 60000"));
    }
    until(Duration::from_secs(5), async || {
        client.inspect("d").await.unwrap().waiters.len() == 2
    })
    .await;
    holder.kill();
    for _ in 0..3 {
        assert!(next.hear().starts_with("granted "));
    }
    // The dead one came first in the queue.
    guard.release().await.unwrap();
    let released = now();
    assert!(next.hear().starts_with("granted d "));
    let took = Duration::from_nanos(now() - released);
    assert!(took < Duration::from_millis(450), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_first_waiter_costs_the_second_nothing() {
    let place = Place::new();
    let client = place.client().await;
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    let mut agents = Vec::new();
    for waiting in 1..=2 {
        let mut agent = Agent::start(&place);
        agent.say("acquire a 60000");
        until(Duration::from_secs(5), async || {
            client.inspect("a").await.unwrap().waiters.len() == waiting
        })
        .await;
        agents.push(agent);
    }
    agents.remove(0).kill();
    let released = now();
    guard.release().await.unwrap();
    let answer = agents[0].hear();
    let granted: u64 = answer.split(' ').nth(3).unwrap().parse().unwrap();
    let took = Duration::from_nanos(granted - released);
    // Less than what a living one would have had the lock to itself for.
    assert!(took < Duration::from_millis(450), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_waiters_in_three_processes_are_served_in_order() {
    let place = Place::new();
    let client = place.client().await;
    let mut agents = [
        Agent::start(&place),
        Agent::start(&place),
        Agent::start(&place),
    ];
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    for waiting in 0..8 {
        agents[waiting % 3].say("acquire a 60000");
        until(Duration::from_secs(5), async || {
            client.inspect("a").await.unwrap().waiters.len() == waiting + 1
        })
        .await;
    }
    guard.release().await.unwrap();
    let released = now();
    let mut last = 0;
    for turn in 0..8 {
        let answer = agents[turn % 3].hear();
        let words: Vec<&str> = answer.split(' ').collect();
        assert_eq!(words[..2], ["granted", "a"], "turn {turn}");
        let token: u64 = words[2].parse().unwrap();
        assert!(last == 0 || token == last + 1, "{token} after {last}");
        last = token;
        assert!(
            agents[turn % 3]
                .ask("release a")
                .starts_with("released freed")
        );
    }
    // Each was woken by the one before it. Who is not, looks within a second.
    let took = Duration::from_nanos(now() - released);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_is_noticed_in_another_process_without_polling() {
    let place = Place::new();
    let client = place.client().await;
    let mut agent = Agent::start(&place);
    let mut took = Vec::new();
    for _ in 0..20 {
        let guard = client.lock("a").unwrap().acquire().await.unwrap();
        agent.say("acquire a 60000");
        until(Duration::from_secs(5), async || {
            client.inspect("a").await.unwrap().waiters.len() == 1
        })
        .await;
        let released = now();
        guard.release().await.unwrap();
        let answer = agent.hear();
        let granted: u64 = answer.split(' ').nth(3).unwrap().parse().unwrap();
        took.push(Duration::from_nanos(granted - released));
        agent.ask("release a");
    }
    took.sort();
    println!(
        "release to grant: median {:?}, most {:?}",
        took[10], took[19]
    );
    assert!(took[10] < Duration::from_millis(500), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_holder_in_another_process_is_told_before_its_renewal() {
    let place = Place::new();
    let client = place.client().await;
    // Before it listens, and while it does.
    for pause in [0, 500] {
        let mut agent = Agent::start(&place);
        agent.acquire("a", LONG);
        agent.say("lost a");
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let broken = now();
        client.break_hold("a", None).await.unwrap();
        let answer = agent.hear();
        assert!(answer.starts_with("lost broken "), "{answer}");
        let told: u64 = answer.split(' ').nth(2).unwrap().parse().unwrap();
        let took = Duration::from_nanos(told - broken);
        println!("break to loss: {took:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

/// A command that ends before doesn't wait for the kernel to close it.
#[tokio::test(flavor = "multi_thread")]
async fn short_hold_needs_no_inotify_instance() {
    let place = Place::new();
    let mut agent = Agent::start(&place);
    let before = now();
    agent.acquire("a", LONG);
    until(Duration::from_secs(5), async || agent.listens()).await;
    let took = Duration::from_nanos(now() - before);
    assert!(took >= Duration::from_millis(50), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_survives_a_kill_in_the_middle_of_writing() {
    let place = Place::new();
    let backend = place.backend().await;
    let mut last = 0;
    for round in 0..10 {
        let mut agent = Agent::start(&place);
        agent.say("spin a");
        for _ in 0..5 + round * 3 {
            let token = agent.hear().split(' ').nth(2).unwrap().parse().unwrap();
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        agent.kill();
        let mut contender = contend(&backend, "a", LONG, true).await;
        let token = granted(&mut contender).await.token.get();
        assert!(token > last, "{token} after {last}");
        last = token;
        contender.release(Duration::ZERO).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn process_in_another_time_namespace_is_seen_alive_and_seen_dead() {
    let place = Place::new();
    let backend = place.backend().await;
    // A boot clock a day ahead: by it, our times are over, and by ours, its times never are.
    let mut agent = Agent::start_in(
        &place,
        &["--time", "--boottime", "86400", "--monotonic", "86400"],
        "true",
    );
    let mut own = contend(&backend, "ours", LONG, false).await;
    granted(&mut own).await;
    assert_eq!(agent.ask("try ours 60000"), "busy");
    agent.acquire("theirs", LONG);
    let clocks = place.sql("SELECT count(DISTINCT clock) FROM locks");
    assert_eq!(
        clocks.unwrap(),
        "2",
        "the agent is in no namespace of its own"
    );
    let mut contender = contend(&backend, "theirs", LONG, false).await;
    crate::common::busy(&mut contender).await;
    let seen = backend
        .inspect(&crate::common::name("theirs"))
        .await
        .unwrap();
    assert!(seen.holder.is_some());
    agent.kill();
    until(Duration::from_secs(5), async || {
        matches!(contender.try_acquire().await.unwrap(), Attempt::Granted(_))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_without_inotify_notices_a_release_all_the_same() {
    let place = Place::new();
    let client = place.client().await;
    // In a user namespace of its own that may have none.
    let mut agent = Agent::start_in(&place, &[], "echo 0 > /proc/sys/user/max_inotify_instances");
    let mut took = Vec::new();
    for _ in 0..10 {
        let guard = client.lock("a").unwrap().acquire().await.unwrap();
        agent.say("acquire a 60000");
        until(Duration::from_secs(5), async || {
            client.inspect("a").await.unwrap().waiters.len() == 1
        })
        .await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        let released = now();
        guard.release().await.unwrap();
        let answer = agent.hear();
        let granted: u64 = answer.split(' ').nth(3).unwrap().parse().unwrap();
        took.push(Duration::from_nanos(granted - released));
        agent.ask("release a");
    }
    took.sort();
    println!("without inotify: median {:?}, most {:?}", took[5], took[9]);
    assert!(took[5] < Duration::from_millis(300), "{took:?}");
}

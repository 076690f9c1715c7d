//! Waiting: who is told, who may take, and what a lost message costs.

use super::super::exchange::{Event, Outcome, Request};
use super::super::hold::Step;
use super::cluster::{Client, Cluster, TTL, ms, nodes};

fn busy(cluster: &Cluster, client: &mut Client) -> (Option<u32>, std::time::Duration) {
    match cluster.try_once(client) {
        Outcome::Busy {
            place, retry_in, ..
        } => (place, retry_in),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hand_over_takes_four_requests_a_node_and_is_in_order() {
    let cluster = Cluster::new(5);
    let mut waiters: Vec<Client> = (0..20).map(|_| cluster.client(true)).collect();
    for (place, waiter) in waiters.iter_mut().enumerate() {
        match cluster.try_once(waiter) {
            Outcome::Granted { .. } => assert_eq!(place, 0),
            Outcome::Busy { place: seen, .. } => assert_eq!(seen, Some(place as u32 - 1)),
            other => panic!("{other:?}"),
        }
    }
    for at in 1..waiters.len() {
        cluster.release(&waiters[at - 1]);
        let mut all: Vec<&mut Client> = waiters.iter_mut().collect();
        let told = cluster.tell(&mut all);
        let next = all[at].owner();
        assert!(
            told.iter().all(|(_, owner)| *owner == next),
            "others were told"
        );
        for (place, waiter) in all.iter_mut().enumerate() {
            assert_eq!(waiter.attempt.is_told(), place == at);
        }
        let waiter = &mut waiters[at];
        assert!(matches!(cluster.try_once(waiter), Outcome::Granted { .. }));
        // To wait, to take, to write; the release is the fourth.
        assert_eq!(waiter.requests, 3 * 5);
        assert_eq!(cluster.holds(waiter).len(), 5);
    }
}

#[test]
fn a_newcomer_takes_no_node_while_others_wait() {
    let cluster = Cluster::new(5);
    let mut holder = cluster.client(false);
    cluster.try_once(&mut holder);
    let mut waiter = cluster.client(true);
    busy(&cluster, &mut waiter);
    cluster.release(&holder);
    let mut newcomer = cluster.client(false);
    assert!(matches!(
        cluster.try_once(&mut newcomer),
        Outcome::Busy { holder: None, .. }
    ));
    assert!(newcomer.attempt.held().is_empty());
    // Neither does a waiter whose turn it isn't, and it says so without having taken anything.
    let mut second = cluster.client(true);
    let (place, _) = busy(&cluster, &mut second);
    assert_eq!(place, Some(1));
    cluster.tell(&mut [&mut waiter]);
    assert!(matches!(
        cluster.try_once(&mut waiter),
        Outcome::Granted { .. }
    ));
}

#[test]
fn messages_of_a_minority_or_of_different_releases_are_no_turn() {
    let cluster = Cluster::new(5);
    let mut holder = cluster.client(false);
    cluster.try_once(&mut holder);
    let mut waiter = cluster.client(true);
    busy(&cluster, &mut waiter);
    for (node, by) in [(0, 7), (1, 7), (1, 7), (2, 8), (3, 8)] {
        waiter.handle(Event::Told { node, by }, cluster.now());
        assert!(!waiter.attempt.is_told());
    }
    waiter.handle(Event::Told { node: 4, by: 8 }, cluster.now());
    assert!(waiter.attempt.is_told());
    // Used up, also by what comes later of the same release.
    busy(&cluster, &mut waiter);
    for node in 0..3 {
        waiter.handle(Event::Told { node, by: 8 }, cluster.now());
    }
    assert!(!waiter.attempt.is_told());
}

#[test]
fn queues_in_different_orders_are_settled_by_the_releaser() {
    let cluster = Cluster::new(3);
    let mut holder = cluster.client(false);
    cluster.try_once(&mut holder);
    let mut waiters = [
        cluster.client(true),
        cluster.client(true),
        cluster.client(true),
    ];
    for waiter in &mut waiters {
        cluster.begin(waiter);
    }
    for (first, node) in [(0, 0), (1, 1), (2, 2)] {
        cluster.deliver(&mut waiters[first], node);
    }
    for waiter in &mut waiters {
        cluster.settle(waiter);
    }
    let (_, rest, _) = cluster.leave_on(&holder, nodes(0..3));
    let mut all: Vec<&mut Client> = waiters.iter_mut().collect();
    cluster.tell(&mut all);
    assert!(all.iter().all(|waiter| !waiter.attempt.is_told()));
    let [Step::Call { node: 0, waiter }] = &rest[..] else {
        panic!("{rest:?}");
    };
    assert_eq!(waiter.owner, waiters[0].owner().to_hex());
    waiters[0].handle(Event::Called, cluster.now());
    assert!(waiters[0].attempt.is_told());
    assert!(matches!(
        cluster.try_once(&mut waiters[0]),
        Outcome::Granted { .. }
    ));
    assert_eq!(cluster.holds(&waiters[0]).len(), 3);
}

#[test]
fn told_while_it_asks_for_a_place_it_takes_at_once() {
    let mut cluster = Cluster::new(5);
    let mut holder = cluster.client(false);
    cluster.try_once(&mut holder);
    let mut waiter = cluster.client(true);
    let (_, retry_in) = busy(&cluster, &mut waiter);
    cluster.pass(retry_in);
    cluster.begin(&mut waiter);
    // One node is frozen: its answer isn't waited for.
    cluster.settle_on(&mut waiter, nodes(0..4));
    assert_eq!(waiter.outcome, None);
    cluster.release(&holder);
    cluster.tell(&mut [&mut waiter]);
    cluster.settle_on(&mut waiter, nodes(0..4));
    assert!(waiter.token() > 0);
}

#[test]
fn a_lost_message_costs_a_third_of_the_time_a_waiter_counts_as_alive() {
    let mut cluster = Cluster::new(3);
    let mut holder = cluster.client(false);
    cluster.try_once(&mut holder);
    let mut waiter = cluster.client(true);
    let (_, retry_in) = busy(&cluster, &mut waiter);
    assert_eq!(retry_in, TTL / 3);
    cluster.release(&holder);
    cluster.pass(retry_in);
    assert!(matches!(
        cluster.try_once(&mut waiter),
        Outcome::Granted { .. }
    ));
}

#[test]
fn a_dead_first_waiter_is_passed_over() {
    let mut cluster = Cluster::new(3);
    let mut holder = cluster.client(false);
    cluster.try_once(&mut holder);
    let (mut dead, mut next) = (cluster.client(true), cluster.client(true));
    busy(&cluster, &mut dead);
    let (_, retry_in) = busy(&cluster, &mut next);
    cluster.release(&holder);
    // The message went to the dead one. The next looks, sees that it is free, and waits for the first.
    cluster.pass(retry_in);
    let (place, retry_in) = busy(&cluster, &mut next);
    assert_eq!((place, retry_in), (Some(1), ms(20)));
    cluster.pass(retry_in);
    assert!(matches!(
        cluster.try_once(&mut next),
        Outcome::Granted { .. }
    ));
}

#[test]
fn a_dead_holder_is_followed_in_order() {
    let mut cluster = Cluster::new(3);
    let mut dead = cluster.client(false);
    cluster.try_once(&mut dead);
    let mut waiters = [
        cluster.client(true),
        cluster.client(true),
        cluster.client(true),
    ];
    for waiter in &mut waiters {
        busy(&cluster, waiter);
    }
    for _ in 0..2 {
        cluster.pass(ms(3300));
        for waiter in &mut waiters {
            busy(&cluster, waiter);
        }
    }
    cluster.pass(ms(3390));
    for (at, waiter) in waiters.iter_mut().enumerate() {
        let (_, retry_in) = busy(&cluster, waiter);
        assert_eq!(retry_in, ms(10 + 1 + 20 * at as u64));
    }
    cluster.pass(ms(11));
    assert!(matches!(
        cluster.try_once(&mut waiters[0]),
        Outcome::Granted { .. }
    ));
    cluster.pass(ms(20));
    busy(&cluster, &mut waiters[1]);
}

#[test]
fn the_first_waiter_alone_polls_a_holder_of_another_make() {
    let mut cluster = Cluster::new(3);
    for node in 0..3 {
        cluster.command(node, &["SET", "a", "foreign", "PX", "60000"]);
    }
    let (mut first, mut second) = (cluster.client(true), cluster.client(true));
    assert_eq!(busy(&cluster, &mut first).1, ms(100));
    assert_eq!(busy(&cluster, &mut second).1, TTL / 3);
    for node in 0..3 {
        cluster.command(node, &["DEL", "a"]);
    }
    cluster.pass(ms(100));
    assert!(matches!(
        cluster.try_once(&mut first),
        Outcome::Granted { .. }
    ));
}

#[test]
fn a_waiter_with_a_part_of_a_split_vote_gives_it_back_and_keeps_its_place() {
    let cluster = Cluster::new(3);
    cluster.command(1, &["SET", "a", "x", "PX", "60000"]);
    cluster.command(2, &["SET", "a", "x", "PX", "60000"]);
    let mut waiter = cluster.client(true);
    busy(&cluster, &mut waiter);
    assert!(cluster.holds(&waiter).is_empty());
    // It waits there too, so that a newcomer doesn't take that node.
    let mut newcomer = cluster.client(false);
    cluster.try_once(&mut newcomer);
    assert!(cluster.holds(&newcomer).is_empty());
}

#[test]
fn the_next_tries_of_one_attempt_keep_its_owner_and_nothing_of_the_last() {
    let cluster = Cluster::new(3);
    let mut client = cluster.client(true);
    cluster.begin(&mut client);
    // One grants, and two can't be reached: no majority. What it has is given back, but that is late.
    client.fail(1, cluster.now());
    client.fail(2, cluster.now());
    cluster.deliver(&mut client, 0);
    assert!(matches!(client.outcome, Some(Outcome::NoMajority { .. })));
    let stay = client.outbox.iter().find(|(node, _)| *node == 0);
    let (_, stay) = *stay.expect("nothing gives it back");
    assert!(matches!(stay, Request::Stay { .. }));
    client.outbox.clear();
    assert!(matches!(
        cluster.try_once(&mut client),
        Outcome::Granted { .. }
    ));
    // Now it arrives: the hold stays whole.
    cluster.serve(&client, 0, stay);
    assert_eq!(cluster.holds(&client), nodes(0..3));
}

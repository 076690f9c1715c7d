//! Taking: split votes, late and missing answers, clients that stop.

use std::time::Duration;

use super::super::exchange::{Event, Outcome, Request};
use super::cluster::{Cluster, TTL, ms, nodes};

#[test]
fn a_free_lock_takes_two_requests_a_node_and_a_busy_one_is_busy() {
    let cluster = Cluster::new(5);
    let mut one = cluster.client(false);
    assert!(matches!(
        cluster.try_once(&mut one),
        Outcome::Granted { .. }
    ));
    assert_eq!(cluster.holds(&one).len(), 5);
    // Nodes that granted late were written to as well, unless it was decided.
    assert!(one.requests <= 10, "{}", one.requests);
    let mut two = cluster.client(false);
    assert!(matches!(cluster.try_once(&mut two), Outcome::Busy { .. }));
    assert!(two.attempt.held().is_empty() && two.attempt.loose().is_empty());
}

#[test]
fn tokens_rise_over_majorities_that_share_one_node() {
    let cluster = Cluster::new(5);
    let mut last = 0;
    for counted in [nodes([0, 1, 2]), nodes([2, 3, 4]), nodes([4, 0, 1])] {
        let mut client = cluster.client(false);
        cluster.begin_on(&mut client, counted);
        cluster.settle(&mut client);
        assert!(client.token() > last, "{} after {last}", client.token());
        last = client.token();
        cluster.release(&client);
    }
}

#[test]
fn split_vote_is_won_by_who_has_most() {
    let cluster = Cluster::new(5);
    let mut clients = [
        cluster.client(false),
        cluster.client(false),
        cluster.client(false),
    ];
    for client in &mut clients {
        cluster.begin(client);
    }
    let [one, two, three] = &mut clients;
    cluster.settle_on(one, nodes([0]));
    cluster.settle_on(two, nodes([1, 2]));
    cluster.settle_on(three, nodes([3, 4]));
    for client in [&mut *one, &mut *two, &mut *three] {
        cluster.settle(client);
    }
    // As many as the third, and the first of them.
    assert!(two.pause.is_some() && two.outcome.is_none());
    for loser in [&mut *one, &mut *three] {
        assert!(
            matches!(loser.outcome, Some(Outcome::Busy { .. })),
            "{:?}",
            loser.outcome
        );
        cluster.release(loser);
    }
    two.resume(cluster.now());
    cluster.settle(two);
    assert!(two.token() > 0);
    assert_eq!(cluster.holds(two).len(), 5);
}

#[test]
fn a_winner_of_a_split_vote_whose_rivals_never_let_go_gives_up() {
    let cluster = Cluster::new(3);
    cluster.command(1, &["SET", "a", "x", "PX", "60000"]);
    cluster.command(2, &["SET", "a", "y", "PX", "60000"]);
    let mut client = cluster.client(false);
    cluster.begin(&mut client);
    cluster.settle(&mut client);
    let mut pauses = 0;
    while client.outcome.is_none() {
        client.resume(cluster.now());
        cluster.settle(&mut client);
        pauses += 1;
    }
    assert_eq!(pauses, 3);
    assert!(matches!(client.outcome, Some(Outcome::Busy { .. })));
    // What it has is known, so that it is released.
    assert_eq!(client.attempt.held(), nodes([0]));
}

#[test]
fn late_grant_after_a_failed_try_is_given_back() {
    let cluster = Cluster::new(3);
    cluster.command(1, &["SET", "a", "x", "PX", "60000"]);
    cluster.command(2, &["SET", "a", "x", "PX", "60000"]);
    let mut client = cluster.client(true);
    cluster.begin(&mut client);
    cluster.settle_on(&mut client, nodes([1, 2]));
    assert!(matches!(client.outcome, Some(Outcome::Busy { .. })));
    cluster.settle(&mut client);
    assert!(cluster.holds(&client).is_empty());
}

#[test]
fn late_grant_after_the_decision_is_taken_along() {
    let cluster = Cluster::new(3);
    let mut client = cluster.client(false);
    cluster.begin(&mut client);
    cluster.settle_on(&mut client, nodes([0, 1]));
    assert!(client.token() > 0);
    assert_eq!(client.attempt.held(), nodes([0, 1]));
    cluster.settle(&mut client);
    assert_eq!(client.attempt.held(), nodes([0, 1, 2]));
}

#[test]
fn unanswered_try_that_lands_after_the_release_takes_nothing() {
    let cluster = Cluster::new(3);
    let mut client = cluster.client(false);
    cluster.begin(&mut client);
    let late = client.fail(2, cluster.now());
    cluster.settle(&mut client);
    assert!(client.token() > 0);
    assert_eq!(client.attempt.loose(), nodes([2]));
    cluster.release(&client);
    cluster.serve(&client, 2, late);
    assert_eq!(cluster.holder(2), None);
}

#[test]
fn a_request_that_was_overtaken_changes_nothing() {
    let cluster = Cluster::new(3);
    let mut other = cluster.client(false);
    cluster.try_once(&mut other);
    let mut client = cluster.client(true);
    cluster.begin(&mut client);
    let late = client.fail(0, cluster.now());
    cluster.settle(&mut client);
    cluster.settle(&mut client);
    assert!(matches!(client.outcome, Some(Outcome::Busy { .. })));
    // Told by nobody, it looks again; that arrives first.
    cluster.begin(&mut client);
    cluster.settle(&mut client);
    cluster.release(&other);
    cluster.serve(&client, 0, late);
    assert_eq!(cluster.holder(0), None);
}

#[test]
fn an_answer_to_what_was_asked_before_the_last_request_counts_for_nothing() {
    let cluster = Cluster::new(3);
    let mut client = cluster.client(true);
    cluster.begin(&mut client);
    let first = client.fail(0, cluster.now());
    let granted = cluster.serve(&client, 0, first);
    client.fail(1, cluster.now());
    client.fail(2, cluster.now());
    assert!(matches!(client.outcome, Some(Outcome::NoMajority { .. })));
    // It gives back what it may have. The node does so, and another gets that node.
    cluster.settle_on(&mut client, nodes([0]));
    client.outbox.clear();
    cluster.command(0, &["SET", "a", "x", "PX", "60000"]);
    cluster.begin(&mut client);
    client.handle(granted, cluster.now());
    assert!(client.attempt.held().is_empty());
    cluster.deliver(&mut client, 1);
    assert_eq!(client.attempt.held(), nodes([1]));
    assert_eq!(client.outcome, None);
}

#[test]
fn a_client_frozen_between_the_phases_gets_nothing_when_others_were_served() {
    let mut cluster = Cluster::new(3);
    let mut frozen = cluster.client(false);
    cluster.begin(&mut frozen);
    for node in 0..3 {
        // The first question only.
        let (_, request) = frozen.outbox.pop_front().unwrap();
        let event = cluster.serve(&frozen, node, request);
        frozen.handle(event, cluster.now());
    }
    cluster.pass(TTL + ms(1));
    let mut next = cluster.client(false);
    assert!(matches!(
        cluster.try_once(&mut next),
        Outcome::Granted { .. }
    ));
    cluster.settle(&mut frozen);
    assert!(
        !matches!(frozen.outcome, Some(Outcome::Granted { .. })),
        "{:?}",
        frozen.outcome
    );
    assert_eq!(cluster.holds(&next).len(), 3);
}

#[test]
fn answers_that_come_too_late_are_no_grant() {
    let mut cluster = Cluster::new(3);
    let mut client = cluster.client(false);
    cluster.begin(&mut client);
    let answers: Vec<Event> = (0..3)
        .map(|node| {
            let (_, request) = client.outbox.pop_front().unwrap();
            cluster.serve(&client, node, request)
        })
        .collect();
    for event in answers {
        client.handle(event, cluster.now());
    }
    let written: Vec<Event> = std::mem::take(&mut client.outbox)
        .into_iter()
        .map(|(node, request)| cluster.serve(&client, node, request))
        .collect();
    // The nodes have done all; the client stood still with their answers at hand.
    cluster.pass(TTL - ms(1000));
    for event in written {
        client.handle(event, cluster.now());
    }
    assert_eq!(client.outcome, Some(Outcome::Late));
}

#[test]
fn the_lease_counts_from_the_oldest_send_of_its_majority() {
    let mut cluster = Cluster::new(3);
    cluster.command(1, &["SET", "a", "x", "PX", "100"]);
    cluster.command(2, &["SET", "a", "y", "PX", "100"]);
    let mut client = cluster.client(false);
    let first = cluster.now();
    cluster.begin(&mut client);
    cluster.settle(&mut client);
    cluster.pass(ms(200));
    client.resume(cluster.now());
    cluster.settle_on(&mut client, nodes([0, 1]));
    let Some(Outcome::Granted { since, .. }) = client.outcome else {
        panic!("{:?}", client.outcome);
    };
    assert_eq!(since, first);
}

#[test]
fn a_node_that_is_asked_again_gives_the_whole_ttl_from_then_on() {
    let mut cluster = Cluster::new(3);
    let mut client = cluster.client(false);
    cluster.begin(&mut client);
    for node in 0..3 {
        let request = client.fail(node, cluster.now());
        cluster.serve(&client, node, request);
    }
    cluster.pass(TTL / 2);
    assert!(matches!(
        cluster.try_once(&mut client),
        Outcome::Granted { since, .. } if since == cluster.now()
    ));
    cluster.pass(TTL - ms(1));
    assert_eq!(cluster.holds(&client), nodes(0..3));
}

#[test]
fn locks_that_vanish_before_the_token_is_written_are_asked_for_again() {
    let cluster = Cluster::new(3);
    let mut client = cluster.client(false);
    cluster.begin(&mut client);
    for node in 0..3 {
        let (_, request) = client.outbox.pop_front().unwrap();
        let event = cluster.serve(&client, node, request);
        client.handle(event, cluster.now());
    }
    for node in 0..3 {
        cluster.command(node, &["DEL", "a"]);
    }
    cluster.settle(&mut client);
    assert!(client.token() > 0);
    assert_eq!(cluster.holds(&client).len(), 3);
}

#[test]
fn a_duplicate_write_back_is_one_vote() {
    let cluster = Cluster::new(3);
    let mut client = cluster.client(false);
    cluster.begin(&mut client);
    for node in 0..2 {
        let (_, request) = client.outbox.pop_front().unwrap();
        let event = cluster.serve(&client, node, request);
        client.handle(event, cluster.now());
    }
    client
        .outbox
        .retain(|(_, request)| matches!(request, Request::Write { .. }));
    let (node, request) = client.outbox[0];
    let event = cluster.serve(&client, node, request);
    client.handle(event, cluster.now());
    client.handle(event, cluster.now());
    assert_eq!(client.outcome, None);
    // And the node takes it once: who asks again is told no.
    let again = cluster.serve(&client, node, request);
    assert_ne!(again, event);
}

#[test]
fn fewer_than_a_majority_is_no_busy_lock() {
    let cluster = Cluster::new(3);
    let mut client = cluster.client(false);
    cluster.begin(&mut client);
    client.fail(0, cluster.now());
    client.fail(1, cluster.now());
    cluster.settle(&mut client);
    let answered = nodes([2]);
    assert_eq!(client.outcome, Some(Outcome::NoMajority { answered }));
    assert_eq!(client.attempt.loose(), nodes([0, 1]));
}

#[test]
fn a_node_without_its_memory_gives_nothing() {
    let cluster = Cluster::new(3);
    cluster.forget(1);
    let mut client = cluster.client(false);
    assert!(matches!(
        cluster.try_once(&mut client),
        Outcome::Granted { .. }
    ));
    assert_eq!(cluster.holds(&client), nodes([0, 2]));
    cluster.release(&client);
    cluster.give_record(1);
    let mut client = cluster.client(false);
    cluster.try_once(&mut client);
    assert_eq!(cluster.holds(&client), nodes([0, 1, 2]));
}

#[test]
fn asked_again_a_granted_attempt_says_the_same_unless_its_time_is_over() {
    let mut cluster = Cluster::new(3);
    let mut client = cluster.client(false);
    let granted = cluster.try_once(&mut client);
    assert_eq!(cluster.try_once(&mut client), granted);
    cluster.pass(TTL);
    assert_eq!(cluster.try_once(&mut client), Outcome::Late);
}

#[test]
fn the_token_is_no_lower_than_the_nodes_clocks() {
    let mut cluster = Cluster::new(3);
    cluster.pass(Duration::from_secs(7));
    let mut client = cluster.client(false);
    cluster.try_once(&mut client);
    assert_eq!(client.token(), 1_700_000_007_000_000);
}

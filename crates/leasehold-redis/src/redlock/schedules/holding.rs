//! Holding and letting go: renewals and releases that reach a part of the nodes.

use leasehold_core::backend::{LossReason, Release, Renewal};

use super::super::hold::Step;
use super::cluster::{Client, Cluster, TTL, lost, ms, nodes};

fn held(count: u8) -> (Cluster, Client) {
    let cluster = Cluster::new(count);
    let mut client = cluster.client(false);
    cluster.try_once(&mut client);
    assert!(client.token() > 0);
    (cluster, client)
}

#[test]
fn a_renewal_takes_a_majority() {
    let (mut cluster, client) = held(5);
    cluster.pass(ms(3000));
    let renewed = Some(Renewal::Renewed {
        since: cluster.now(),
        ttl: TTL,
    });
    assert_eq!(cluster.renew_on(&client, nodes([1, 3, 4])), renewed);
    // A minority extends nothing, and ends nothing: it may be the network.
    assert_eq!(cluster.renew_on(&client, nodes([1, 3])), None);
    assert_eq!(cluster.renew_on(&client, nodes([])), None);
}

#[test]
fn a_renewal_of_what_is_gone_from_too_many_nodes_is_a_loss() {
    let (cluster, client) = held(5);
    for node in [0, 1] {
        cluster.command(node, &["DEL", "a"]);
    }
    assert!(matches!(
        cluster.renew_on(&client, nodes(0..5)),
        Some(Renewal::Renewed { .. })
    ));
    cluster.command(2, &["SET", "a", "x", "PX", "60000"]);
    // Two nodes can't be reached, and couldn't save it.
    assert_eq!(
        cluster.renew_on(&client, nodes([0, 1, 2])),
        lost(LossReason::Stolen)
    );
    // Nothing was made anew.
    assert_eq!(cluster.holder(0), None);
}

#[test]
fn a_node_that_took_the_lock_after_the_hold_began_saves_nothing() {
    let cluster = Cluster::new(3);
    let mut client = cluster.client(false);
    cluster.begin(&mut client);
    let late = client.fail(2, cluster.now());
    cluster.settle(&mut client);
    assert!(client.token() > 0);
    cluster.command(0, &["DEL", "a"]);
    // It lands, and nobody hears the answer: in between the lock may have been somebody else's.
    cluster.serve(&client, 2, late);
    assert_eq!(
        cluster.renew_on(&client, nodes(0..3)),
        lost(LossReason::Expired)
    );
}

#[test]
fn a_release_is_confirmed_by_a_majority_and_goes_on_where_it_had_no_answer() {
    let (cluster, client) = held(3);
    let (found, rest, leaving) = cluster.leave_on(&client, nodes([0, 2]));
    assert_eq!(found, Some(Release::Freed));
    assert!(!leaving.is_over());
    assert!(
        matches!(rest[..], [Step::Leave { node: 1, .. }]),
        "{rest:?}"
    );
}

#[test]
fn a_release_without_a_majority_is_unconfirmed() {
    let (cluster, client) = held(3);
    assert_eq!(cluster.leave_on(&client, nodes([0])).0, None);
}

#[test]
fn a_release_that_finds_what_itself_may_have_done_is_unconfirmed() {
    let (cluster, client) = held(3);
    for node in 0..3 {
        cluster.leave(&client, node, false);
    }
    let mut steps = Vec::new();
    let mut leaving = super::super::hold::Leaving::begin(
        cluster.quorum(),
        nodes([]),
        TTL,
        cluster.now(),
        &mut steps,
    );
    for node in 0..3 {
        leaving.failed(node, true, cluster.now(), &mut steps);
    }
    let decided = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::Decide(_)));
    assert!(!decided(&steps), "{steps:?}");
    for node in 0..3 {
        leaving.failed(node, true, cluster.now(), &mut steps);
    }
    assert!(steps.contains(&Step::Decide(None)), "{steps:?}");
    for node in 0..3 {
        let left = cluster.leave(&client, node, false);
        leaving.answered(node, left, &mut steps);
    }
    assert!(leaving.is_over());
    let decisions = steps.iter().filter(|step| matches!(step, Step::Decide(_)));
    assert_eq!(decisions.count(), 1);
}

#[test]
fn a_release_whose_answers_are_late_once_is_confirmed() {
    let (cluster, client) = held(3);
    let mut steps = Vec::new();
    let (quorum, now) = (cluster.quorum(), cluster.now());
    let mut leaving = super::super::hold::Leaving::begin(quorum, nodes([]), TTL, now, &mut steps);
    for node in 0..3 {
        leaving.failed(node, true, now, &mut steps);
    }
    for node in 0..2 {
        leaving.answered(node, cluster.leave(&client, node, false), &mut steps);
    }
    let freed = Step::Decide(Some(Release::Freed));
    assert!(steps.contains(&freed), "{steps:?}");
}

#[test]
fn a_release_that_finds_one_gone_may_have_freed_it_there_itself() {
    let (cluster, client) = held(3);
    let mut steps = Vec::new();
    let (quorum, now) = (cluster.quorum(), cluster.now());
    let mut leaving = super::super::hold::Leaving::begin(quorum, nodes([]), TTL, now, &mut steps);
    // Node 0 did it, and its answer was lost; so node 1 alone would be a minority.
    cluster.leave(&client, 0, false);
    leaving.failed(0, true, now, &mut steps);
    leaving.answered(0, cluster.leave(&client, 0, false), &mut steps);
    leaving.answered(1, cluster.leave(&client, 1, false), &mut steps);
    cluster.command(2, &["DEL", "a"]);
    leaving.answered(2, cluster.leave(&client, 2, false), &mut steps);
    assert!(steps.contains(&Step::Decide(None)), "{steps:?}");
}

#[test]
fn a_release_that_comes_too_late_says_so() {
    let (mut cluster, client) = held(3);
    cluster.pass(TTL + ms(1));
    assert_eq!(cluster.release(&client), Some(Release::Expired));
    let mut next = cluster.client(false);
    cluster.try_once(&mut next);
    assert_eq!(cluster.release(&client), Some(Release::Another));
    assert_eq!(cluster.holds(&next).len(), 3);
}

#[test]
fn a_release_ends_asking_once_nothing_can_be_left() {
    let (mut cluster, client) = held(3);
    let (_, _, mut leaving) = cluster.leave_on(&client, nodes([0, 1]));
    let mut steps = Vec::new();
    cluster.pass(TTL * 2);
    leaving.failed(2, true, cluster.now(), &mut steps);
    assert!(!leaving.is_over());
    assert!(
        matches!(steps[..], [Step::Leave { node: 2, .. }]),
        "{steps:?}"
    );
    cluster.pass(ms(1001));
    leaving.failed(2, true, cluster.now(), &mut steps);
    assert!(leaving.is_over() && steps.len() == 1, "{steps:?}");
}

//! A hold on several nodes: whether a renewal extended it, and how its end is told.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::backend::{LossReason, Release, Renewal};
use leasehold_core::clock::Moment;

use super::nodes::{Node, Nodes, Quorum};

/// What a node says to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    /// It was ours there and lasts longer now.
    Ours,
    /// It isn't ours there any more, for this reason.
    Gone(LossReason),
    /// No answer, or one from a node that doesn't count.
    Unknown,
}

impl From<Renewal> for Extended {
    fn from(renewal: Renewal) -> Self {
        match renewal {
            Renewal::Renewed { .. } => Self::Ours,
            Renewal::Lost(reason) => Self::Gone(reason),
        }
    }
}

/// One renewal, sent to all nodes at once.
#[derive(Debug)]
pub(crate) struct Extension {
    quorum: Quorum,
    since: Moment,
    ttl: Duration,
    /// Nodes that haven't answered.
    open: Nodes,
    ours: Nodes,
    /// Nodes on which the hold can't be any more, or never was.
    gone: Nodes,
    reason: LossReason,
}

impl Extension {
    /// Sent at `now`. Only the nodes on which the lock was granted to this hold count: on another one it may have been
    /// somebody else's meanwhile.
    pub(crate) fn new(quorum: Quorum, held: Nodes, ttl: Duration, now: Moment) -> Self {
        Self {
            quorum,
            since: now,
            ttl,
            open: quorum.all(),
            ours: Nodes::NONE,
            gone: quorum.all().without(held),
            reason: LossReason::Expired,
        }
    }

    /// A node answered. The verdict, once there is one; `Some(None)` says that too few answered, which extends nothing
    /// and ends nothing.
    pub(crate) fn answered(&mut self, node: Node, answer: Extended) -> Option<Option<Renewal>> {
        self.open.remove(node);
        match answer {
            Extended::Ours if !self.gone.contains(node) => self.ours.insert(node),
            Extended::Gone(reason) if !self.gone.contains(node) => {
                self.gone.insert(node);
                if weight(reason) > weight(self.reason) {
                    self.reason = reason;
                }
            }
            Extended::Ours | Extended::Gone(_) | Extended::Unknown => {}
        }
        if self.quorum.has(self.ours) {
            return Some(Some(Renewal::Renewed {
                since: self.since,
                ttl: self.ttl,
            }));
        }
        if !self.quorum.has(self.quorum.all().without(self.gone)) {
            return Some(Some(Renewal::Lost(self.reason)));
        }
        self.open.is_empty().then_some(None)
    }
}

/// Which of several reasons tells most.
fn weight(reason: LossReason) -> u8 {
    match reason {
        LossReason::Broken => 2,
        LossReason::Stolen => 1,
        _ => 0,
    }
}

/// A waiter as a node knows it: whom to tell, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Waiter {
    pub(crate) owner: String,
    pub(crate) channel: String,
}

/// What a node says to a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) found: Release,
    /// The first of its queue, which it told.
    pub(crate) told: Option<Waiter>,
}

/// What is to be done for a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask this node, after this pause, to end whatever of this owner is there; with `tombstone`, to refuse what may
    /// still land.
    Leave {
        node: Node,
        tombstone: bool,
        after: Duration,
    },
    /// Tell this waiter, through this node, that it comes next.
    Call { node: Node, waiter: Waiter },
    /// What the release found; `None` when that can't be said. Steps that come after it are for the background.
    Decide(Option<Release>),
}

/// How long to wait before a node that gave no answer is asked again.
const AGAIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];

/// A release, on every node until each has answered.
#[derive(Debug)]
pub(crate) struct Leaving {
    quorum: Quorum,
    begun: Moment,
    /// After this nothing of the attempt can be left on any node.
    most: Duration,
    loose: Nodes,
    /// Nodes that haven't answered for good.
    open: Nodes,
    /// Nodes that answered, or failed to, at least once.
    asked: Nodes,
    /// Nodes that failed to more than once: one answer that is late isn't to leave open whether a lock was freed.
    failed_again: Nodes,
    /// Nodes that failed to answer, those that may have done it: "gone" may then be this release's own work.
    unclear: Nodes,
    found: BTreeMap<Node, Release>,
    told: BTreeMap<Waiter, Nodes>,
    tries: u32,
    decided: bool,
    called: bool,
}

impl Leaving {
    /// Of an attempt or a hold of this TTL; `loose` are the nodes on which a request of it may still land.
    pub(crate) fn begin(
        quorum: Quorum,
        loose: Nodes,
        ttl: Duration,
        now: Moment,
        steps: &mut Vec<Step>,
    ) -> Self {
        let leaving = Self {
            quorum,
            begun: now,
            // A request may land as late as its tombstone lasts, and then hold for one TTL.
            most: ttl * 2 + Duration::from_secs(1),
            loose,
            open: quorum.all(),
            asked: Nodes::NONE,
            failed_again: Nodes::NONE,
            unclear: Nodes::NONE,
            found: BTreeMap::new(),
            told: BTreeMap::new(),
            tries: 0,
            decided: false,
            called: false,
        };
        for node in quorum.all().iter() {
            steps.push(leaving.leave(node, Duration::ZERO));
        }
        leaving
    }

    /// Every node has answered, or what it could say doesn't matter any more.
    pub(crate) fn is_over(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn answered(&mut self, node: Node, left: Left, steps: &mut Vec<Step>) {
        if !self.open.contains(node) {
            return;
        }
        self.open.remove(node);
        self.asked.insert(node);
        if left.found == Release::Freed {
            self.unclear.remove(node);
        }
        self.found.insert(node, left.found);
        if let Some(waiter) = left.told {
            self.told.entry(waiter).or_default().insert(node);
        }
        self.conclude(steps);
    }

    /// No answer, or an error instead; with `may_land`, the node may have done it all the same.
    pub(crate) fn failed(
        &mut self,
        node: Node,
        may_land: bool,
        now: Moment,
        steps: &mut Vec<Step>,
    ) {
        if !self.open.contains(node) {
            return;
        }
        if self.asked.contains(node) {
            self.failed_again.insert(node);
        }
        self.asked.insert(node);
        if may_land {
            self.unclear.insert(node);
        }
        if now.since(self.begun).steady < self.most {
            let [least, most] = AGAIN;
            let pause = least.saturating_mul(1 << self.tries.min(7)).min(most);
            self.tries += 1;
            steps.push(self.leave(node, pause));
        } else {
            self.open.remove(node);
        }
        self.conclude(steps);
    }

    fn leave(&self, node: Node, after: Duration) -> Step {
        Step::Leave {
            node,
            tombstone: self.loose.contains(node),
            after,
        }
    }

    fn conclude(&mut self, steps: &mut Vec<Step>) {
        let first_answers = self.open.without(self.asked);
        self.call(first_answers, steps);
        if self.decided {
            return;
        }
        let found = |what: Release| {
            let nodes = self.found.iter().filter(|(_, found)| **found == what);
            nodes.map(|(node, _)| *node).collect::<Nodes>()
        };
        let freed = found(Release::Freed);
        let perhaps = freed.len() + self.unclear.len() + self.open.without(self.unclear).len();
        let decision = if self.quorum.has(freed) {
            Some(Release::Freed)
        } else if perhaps < self.quorum.majority() {
            // Whoever has a majority is met among any that answer.
            Some(if found(Release::Another).is_empty() {
                Release::Expired
            } else {
                Release::Another
            })
        } else if self.open.without(self.failed_again).is_empty() {
            None
        } else {
            return;
        };
        self.decided = true;
        steps.push(Step::Decide(decision));
    }

    /// Where the queues differ so much that nobody was told by a majority, one is told alone.
    fn call(&mut self, first_answers: Nodes, steps: &mut Vec<Step>) {
        let most = self
            .told
            .iter()
            .max_by_key(|(_, nodes)| (nodes.len(), std::cmp::Reverse(nodes.first())));
        let Some((waiter, nodes)) = most else { return };
        let freed = self.found.len() >= self.quorum.majority();
        let hopeless = nodes.len() + first_answers.len() < self.quorum.majority();
        let Some(node) = nodes.first().filter(|_| freed && hopeless && !self.called) else {
            return;
        };
        steps.push(Step::Call {
            node,
            waiter: waiter.clone(),
        });
        self.called = true;
    }
}

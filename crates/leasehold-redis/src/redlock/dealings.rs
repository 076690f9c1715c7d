//! What each node was asked in one attempt, and what it said.

use std::collections::BTreeSet;

use leasehold_core::clock::Moment;

use super::nodes::{Node, Nodes, Quorum};
use super::queue::{Seen, Who};

/// The dealings with all nodes. Requests are numbered over all of them.
#[derive(Debug)]
pub(super) struct Dealings {
    /// The number of the newest request.
    last: u64,
    nodes: Vec<Dealing>,
}

/// The dealings with one node. A claim is a request for the lock or for a place in the queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Dealing {
    /// The number of the newest claim.
    asked: u64,
    /// When it was sent.
    sent: Option<Moment>,
    /// It was sent in this try.
    current: bool,
    /// It has not been answered, and may be.
    open: bool,
    /// It got no answer, and may land all the same.
    unclear: bool,
    /// Claims without an answer: they may land at any time. By number, since an earlier try's write-back may fail too.
    loose: BTreeSet<u64>,
    /// The send of the claim of this try by which the lock is ours there.
    since: Option<Moment>,
    /// The number of the token's write-back, while it is unanswered.
    writing: Option<u64>,
    /// What it said in this try to one that it didn't give the lock.
    said: Option<Seen>,
}

impl Dealings {
    pub(super) fn new(quorum: Quorum) -> Self {
        Self {
            last: 0,
            nodes: vec![Dealing::default(); quorum.all().len()],
        }
    }

    /// A try begins. What was sent before may be answered still, and means nothing to it.
    pub(super) fn start(&mut self) {
        for dealing in &mut self.nodes {
            dealing.current = false;
            dealing.open = false;
            dealing.since = None;
            dealing.writing = None;
            dealing.said = None;
        }
    }

    /// A claim goes out; its number.
    pub(super) fn claim(&mut self, node: Node, now: Moment) -> u64 {
        self.last += 1;
        if let Some(dealing) = self.nodes.get_mut(usize::from(node)) {
            dealing.asked = self.last;
            dealing.sent = Some(now);
            dealing.current = true;
            dealing.open = true;
            dealing.unclear = false;
            dealing.loose.insert(self.last);
        }
        self.last
    }

    /// A write-back goes out; its number.
    pub(super) fn write(&mut self, node: Node) -> u64 {
        self.last += 1;
        if let Some(dealing) = self.nodes.get_mut(usize::from(node)) {
            dealing.writing = Some(self.last);
        }
        self.last
    }

    /// A claim was answered. The dealing, if it was the newest; an older one is settled by what was asked since.
    pub(super) fn claimed(&mut self, node: Node, number: u64) -> Option<&mut Dealing> {
        let dealing = self.nodes.get_mut(usize::from(node))?;
        dealing.loose.remove(&number);
        if dealing.asked != number {
            return None;
        }
        dealing.open = false;
        dealing.unclear = false;
        Some(dealing)
    }

    /// A write-back has come to an end; whether it was this try's.
    pub(super) fn written(&mut self, node: Node, number: u64) -> bool {
        let dealing = self.nodes.get_mut(usize::from(node));
        dealing.is_some_and(|dealing| {
            dealing
                .writing
                .take_if(|writing| *writing == number)
                .is_some()
        })
    }

    /// A claim got no answer.
    pub(super) fn failed(&mut self, node: Node, number: u64, may_land: bool) {
        let Some(dealing) = self.nodes.get_mut(usize::from(node)) else {
            return;
        };
        if !may_land {
            dealing.loose.remove(&number);
        }
        if dealing.asked == number {
            dealing.open = false;
            dealing.unclear = may_land;
        }
    }

    /// When the claim was sent by which the lock is ours on this node.
    pub(super) fn since(&self, node: Node) -> Option<Moment> {
        self.nodes.get(usize::from(node))?.since
    }

    /// What the nodes said in this try.
    pub(super) fn sayings(&self) -> impl Iterator<Item = Seen> {
        self.nodes.iter().filter_map(|dealing| dealing.said)
    }

    /// The newest send of this try.
    pub(super) fn newest_send(&self) -> Option<Moment> {
        let current = self.nodes.iter().filter(|dealing| dealing.current);
        let sends = current.filter_map(|dealing| dealing.sent);
        sends.max_by_key(|sent| sent.boot)
    }

    /// Nodes that this try has asked.
    pub(super) fn asked(&self) -> Nodes {
        self.which(|dealing| dealing.current)
    }

    /// Nodes that haven't answered, and may.
    pub(super) fn open(&self) -> Nodes {
        self.which(|dealing| dealing.open)
    }

    /// Nodes that answered without giving the lock.
    pub(super) fn said(&self) -> Nodes {
        self.which(|dealing| dealing.said.is_some())
    }

    /// Nodes on which the lock is ours, as far as they said.
    pub(super) fn held(&self) -> Nodes {
        self.which(|dealing| dealing.since.is_some())
    }

    /// Nodes on which the lock may be ours.
    pub(super) fn perhaps_held(&self) -> Nodes {
        self.which(|dealing| dealing.since.is_some() || dealing.unclear)
    }

    /// Nodes on which a claim without an answer may still land.
    pub(super) fn loose(&self) -> Nodes {
        self.which(|dealing| !dealing.loose.is_empty())
    }

    /// Nodes on which this one has the lock.
    pub(super) fn held_by(&self, who: Who) -> Nodes {
        self.which(|dealing| {
            let held = dealing.said.and_then(|seen| seen.holder);
            held.is_some_and(|held| held.who == who)
        })
    }

    fn which(&self, so: impl Fn(&Dealing) -> bool) -> Nodes {
        let nodes = (0..).zip(&self.nodes);
        nodes
            .filter(|(_, dealing)| so(dealing))
            .map(|(node, _)| node)
            .collect()
    }
}

impl Dealing {
    /// The lock is ours there, by the newest claim; whether that counts, being one of this try.
    pub(super) fn granted(&mut self) -> bool {
        if self.current {
            self.since = self.sent;
            self.said = None;
        }
        self.current
    }

    /// It isn't.
    pub(super) fn busy(&mut self, seen: Seen) {
        self.since = None;
        self.said = Some(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_back_that_fails_after_its_try_settles_no_claim() {
        let mut dealings = Dealings::new(Quorum::of(3).unwrap());
        let claim = dealings.claim(1, leasehold_core::clock::now());
        dealings.failed(1, claim, true);
        let write = dealings.write(1);
        dealings.start();
        assert!(!dealings.written(1, write));
        dealings.failed(1, write, false);
        assert_eq!(dealings.loose(), Nodes::from_iter([1]));
        dealings.claimed(1, claim);
        assert!(dealings.loose().is_empty());
    }
}

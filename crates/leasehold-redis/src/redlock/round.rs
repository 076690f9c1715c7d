//! The token of one try: read from a majority, written back to a majority.
//!
//! This is the part that must be right for tokens to be unique and to rise, whatever clocks and networks do. It
//! knows no time, no keys and no waiting, so that the exhaustive model runs this very code.

use super::nodes::{Node, Nodes, Quorum};

/// What has been said in one try.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Round {
    quorum: Quorum,
    /// Nodes that gave the lock, and count.
    granted: Nodes,
    /// The highest counter among them.
    highest: u64,
    /// Their clocks, in microseconds, in ascending order.
    clocks: Vec<u64>,
    /// Chosen once a majority has granted, and never again.
    token: Option<u64>,
    /// Nodes that have written it back.
    accepted: Nodes,
    /// Nodes that haven't and won't.
    refused: Nodes,
}

impl Round {
    pub(crate) fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            granted: Nodes::NONE,
            highest: 0,
            clocks: Vec::new(),
            token: None,
            accepted: Nodes::NONE,
            refused: Nodes::NONE,
        }
    }

    /// A node that counts gave the lock, and told its counter and its clock. Answers the nodes that are to write
    /// the token back now: none before there is a majority, then all that granted, then each that comes late.
    pub(crate) fn granted(&mut self, node: Node, counter: u64, micros: u64) -> Nodes {
        if self.granted.contains(node) {
            return Nodes::NONE;
        }
        self.granted.insert(node);
        if self.token.is_some() {
            return Nodes::from_iter([node]);
        }
        self.highest = self.highest.max(counter);
        let at = self.clocks.partition_point(|clock| *clock < micros);
        self.clocks.insert(at, micros);
        if !self.quorum.has(self.granted) {
            return Nodes::NONE;
        }
        // One more than any of a majority has: so it is higher than every token that a majority took before.
        self.token = Some(self.floor().max(self.highest + 1));
        self.granted
    }

    /// The time of the lower of the middle clocks: should a majority ever lose its counters, tokens still rise, and
    /// one clock that is far ahead doesn't count.
    fn floor(&self) -> u64 {
        let middle = self.clocks.len().saturating_sub(1) / 2;
        self.clocks.get(middle).copied().unwrap_or(0)
    }

    /// A node had the lock still ours and a lower counter, and has the token now.
    pub(crate) fn accepted(&mut self, node: Node) {
        self.accepted.insert(node);
    }

    /// A node didn't take the token.
    pub(crate) fn refused(&mut self, node: Node) {
        self.refused.insert(node);
    }

    pub(crate) fn token(&self) -> Option<u64> {
        self.token
    }

    /// Where the lock is ours, as far as this try knows.
    pub(crate) fn held(&self) -> Nodes {
        self.granted
    }

    /// The nodes that have the token.
    pub(crate) fn kept(&self) -> Nodes {
        self.accepted
    }

    /// A majority has the token: only now may anybody see it.
    pub(crate) fn is_won(&self) -> bool {
        self.quorum.has(self.accepted)
    }

    /// The same round among nodes with other numbers.
    #[cfg(test)]
    pub(crate) fn renumbered(&self, new: impl Fn(Node) -> Node) -> Self {
        let set = |nodes: Nodes| nodes.iter().map(&new).collect();
        Self {
            granted: set(self.granted),
            accepted: set(self.accepted),
            refused: set(self.refused),
            ..self.clone()
        }
    }

    /// Too few are left that could take the token, `open` being those that haven't answered the first question.
    pub(crate) fn is_lost(&self, open: Nodes) -> bool {
        self.token.is_some()
            && self.granted.without(self.refused).len() + open.len() < self.quorum.majority()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round() -> Round {
        Round::new(Quorum::of(5).unwrap())
    }

    #[test]
    fn the_token_is_one_more_than_any_of_the_majority_and_is_chosen_once() {
        let mut round = round();
        assert!(round.granted(3, 4, 0).is_empty());
        assert!(round.granted(1, 9, 0).is_empty());
        assert_eq!(round.token(), None);
        assert_eq!(round.granted(0, 2, 0), Nodes::from_iter([0, 1, 3]));
        assert_eq!(round.token(), Some(10));
        // Late: its counter may be higher, then it will refuse.
        assert_eq!(round.granted(4, 20, 0), Nodes::from_iter([4]));
        assert_eq!(round.token(), Some(10));
        // Told again, nothing is written again: that would be refused, and count as a node lost.
        assert!(round.granted(4, 20, 0).is_empty());
        assert!(round.granted(0, 2, 0).is_empty());
    }

    #[test]
    fn a_duplicate_answer_is_one_vote() {
        let mut round = round();
        for _ in 0..3 {
            round.granted(2, 1, 0);
        }
        assert_eq!(round.token(), None);
        round.granted(0, 1, 0);
        round.granted(1, 1, 0);
        for _ in 0..3 {
            round.accepted(2);
        }
        assert!(!round.is_won());
    }

    #[test]
    fn one_clock_far_ahead_is_not_the_floor() {
        let mut round = round();
        for (node, micros) in [(0, 1_000), (1, 9_000_000), (2, 1_001)] {
            round.granted(node, 5, micros);
        }
        assert_eq!(round.token(), Some(1_001));
    }

    #[test]
    fn refusals_lose_the_round_once_no_majority_can_come() {
        let mut round = round();
        for node in 0..3 {
            round.granted(node, 0, 0);
        }
        round.accepted(0);
        round.refused(1);
        assert!(!round.is_lost(Nodes::from_iter([3])));
        assert!(round.is_lost(Nodes::NONE));
    }
}

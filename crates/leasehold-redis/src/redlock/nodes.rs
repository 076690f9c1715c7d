//! Sets of nodes, and how many of them decide.

use std::fmt;

/// One of the nodes, by its place in the URL.
pub(crate) type Node = u8;

/// The fewest nodes: with two, one that is down stops everything.
pub(crate) const NODES_MIN: u8 = 3;
/// The most: each is asked for every lock.
pub(crate) const NODES_MAX: u8 = 9;

/// A set of nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Nodes(u16);

impl Nodes {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn contains(self, node: Node) -> bool {
        self.0 & bit(node) != 0
    }

    pub(crate) fn insert(&mut self, node: Node) {
        self.0 |= bit(node);
    }

    pub(crate) fn remove(&mut self, node: Node) {
        self.0 &= !bit(node);
    }

    pub(crate) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn first(self) -> Option<Node> {
        self.iter().next()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Node> {
        (0..NODES_MAX).filter(move |node| self.contains(*node))
    }
}

fn bit(node: Node) -> u16 {
    debug_assert!(node < NODES_MAX);
    1 << node
}

impl FromIterator<Node> for Nodes {
    fn from_iter<T: IntoIterator<Item = Node>>(nodes: T) -> Self {
        let mut set = Self::NONE;
        for node in nodes {
            set.insert(node);
        }
        set
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// How many nodes there are. More than half of *all* of them decide, whichever are up: any two such majorities have a
/// node in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Quorum {
    nodes: u8,
}

impl Quorum {
    /// `None` for a number of nodes that can't be used.
    pub(crate) fn of(nodes: usize) -> Option<Self> {
        let nodes = u8::try_from(nodes).ok()?;
        (NODES_MIN..=NODES_MAX)
            .contains(&nodes)
            .then_some(Self { nodes })
    }

    pub(crate) fn all(self) -> Nodes {
        (0..self.nodes).collect()
    }

    pub(crate) fn majority(self) -> usize {
        usize::from(self.nodes) / 2 + 1
    }

    pub(crate) fn has(self, nodes: Nodes) -> bool {
        nodes.len() >= self.majority()
    }

    /// Of a value of each node, the least that a majority doesn't exceed; `None` while fewer have one.
    pub(crate) fn least<T: Ord>(self, values: impl IntoIterator<Item = T>) -> Option<T> {
        let mut values: Vec<T> = values.into_iter().collect();
        values.sort_unstable();
        values.into_iter().nth(self.majority() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_majorities_have_a_node_in_common() {
        for count in usize::from(NODES_MIN)..=usize::from(NODES_MAX) {
            let quorum = Quorum::of(count).unwrap();
            assert!(2 * quorum.majority() > count);
            // And a minority may be down.
            assert!(quorum.has((1..=quorum.majority() as u8).collect()));
            assert!(!quorum.has((1..quorum.majority() as u8).collect()));
        }
        for count in [0, 1, 2, 10, 300] {
            assert_eq!(Quorum::of(count), None);
        }
    }

    #[test]
    fn the_least_that_a_majority_reaches() {
        let quorum = Quorum::of(5).unwrap();
        assert_eq!(quorum.least([7, 1, 9, 3, 5]), Some(5));
        assert_eq!(quorum.least([7, 1, 9]), Some(9));
        assert_eq!(quorum.least([7, 1]), None);
    }
}

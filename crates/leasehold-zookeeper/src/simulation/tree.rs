//! What members agree on: changes, and the nodes that come of them.

use std::collections::BTreeMap;

use crate::keys;

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The change that made it.
    pub(super) made: i64,
    /// Zero for one that no session has.
    pub(super) owner: i64,
    pub(super) data: Vec<u8>,
    /// The number of the next child that gets one.
    pub(super) next: i32,
    is_container: bool,
    had_children: bool,
}

/// A change that all members make, in one order.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Make {
        path: String,
        node: Node,
    },
    Delete {
        path: String,
    },
    /// A session ends, and with it its nodes.
    End {
        session: i64,
    },
    /// It has no effect.
    Nothing,
}

/// The nodes as one member knows them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: BTreeMap<String, Node>,
}

impl Node {
    pub(super) fn new(made: i64, owner: i64, data: Vec<u8>) -> Self {
        Self {
            made,
            owner,
            data,
            next: 0,
            is_container: false,
            had_children: false,
        }
    }

    pub(super) fn container(made: i64, next: i32) -> Self {
        Self {
            next,
            is_container: true,
            ..Self::new(made, 0, Vec::new())
        }
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Tree {
    pub(super) fn has(&self, path: &str) -> bool {
        path.is_empty() || path == "/" || self.nodes.contains_key(path)
    }

    pub(super) fn has_parent_of(&self, path: &str) -> bool {
        self.has(parent(path))
    }

    /// The number that a child of `path`'s parent gets.
    pub(super) fn number(&self, path: &str) -> i32 {
        self.nodes.get(parent(path)).map_or(0, |node| node.next)
    }

    /// Makes a change; the nodes that end by it.
    pub(super) fn change(&mut self, change: &Change) -> Vec<String> {
        match change {
            Change::Make { path, node } => {
                if let Some(parent) = self.nodes.get_mut(parent(path)) {
                    parent.next = parent.next.wrapping_add(1);
                    parent.had_children = true;
                }
                self.nodes.insert(path.clone(), node.clone());
                Vec::new()
            }
            Change::Delete { path } => {
                self.nodes.remove(path);
                vec![path.clone()]
            }
            Change::End { session } => {
                let nodes = self.of(*session, "");
                for path in &nodes {
                    self.nodes.remove(path);
                }
                nodes
            }
            Change::Nothing => Vec::new(),
        }
    }

    /// The nodes of a session that begin so.
    pub(super) fn of(&self, session: i64, prefix: &str) -> Vec<String> {
        let nodes = self.nodes.iter();
        nodes
            .filter(|(path, node)| node.owner == session && path.starts_with(prefix))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// The names of a node's children. A server lists them in no order.
    pub(super) fn children(&self, path: &str) -> Vec<String> {
        let children = self.below(path);
        let mut names: Vec<String> = children.map(|(child, _)| child.to_owned()).collect();
        names.sort_unstable_by_key(|name| name.bytes().rev().collect::<Vec<u8>>());
        names
    }

    fn below(&self, path: &str) -> impl Iterator<Item = (&str, &Node)> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        self.nodes.iter().filter_map(move |(child, node)| {
            let name = child.strip_prefix(&prefix)?;
            (!name.contains('/')).then_some((name, node))
        })
    }

    /// The place in a lock's queue that was made first.
    pub(super) fn first(&self, lock: &str) -> Option<(String, Node)> {
        let places = self.below(lock).filter(|(name, _)| {
            let path = format!("{lock}/{name}");
            keys::is_place_of(lock, &path)
        });
        let (name, node) = places.min_by_key(|(_, node)| node.made)?;
        Some((format!("{lock}/{name}"), node.clone()))
    }

    /// Containers that had children and have none.
    pub(super) fn empty_containers(&self) -> Vec<String> {
        let nodes = self.nodes.iter();
        nodes
            .filter(|(path, node)| {
                node.is_container && node.had_children && self.below(path).next().is_none()
            })
            .map(|(path, _)| path.clone())
            .collect()
    }
}

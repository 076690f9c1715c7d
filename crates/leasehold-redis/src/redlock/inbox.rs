//! Where one acquisition gets everything that happens to it: answers, what the nodes tell it, the end of a pause.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use leasehold_core::{Holder, Owner};
use tokio::sync::mpsc;

use super::exchange::Answer;
use super::nodes::Node;
use super::script::Notice;
use crate::link::Failure;
use crate::mailbox::lock;
use crate::subscriber::Readers;

/// What happens.
#[derive(Debug)]
pub(super) enum Mail {
    /// A node answered, or didn't; with who holds the lock there.
    Answered {
        node: Node,
        number: u64,
        answer: Result<(Answer, Option<Holder>), Failure>,
    },
    /// A node told it something.
    Told(Node, Notice),
    /// What a node told may have been missed.
    Look,
    /// A pause is over.
    Paused,
}

pub(super) type Post = mpsc::UnboundedSender<Mail>;

/// Everybody who is told something, by owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiters(Arc<Mutex<HashMap<String, Post>>>);

impl Waiters {
    /// From now on what is told to this owner goes to `post`, until what is returned is dropped.
    pub(super) fn register(&self, owner: Owner, post: Post) -> Registration {
        let owner = owner.to_hex();
        lock(&self.0).insert(owner.clone(), post);
        Registration {
            waiters: self.clone(),
            owner,
        }
    }
}

/// An entry among those who are told.
#[derive(Debug)]
pub(super) struct Registration {
    waiters: Waiters,
    owner: String,
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.waiters.0).remove(&self.owner);
    }
}

/// What comes from one node.
#[derive(Debug)]
pub(super) struct FromNode {
    pub(super) node: Node,
    pub(super) waiters: Waiters,
}

impl Readers for FromNode {
    fn deliver(&self, payload: &str) {
        let Some(notice) = Notice::parse(payload) else {
            return;
        };
        let post = lock(&self.waiters.0).get(notice.owner()).cloned();
        if let Some(post) = post {
            // Gone meanwhile: then nobody is left to be told.
            let _ = post.send(Mail::Told(self.node, notice));
        }
    }

    fn wake_everyone(&self) {
        for post in lock(&self.waiters.0).values() {
            let _ = post.send(Mail::Look);
        }
    }
}

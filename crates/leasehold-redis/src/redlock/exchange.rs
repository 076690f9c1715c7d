//! What an attempt and whoever drives it say to each other.

use std::time::Duration;

use leasehold_core::clock::Moment;

use super::nodes::{Node, Nodes};
use super::queue::{Held, Seen};

/// What a node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Give the lock if it is free; out of turn only with `turn`. Else take a place in the queue, if the attempt
    /// waits.
    Take { number: u64, turn: bool },
    /// Have a place in the queue and not the lock.
    Stay { number: u64 },
    /// Keep this token if the lock is still ours and the counter is lower.
    Write { number: u64, token: u64 },
}

/// What a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The lock is ours there.
    Granted {
        counter: u64,
        /// The node's clock.
        micros: u64,
    },
    /// It isn't.
    Busy(Seen),
    /// It has the token.
    Written,
    /// It has not: the lock isn't ours any more, or the counter is as high.
    Refused,
    /// It gave nothing for another reason: overtaken by a newer request, released, or the node doesn't count.
    Void,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Answered {
        node: Node,
        number: u64,
        answer: Answer,
    },
    /// No answer in time, or an error instead. With `may_land`, the node may still process the request, and an
    /// answer that comes later is handed in as any other.
    Failed {
        node: Node,
        number: u64,
        may_land: bool,
    },
    /// A node told us, as the first of its queue, of a release; `by` tells two releases apart.
    Told { node: Node, by: u64 },
    /// Whoever released the lock told us alone.
    Called,
    /// The pause that was asked for is over.
    Paused,
}

/// What is to be done, also what comes after the decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effect {
    Send(Node, Request),
    /// Hand in [`Event::Paused`] after this.
    Pause(Duration),
    /// The try is over.
    Decide(Outcome),
}

/// What a try came to. If the attempt doesn't wait and this is no grant, what it may have left is to be released.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    Granted {
        token: u64,
        since: Moment,
    },
    Busy {
        holder: Option<Held>,
        place: Option<u32>,
        retry_in: Duration,
    },
    /// Too few nodes answered.
    NoMajority {
        answered: Nodes,
    },
    /// A majority gave the lock, and too little of its time was left.
    Late,
}

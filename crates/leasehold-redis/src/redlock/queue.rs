//! Whose turn it is: what one waiter makes of what the nodes tell it.
//!
//! Each node has a queue of its own, in the order in which waiters came to it. So the queues may differ, and what
//! counts is a majority of them. A waiter takes nothing out of turn: one that takes single nodes only keeps them from
//! whoever could have a majority. Its turn has come when a majority of nodes told it of the same release, when the
//! releaser told it alone, or when the holder's time is over and those before it have let theirs go by.

use std::time::Duration;

use leasehold_core::clock::Moment;

use super::nodes::{Node, Nodes, Quorum};

/// How often the first waiter looks when the holder is a client that tells nobody.
const FOREIGN_LOOK: Duration = Duration::from_millis(100);
/// How much later than the one before it each waiter looks once nobody holds the lock.
const LOOK_STEP: Duration = Duration::from_millis(20);

/// Who has the lock on a node: enough to tell two apart, too little to release with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Who(pub(crate) u64);

/// What a node says to one that it doesn't give the lock to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Who has it; `None` while it is free and others come first.
    pub(crate) holder: Option<Held>,
    /// How many come first.
    pub(crate) place: u32,
}

/// Who has the lock on a node, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) who: Who,
    /// One of leasehold's: it tells the next when it lets go.
    pub(crate) ours: bool,
    /// `None` for a key without an expiry.
    pub(crate) expires_in: Option<Duration>,
}

/// One waiter's view of the nodes' queues.
#[derive(Debug)]
pub(crate) struct Queue {
    quorum: Quorum,
    views: Vec<Option<View>>,
    /// The newest release that nodes told of, and which.
    told: (u64, Nodes),
    /// The release upon which it last took its turn.
    used: Option<u64>,
    /// The releaser told it alone.
    called: bool,
    /// Its turn comes at this boot time, unless it is told before.
    turn_at: u64,
}

#[derive(Clone, Copy, Debug)]
struct View {
    holder: Option<Held>,
    /// Boot time; never, for a key without an expiry.
    free_at: u64,
    place: u32,
}

impl Queue {
    pub(crate) fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            views: vec![None; quorum.all().len()],
            told: (0, Nodes::NONE),
            used: None,
            called: false,
            turn_at: u64::MAX,
        }
    }

    /// A node said who has the lock there.
    pub(crate) fn seen(&mut self, node: Node, seen: Seen, now: Moment) {
        let free_at = match seen.holder {
            None => now.boot,
            Some(held) => held.expires_in.map_or(u64::MAX, |rest| after(now, rest)),
        };
        if let Some(view) = self.views.get_mut(usize::from(node)) {
            *view = Some(View {
                holder: seen.holder,
                free_at,
                place: seen.place,
            });
        }
    }

    /// A node told of a release. Messages of different releases don't add up, and those that come after the turn
    /// was taken tell nothing new.
    pub(crate) fn told(&mut self, node: Node, by: u64) {
        if self.used == Some(by) {
            return;
        }
        if by != self.told.0 {
            self.told = (by, Nodes::NONE);
        }
        self.told.1.insert(node);
    }

    /// The releaser told it alone.
    pub(crate) fn called(&mut self) {
        self.called = true;
    }

    /// It is told that its turn has come.
    pub(crate) fn is_told(&self) -> bool {
        self.called || self.quorum.has(self.told.1)
    }

    pub(crate) fn is_turn(&self, now: Moment) -> bool {
        self.is_told() || now.boot >= self.turn_at
    }

    /// It takes its turn: what it was told is used up.
    pub(crate) fn take_turn(&mut self) {
        if self.quorum.has(self.told.1) {
            self.used = Some(self.told.0);
        }
        self.called = false;
        self.told.1 = Nodes::NONE;
        self.turn_at = u64::MAX;
    }

    /// How many come first on a majority of nodes; `None` while fewer know it.
    pub(crate) fn place(&self) -> Option<u32> {
        self.quorum.least(self.known().map(|view| view.place))
    }

    /// It has looked, and sets when its turn comes if nobody tells it.
    pub(crate) fn looked(&mut self, now: Moment) {
        let place = self.place().unwrap_or(u32::MAX);
        let step = LOOK_STEP.saturating_mul(place);
        let free_at = self.quorum.least(self.known().map(|view| view.free_at));
        self.turn_at = match self.holder() {
            // One millisecond, because the node rounds down.
            Some(held) => {
                let over = free_at.unwrap_or(u64::MAX);
                let over = over.saturating_add(nanos(Duration::from_millis(1) + step));
                if held.ours || place > 0 {
                    over
                } else {
                    over.min(after(now, FOREIGN_LOOK))
                }
            }
            // Free, or several have a part: those who have will let go of it.
            None if free_at.is_some_and(|at| at <= now.boot) => after(now, step),
            None => after(now, step.saturating_add(LOOK_STEP)),
        };
    }

    /// How long to wait before looking again.
    pub(crate) fn rest(&self, now: Moment) -> Duration {
        Duration::from_nanos(self.turn_at.saturating_sub(now.boot))
    }

    /// Who has a majority of the nodes.
    pub(crate) fn holder(&self) -> Option<Held> {
        let held = || self.known().filter_map(|view| view.holder);
        held().find(|one| {
            let same = held().filter(|other| other.who == one.who).count();
            same >= self.quorum.majority()
        })
    }

    fn known(&self) -> impl Iterator<Item = &View> {
        self.views.iter().flatten()
    }
}

fn after(now: Moment, rest: Duration) -> u64 {
    now.boot.saturating_add(nanos(rest))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

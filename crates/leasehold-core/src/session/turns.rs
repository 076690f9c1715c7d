//! Whose turn it is among the attempts of this client that want one key: one of them at a time asks the server, and the
//! others queue here. So a client has one session that waits for a key, whoever many wait, and never takes a key twice
//! on one session, which the server would grant.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Mailbox;
use crate::name::Name;

/// The attempts of one client, in a line for each key.
#[derive(Default)]
pub struct Turns {
    lines: Mutex<HashMap<Name, Line>>,
    next: AtomicU64,
}

/// The attempts at one key.
#[derive(Default)]
struct Line {
    /// Whose turn it is.
    owner: Option<Owner>,
    waiting: VecDeque<(u64, Arc<Mailbox>)>,
}

struct Owner {
    id: u64,
    /// Whether what it held is over, though it didn't say so.
    is_over: Option<IsOver>,
}

type IsOver = Box<dyn Fn() -> bool + Send>;

impl Turns {
    /// An attempt at a key, in no line yet.
    #[must_use]
    pub fn attempt(self: &Arc<Self>, key: Name) -> Turn {
        Turn {
            turns: self.clone(),
            key,
            id: self.next.fetch_add(1, Ordering::Relaxed),
            mailbox: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An attempt's place in line. When it is dropped, the next one has its turn.
pub struct Turn {
    turns: Arc<Turns>,
    key: Name,
    id: u64,
    /// Where it is told that its turn may have come.
    pub mailbox: Arc<Mailbox>,
}

impl Turn {
    /// Whether it is our turn. If not, and we wait, we are in line from now on.
    #[must_use]
    pub fn take(&self, waits: bool) -> bool {
        self.mailbox.clear();
        let mut lines = self.turns.lock();
        let line = lines.entry(self.key.clone()).or_default();
        let taken = match &line.owner {
            Some(owner) if owner.id == self.id => return true,
            Some(owner) => !owner.is_over.as_ref().is_some_and(|is_over| is_over()),
            None => false,
        };
        let first = line.waiting.front().is_none_or(|(id, _)| *id == self.id);
        if !taken && first {
            line.waiting.pop_front();
            line.owner = Some(Owner {
                id: self.id,
                is_over: None,
            });
            return true;
        }
        if waits && !line.waiting.iter().any(|(id, _)| *id == self.id) {
            line.waiting.push_back((self.id, self.mailbox.clone()));
        }
        false
    }

    /// We hold, until `is_over` says that we don't.
    pub fn holds(&self, is_over: impl Fn() -> bool + Send + 'static) {
        let mut lines = self.turns.lock();
        let owner = lines
            .get_mut(&self.key)
            .and_then(|line| line.owner.as_mut());
        if let Some(owner) = owner.filter(|owner| owner.id == self.id) {
            owner.is_over = Some(Box::new(is_over));
        }
    }

    /// The next one's turn.
    pub fn leave(&self) {
        let mut lines = self.turns.lock();
        let Some(line) = lines.get_mut(&self.key) else {
            return;
        };
        line.waiting.retain(|(id, _)| *id != self.id);
        if line.owner.as_ref().is_some_and(|owner| owner.id == self.id) {
            line.owner = None;
        }
        let next = line.waiting.front().filter(|_| line.owner.is_none());
        let next = next.map(|(_, mailbox)| mailbox.clone());
        if line.owner.is_none() && line.waiting.is_empty() {
            lines.remove(&self.key);
        }
        drop(lines);
        if let Some(next) = next {
            next.put();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Waker};

    use super::*;

    fn key(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn told(turn: &Turn) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        turn.mailbox.poll_changed(&mut context).is_ready()
    }

    #[test]
    fn those_who_wait_are_served_in_order_and_told() {
        let turns = Arc::new(Turns::default());
        let [first, second, third, trying] = [(); 4].map(|()| turns.attempt(key("7")));
        assert!(first.take(true) && first.take(true));
        assert!(!second.take(true) && !third.take(true) && !second.take(true));
        assert!(!trying.take(false));
        assert!(turns.attempt(key("8")).take(false), "another key");
        first.leave();
        assert!(told(&second) && !told(&third));
        // It is the second's turn, also when another one looks first.
        assert!(!trying.take(false) && !third.take(true));
        drop(second);
        assert!(told(&third) && third.take(true));
        drop((first, third, trying));
        assert!(turns.lock().is_empty());
    }

    #[test]
    fn a_hold_that_is_over_keeps_nobody_out_and_takes_nobodys_turn_when_it_leaves() {
        let turns = Arc::new(Turns::default());
        let [stale, next, last] = [(); 3].map(|()| turns.attempt(key("7")));
        let over = Arc::new(AtomicBool::new(false));
        assert!(stale.take(false));
        let is_over = over.clone();
        stale.holds(move || is_over.load(Ordering::SeqCst));
        assert!(!next.take(true));
        over.store(true, Ordering::SeqCst);
        assert!(next.take(true));
        stale.leave();
        assert!(!last.take(false), "the stale one gave away another's turn");
    }
}

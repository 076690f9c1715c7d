//! Wakes contenders: level-triggered, relative to a contender's last request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Whether something happened for one contender since its last request.
#[derive(Debug, Default)]
pub(crate) struct Signal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    raised: bool,
    waker: Option<Waker>,
}

impl Signal {
    /// A request goes out: what happened before it is what it will see.
    pub(crate) fn lower(&self) {
        lock(&self.0).raised = false;
    }

    pub(crate) fn raise(&self) {
        let waker = {
            let mut state = lock(&self.0);
            state.raised = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        if state.raised {
            return Poll::Ready(());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

/// The signals of all contenders of one backend, by owner.
#[derive(Debug, Default)]
pub(crate) struct Signals(Mutex<HashMap<u128, Arc<Signal>>>);

impl Signals {
    pub(crate) fn add(&self, owner: &str) -> Arc<Signal> {
        lock(&self.0).entry(key(owner)).or_default().clone()
    }

    pub(crate) fn remove(&self, owner: &str) {
        lock(&self.0).remove(&key(owner));
    }

    pub(crate) fn raise(&self, owner: &str) {
        let signal = lock(&self.0).get(&key(owner)).cloned();
        if let Some(signal) = signal {
            signal.raise();
        }
    }
}

/// An owner's 128 bits from the text that the database has.
fn key(owner: &str) -> u128 {
    u128::from_str_radix(owner, 16).unwrap_or(0)
}

/// Locks a mutex whose data is whole even after a panic elsewhere: no code of ours panics while holding it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! One hold, shared by its guard and the keeper.
//!
//! The contender has one place, the slot. Who needs it borrows it: the keeper for a renewal, the guard for an
//! extension, the release for good. So no two calls on it ever overlap, and nothing needs to know who else
//! might be using it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::{Contender, LossReason, Renewal};
use crate::claim::{Owner, Token};
use crate::client::Store;
use crate::clock::{self, Moment};
use crate::error::{Error, Result};
use crate::keeper::Inbox;
use crate::name::Name;
use crate::plan::{HoldState, Plan, Step};
use crate::random::{jitter, shared_jitter};

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) terms: Terms,
    plan: Mutex<Plan>,
    slot: Mutex<Slot>,
    /// Why the last renewal had no answer; none where it had one.
    trouble: Mutex<Option<Box<str>>>,
    /// Told when the contender comes back to its slot and when the hold is over.
    changed: Notify,
}

/// What never changes about a hold.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) id: u64,
    pub(crate) name: Name,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) store: Arc<Store>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) ttl: Duration,
    pub(crate) granted: Moment,
    pub(crate) hold_at_least: Duration,
    /// See [`Contender::environment`].
    pub(crate) environment: Vec<(&'static str, String)>,
}

#[derive(Debug)]
enum Slot {
    Here(Box<dyn Contender>),
    Borrowed,
    /// The guard is gone: who brings the contender back hands it on to be released.
    Abandoned,
    Empty,
}

/// Locks a mutex whose data is whole even after a panic elsewhere: no code of ours panics while holding it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hold {
    pub(crate) fn new(terms: Terms, plan: Plan, contender: Box<dyn Contender>) -> Self {
        Self {
            terms,
            plan: Mutex::new(plan),
            slot: Mutex::new(Slot::Here(contender)),
            trouble: Mutex::new(None),
            changed: Notify::new(),
        }
    }

    /// Adds to an error where it happened.
    pub(crate) fn explain(&self, error: Error, operation: &'static str) -> Error {
        self.terms.store.explain(error, operation, &self.terms.name)
    }

    pub(crate) fn state(&self) -> HoldState {
        lock(&self.plan).state()
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).as_deref().map(str::to_owned)
    }

    pub(crate) fn remaining(&self) -> Duration {
        lock(&self.plan).remaining(clock::now())
    }

    /// How much longer the hold is to stay after its release.
    pub(crate) fn keep(&self) -> Duration {
        self.terms
            .hold_at_least
            .saturating_sub(clock::now().since(self.terms.granted).steady)
    }

    /// Waits until the hold is over; then its state says how.
    pub(crate) async fn over(&self) -> HoldState {
        loop {
            let changed = self.changed.notified();
            match self.state() {
                HoldState::Held | HoldState::Uncertain => changed.await,
                over => return over,
            }
        }
    }

    /// What is to be done now; tells the holder of a loss.
    pub(crate) fn step(&self, now: Moment) -> Step {
        let step = lock(&self.plan).step(now);
        if step == Step::Lost {
            self.tell_loss();
        }
        step
    }

    pub(crate) fn sent(&self, now: Moment) {
        lock(&self.plan).sent(now);
    }

    /// Takes in what a renewal came to, or why it had no answer.
    pub(crate) fn settle(&self, renewal: std::result::Result<Renewal, String>) {
        *lock(&self.trouble) = renewal.as_ref().err().map(|why| why.as_str().into());
        let mut plan = lock(&self.plan);
        match renewal {
            // The store's clock can't be so far ahead: somebody took it away.
            Ok(Renewal::Lost(LossReason::Expired)) if !plan.remaining(clock::now()).is_zero() => {
                plan.answered(Renewal::Lost(LossReason::Gone), jitter());
            }
            Ok(renewal) => plan.answered(renewal, shared_jitter(self.terms.id)),
            Err(_) => plan.unanswered(clock::now(), jitter()),
        }
        let state = plan.state();
        drop(plan);
        if matches!(state, HoldState::Lost(_)) {
            self.tell_loss();
        }
    }

    pub(crate) fn lose(&self, reason: LossReason) {
        lock(&self.plan).lose(reason);
        self.tell_loss();
    }

    fn tell_loss(&self) {
        if let HoldState::Lost(reason) = self.state() {
            tracing::warn!(name = %self.terms.name, token = self.terms.token.get(), reason = reason.as_str(), "lock lost");
        }
        self.changed.notify_waiters();
    }

    /// Asks the contender whether something happened; if so, the next step is a renewal.
    pub(crate) fn poll_changed(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut slot = lock(&self.slot);
        if let Slot::Here(contender) = &mut *slot
            && contender.poll_changed(&mut Context::from_waker(&waker)) == Poll::Ready(())
        {
            lock(&self.plan).poke();
        }
    }

    /// Takes the contender out for one call, unless it is out already.
    pub(crate) fn borrow(self: &Arc<Self>) -> Option<Borrowed> {
        let mut slot = lock(&self.slot);
        match std::mem::replace(&mut *slot, Slot::Borrowed) {
            Slot::Here(contender) => Some(Borrowed {
                hold: self.clone(),
                contender: Some(contender),
            }),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// As [`borrow`](Self::borrow), waiting until it is back; `None` when a panic has lost it.
    pub(crate) async fn borrow_when_back(self: &Arc<Self>) -> Option<Borrowed> {
        loop {
            let changed = self.changed.notified();
            if let Some(borrowed) = self.borrow() {
                return Some(borrowed);
            }
            if matches!(*lock(&self.slot), Slot::Empty) {
                return None;
            }
            changed.await;
        }
    }

    /// The holder gives the hold back: no renewal goes out from here on, and one under way is cut short.
    pub(crate) fn end(&self) {
        lock(&self.plan).release();
        self.terms.inbox.ended(self.terms.id, self.is_borrowed());
        self.changed.notify_waiters();
    }

    fn is_borrowed(&self) -> bool {
        matches!(*lock(&self.slot), Slot::Borrowed)
    }

    /// The guard is gone without a release. The contender, if it is here; else who has it hands it on.
    pub(crate) fn abandon(&self) -> Option<Box<dyn Contender>> {
        let mut slot = lock(&self.slot);
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Here(contender) => Some(contender),
            Slot::Borrowed => {
                *slot = Slot::Abandoned;
                None
            }
            Slot::Abandoned | Slot::Empty => None,
        }
    }
}

/// A hold is its own waker: the keeper looks at it. A contender may keep that, and goes when the guard does.
impl Wake for Hold {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.terms.inbox.touch(self.terms.id);
    }
}

/// A contender taken out of its hold. It goes back when this is dropped.
#[derive(Debug)]
pub(crate) struct Borrowed {
    hold: Arc<Hold>,
    contender: Option<Box<dyn Contender>>,
}

impl Borrowed {
    /// One renewal.
    pub(crate) async fn renew(&mut self, ttl: Duration) -> Result<Renewal> {
        match &mut self.contender {
            Some(contender) => contender.renew(ttl).await,
            // Only `keep` and `drop` take it, and both end the borrow.
            None => Ok(Renewal::Lost(LossReason::Unreachable)),
        }
    }

    /// Keeps it for good.
    pub(crate) fn keep(mut self) -> Option<Box<dyn Contender>> {
        *lock(&self.hold.slot) = Slot::Empty;
        self.contender.take()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let Some(contender) = self.contender.take() else {
            return;
        };
        let mut slot = lock(&self.hold.slot);
        if std::thread::panicking() {
            // A store that panicked in a renewal can't be asked again: the hold ends by its TTL.
            *slot = Slot::Empty;
            drop(slot);
            self.hold.lose(LossReason::Unreachable);
            return;
        }
        if matches!(*slot, Slot::Abandoned) {
            *slot = Slot::Empty;
            drop(slot);
            let terms = &self.hold.terms;
            terms
                .store
                .release_later(&terms.inbox, contender, self.hold.keep(), terms.ttl);
        } else {
            *slot = Slot::Here(contender);
            drop(slot);
        }
        self.hold.changed.notify_waiters();
    }
}

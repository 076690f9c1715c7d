//! The wait loop: from a lock to a guard.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Attempt, Busy, Contender, Grant, Release};
use crate::claim::Owner;
use crate::client::Store;
use crate::clock::{self, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::hold::{Hold, Terms};
use crate::keeper::{self, Inbox, whole_millis, within};
use crate::lock::Lock;
use crate::plan::Plan;
use crate::random::{jitter, shared_jitter};

/// How long a try may go unanswered. The answer to one that takes longer is of no use: it is cleaned up.
const TRY_MAX: Duration = Duration::from_secs(5);
/// How long a waiter goes without looking where the store doesn't say.
const LOOK: Duration = Duration::from_secs(1);
/// How long a try may have gone unanswered for the answer before it to be believed.
const FRESH: Duration = Duration::from_secs(1);
/// How many grants in a row may arrive after their time before a try gives up.
const LATE_MAX: u32 = 3;

/// How long to wait for a busy lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    No,
    AtMost(Duration),
    Forever,
}

pub(crate) async fn acquire(lock: &Lock, wait: Wait) -> Result<Option<Guard>> {
    let mut run = Run {
        lock,
        waits: !matches!(wait, Wait::No | Wait::AtMost(Duration::ZERO)),
        answered: false,
        asked: None,
        failure: None,
    };
    let outcome = match wait {
        Wait::AtMost(most) if run.waits => match clock::timeout(most, run.acquire()).await {
            Some(outcome) => outcome,
            // Only a store that answers can be said to be busy.
            None => match run.failure.take() {
                Some(error) => Err(error),
                None if run.answered && !run.is_stuck() => Ok(None),
                None => Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("the store gave no answer within {:?}", whole_millis(most)),
                )),
            },
        },
        _ => run.acquire().await,
    };
    outcome.map_err(|error| lock.store.explain(error, "acquire", &lock.name))
}

struct Run<'a> {
    lock: &'a Lock,
    waits: bool,
    /// The store has answered at least once.
    answered: bool,
    /// When it was asked what it has not answered yet.
    asked: Option<Moment>,
    /// What went wrong since its last answer.
    failure: Option<Error>,
}

impl Run<'_> {
    /// Whether the store has stopped to answer.
    fn is_stuck(&self) -> bool {
        self.asked
            .is_some_and(|asked| clock::now().since(asked).steady >= FRESH)
    }

    async fn acquire(&mut self) -> Result<Option<Guard>> {
        self.lock.check()?;
        let inbox = keeper::inbox()?;
        let mut late = 0;
        let mut failures = 0;
        loop {
            match self.attempt(&inbox, &mut failures).await {
                Ok(Some(Outcome::Guard(guard))) => return Ok(Some(guard)),
                Ok(None) => return Ok(None),
                Ok(Some(Outcome::Late)) => {
                    late += 1;
                    if !self.waits && late == LATE_MAX {
                        return Err(Error::new(
                            ErrorKind::Unavailable,
                            format!(
                                "the store's grants arrive after their time; a TTL of {:?} is too short for it",
                                self.lock.ttl
                            ),
                        ));
                    }
                }
                Err(error) => self.outage(error, &mut failures).await?,
            }
        }
    }

    /// One attempt with an owner of its own, until it is granted or given up.
    async fn attempt(&mut self, inbox: &Arc<Inbox>, failures: &mut u32) -> Result<Option<Outcome>> {
        let store = &self.lock.store;
        let claim = self.lock.claim(self.waits)?;
        let owner = claim.owner;
        let contender = within(TRY_MAX, store.backend.contend(claim)).await?;
        let mut armed = Armed::new(store.clone(), inbox.clone(), contender, self.lock.ttl);
        loop {
            self.asked = Some(clock::now());
            let answer = within(TRY_MAX, armed.contender()?.try_acquire()).await;
            self.asked = None;
            match answer {
                Ok(Attempt::Granted(grant)) => {
                    self.answered = true;
                    let guard = armed.hold(self.lock, owner, &grant);
                    return Ok(Some(guard.map_or(Outcome::Late, Outcome::Guard)));
                }
                Ok(Attempt::Busy(_)) if !self.waits => {
                    armed.disarm();
                    return Ok(None);
                }
                Ok(Attempt::Busy(busy)) => {
                    self.answered = true;
                    self.failure = None;
                    *failures = 0;
                    change(armed.contender()?, &busy).await;
                }
                Err(error) => {
                    // It did answer: from here on only the wait says how long to try.
                    self.answered |= error.is_answered();
                    self.outage(error, failures).await?;
                }
            }
        }
    }

    /// Waits an outage out, or gives up with its error.
    async fn outage(&mut self, error: Error, failures: &mut u32) -> Result<()> {
        if !self.waits || !self.answered || !error.is_retryable() {
            return Err(error);
        }
        tracing::debug!(%error, "the store can't be asked; again");
        self.failure = Some(error);
        let pause = Duration::from_millis(50 << (*failures).min(5));
        *failures += 1;
        clock::sleep(pause.mul_f64(0.5 + jitter())).await;
        Ok(())
    }
}

enum Outcome {
    Guard(Guard),
    /// Granted, but the answer took longer than the lease.
    Late,
}

/// Waits until it is worth trying again.
async fn change(contender: &mut dyn Contender, busy: &Busy) {
    let look_in = busy.retry_in.unwrap_or(LOOK);
    let look_in = look_in.mul_f64(1.0 + 0.1 * jitter());
    tokio::select! {
        biased;
        () = poll_fn(|context| contender.poll_changed(context)) => {}
        () = clock::sleep(look_in) => {}
    }
}

/// A contender that is released in the background unless it is disarmed: armed before its first write, so
/// that a dropped future leaves nothing.
#[derive(Debug)]
pub(crate) struct Armed {
    store: Arc<Store>,
    inbox: Arc<Inbox>,
    contender: Option<Box<dyn Contender>>,
    keep: Duration,
    ttl: Duration,
}

impl Armed {
    fn new(
        store: Arc<Store>,
        inbox: Arc<Inbox>,
        contender: Box<dyn Contender>,
        ttl: Duration,
    ) -> Self {
        Self {
            store,
            inbox,
            contender: Some(contender),
            keep: Duration::ZERO,
            ttl,
        }
    }

    /// A hold's contender, to be released after `keep`.
    pub(crate) fn release_of(hold: &Hold, contender: Box<dyn Contender>, keep: Duration) -> Self {
        Self {
            store: hold.terms.store.clone(),
            inbox: hold.terms.inbox.clone(),
            contender: Some(contender),
            keep,
            ttl: hold.terms.ttl,
        }
    }

    fn contender(&mut self) -> Result<&mut dyn Contender> {
        match &mut self.contender {
            Some(contender) => Ok(&mut **contender),
            None => Err(Error::new(
                ErrorKind::Bug,
                "a contender was used after it was handed on",
            )),
        }
    }

    fn disarm(&mut self) -> Option<Box<dyn Contender>> {
        self.contender.take()
    }

    /// Makes a guard of a grant, unless its time is over already.
    fn hold(&mut self, lock: &Lock, owner: Owner, grant: &Grant) -> Option<Guard> {
        let id = self.inbox.next_id();
        let plan = Plan::new(
            grant,
            lock.ttl,
            lock.renews,
            lock.max_hold,
            lock.drift,
            shared_jitter(id),
        );
        if plan.remaining(clock::now()).is_zero() {
            return None;
        }
        let contender = self.disarm()?;
        let terms = Terms {
            id,
            name: lock.name.clone(),
            owner,
            token: grant.token,
            store: self.store.clone(),
            inbox: self.inbox.clone(),
            ttl: lock.ttl,
            granted: grant.since,
            hold_at_least: lock.hold_at_least,
            environment: contender.environment(),
        };
        let hold = Arc::new(Hold::new(terms, plan, contender));
        self.inbox.adopt(hold.clone());
        Some(Guard::new(hold))
    }

    /// Releases now; without an answer in time the keeper goes on.
    pub(crate) async fn release(mut self) -> Result<Release> {
        let patience = (self.ttl / 3).clamp(Duration::from_secs(1), TRY_MAX);
        let keep = self.keep;
        let release = within(patience, self.contender()?.release(keep)).await?;
        self.disarm();
        Ok(release)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        if let Some(contender) = self.contender.take() {
            self.store
                .release_later(&self.inbox, contender, self.keep, self.ttl);
        }
    }
}

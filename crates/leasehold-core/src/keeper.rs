//! The keeper: one thread per process that renews every hold and says when one is lost.
//!
//! It has a runtime of its own, so that a caller who blocks his keeps his locks, and a timer on the boot
//! clock, so that a suspend doesn't stop it. A hold costs one entry in a map and one in an ordered set of due
//! times; a renewal under way is a future in that entry, without a task or a timer of its own. What the rest of the
//! process wants of the keeper goes through the [`Inbox`].

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::backend::{Contender, LossReason};
use crate::background;
use crate::client::Ticket;
use crate::clock::{self, BootTimer, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Hold, lock};
use crate::plan::{HoldState, Step};
use crate::random::jitter;
use crate::renewing::Renewing;

/// How often the clocks are compared while anything is held: bounds how late a step of the wall clock is seen.
const WATCH: u64 = 1_000_000_000;
/// How late a new hold may be taken in: a wake-up of the thread costs more than the hold itself.
const TAKE_IN: u64 = 100_000_000;
/// A forward step of the wall clock smaller than this is slewing, which the drift margin covers.
const STEP: Duration = Duration::from_millis(5);

/// What the process has for the keeper.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    post: Mutex<Post>,
    arrived: Notify,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Post {
    new: Vec<Arc<Hold>>,
    touched: Vec<u64>,
    ended: Vec<u64>,
    abandoned: Vec<Abandoned>,
    /// When the keeper wakes by itself (boot time).
    wake_at: u64,
    /// The keeper is gone.
    closed: bool,
}

/// A contender to be released in the background, until the answer is definite.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) contender: Box<dyn Contender>,
    pub(crate) keep: Duration,
    pub(crate) ttl: Duration,
    /// Counts it as pending until it is dropped.
    pub(crate) _ticket: Ticket,
}

impl Inbox {
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives the keeper a new hold.
    pub(crate) fn adopt(&self, hold: Arc<Hold>) {
        let now = clock::now();
        let due = match hold.step(now) {
            Step::Sleep(at) => at,
            Step::Renew { .. } | Step::Lost | Step::Over => now.boot,
        };
        let mut post = lock(&self.post);
        if post.closed {
            drop(post);
            hold.lose(LossReason::Unreachable);
            return;
        }
        let wake = post.wake_at > due.min(now.boot.saturating_add(TAKE_IN));
        post.new.push(hold);
        drop(post);
        if wake {
            self.arrived.notify_one();
        }
    }

    /// A hold is over; `urgent` when a renewal of it must be cut short.
    pub(crate) fn ended(&self, id: u64, urgent: bool) {
        lock(&self.post).ended.push(id);
        if urgent {
            self.arrived.notify_one();
        }
    }

    pub(crate) fn abandon(&self, abandoned: Abandoned) {
        let mut post = lock(&self.post);
        // Without a keeper the hold ends by its TTL.
        if !post.closed {
            post.abandoned.push(abandoned);
        }
        drop(post);
        self.arrived.notify_one();
    }

    /// Something happened to a hold.
    pub(crate) fn touch(&self, id: u64) {
        lock(&self.post).touched.push(id);
        self.arrived.notify_one();
    }
}

/// The keeper's inbox.
pub(crate) fn inbox() -> Result<Arc<Inbox>> {
    #[cfg(feature = "simulated")]
    if let Some(process) = crate::simulated::current() {
        return Ok(process.inbox());
    }
    keeper().map(|(inbox, _)| inbox)
}

/// The keeper of this process and its runtime; started on first use, and anew should it ever have died.
pub(crate) fn keeper() -> Result<(Arc<Inbox>, Handle)> {
    static KEEPER: Mutex<Option<(Arc<Inbox>, Handle)>> = Mutex::new(None);
    let mut keeper = lock(&KEEPER);
    if let Some((inbox, handle)) = &*keeper
        && !lock(&inbox.post).closed
    {
        return Ok((inbox.clone(), handle.clone()));
    }
    let inbox = Arc::new(Inbox::default());
    let handle = start(inbox.clone()).map_err(|error| {
        Error::new(
            ErrorKind::Unavailable,
            "the thread that renews locks can't be started",
        )
        .because(error)
    })?;
    *keeper = Some((inbox.clone(), handle.clone()));
    Ok((inbox, handle))
}

thread_local! {
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is its thread.
pub(crate) fn is_here() -> bool {
    IS_HERE.get()
}

fn start(inbox: Arc<Inbox>) -> std::io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let handle = runtime.handle().clone();
    let mut timer = {
        let _entered = runtime.enter();
        BootTimer::new()?
    };
    std::thread::Builder::new()
        .name("leasehold-keeper".into())
        .spawn(move || {
            IS_HERE.set(true);
            // Setting a timer fails for want of memory alone; then the next message wakes.
            let until = async |at| drop(timer.until(at).await);
            runtime.block_on(run(inbox, until));
        })?;
    Ok(handle)
}

/// What a keeper does, with a timer that waits until a boot time.
pub(crate) async fn run(inbox: Arc<Inbox>, until: impl AsyncFnMut(u64)) {
    let mut keeper = Keeper {
        inbox,
        holds: BTreeMap::new(),
        due: BTreeSet::new(),
        checked: clock::now(),
    };
    keeper.run(until).await;
}

struct Keeper {
    inbox: Arc<Inbox>,
    /// In the order they were taken, which is that of their renewals: see [`crate::random::shared_jitter`].
    holds: BTreeMap<u64, Entry>,
    /// Due times (boot) and the holds they are of.
    due: BTreeSet<(u64, u64)>,
    /// The clocks when they were last compared.
    checked: Moment,
}

struct Entry {
    hold: Arc<Hold>,
    due: u64,
    /// Dropped with the entry, which cuts a renewal under way short.
    renewing: Option<Renewing>,
}

impl Entry {
    /// Looks whether the store has answered.
    fn poll_renewing(&mut self) {
        if let Some(renewing) = &mut self.renewing
            && renewing.poll(&self.hold)
        {
            self.renewing = None;
        }
    }

    /// Gives up on an answer that doesn't come.
    fn time_out(&mut self, now: Moment) {
        if let Some(renewing) = self
            .renewing
            .take_if(|renewing| renewing.until() <= now.boot)
        {
            renewing.give_up(&self.hold);
        }
    }
}

impl Keeper {
    async fn run(&mut self, mut until: impl AsyncFnMut(u64)) {
        loop {
            let Some(wake_at) = self.work() else {
                // The connections that renewals go through have their turns on this thread too.
                tokio::task::yield_now().await;
                continue;
            };
            tokio::select! {
                biased;
                () = self.inbox.arrived.notified() => {}
                () = until(wake_at) => {}
            }
        }
    }

    /// Does all there is to do; answers when to wake, or nothing when more has come meanwhile.
    fn work(&mut self) -> Option<u64> {
        let post = {
            let mut post = lock(&self.inbox.post);
            post.wake_at = 0;
            std::mem::take(&mut *post)
        };
        let took_in = !post.new.is_empty();
        for abandoned in post.abandoned {
            background::spawn_here(release(abandoned));
        }
        for hold in post.new {
            // A short one is over before it was taken in.
            if matches!(hold.state(), HoldState::Held | HoldState::Uncertain) {
                self.take_in(hold);
            }
        }
        for id in post.ended {
            self.forget(id);
        }
        for id in post.touched {
            self.touched(id);
        }
        let now = clock::now();
        self.watch_clocks(now);
        while let Some(&(at, id)) = self.due.first()
            && at <= now.boot
        {
            self.step(id, now);
        }
        let mut wake_at = self.due.first().map_or(u64::MAX, |(at, _)| *at);
        if !self.holds.is_empty() {
            wake_at = wake_at.min(now.boot.saturating_add(WATCH));
        }
        if took_in {
            wake_at = wake_at.min(now.boot.saturating_add(TAKE_IN));
        }
        let mut post = lock(&self.inbox.post);
        post.wake_at = wake_at;
        let idle = post.new.is_empty()
            && post.ended.is_empty()
            && post.touched.is_empty()
            && post.abandoned.is_empty();
        idle.then_some(wake_at)
    }

    fn take_in(&mut self, hold: Arc<Hold>) {
        let id = hold.terms.id;
        let entry = Entry {
            hold,
            due: 0,
            renewing: None,
        };
        self.due.insert((entry.due, id));
        self.holds.insert(id, entry);
        self.touched(id);
    }

    fn forget(&mut self, id: u64) {
        if let Some(entry) = self.holds.remove(&id) {
            self.due.remove(&(entry.due, id));
        }
    }

    /// A contender woke us or came back from a renewal.
    fn touched(&mut self, id: u64) {
        if let Some(entry) = self.holds.get_mut(&id) {
            entry.poll_renewing();
            entry.hold.poll_changed();
            self.step(id, clock::now());
        }
    }

    /// A step of the wall clock forward may mean that the machine stood still: every hold is looked at anew.
    fn watch_clocks(&mut self, now: Moment) {
        let elapsed = now.since(self.checked);
        self.checked = now;
        if elapsed.any.saturating_sub(elapsed.steady) > STEP {
            let ids: Vec<u64> = self.holds.keys().copied().collect();
            for id in ids {
                self.step(id, now);
            }
        }
    }

    fn step(&mut self, id: u64, now: Moment) {
        let Some(entry) = self.holds.get_mut(&id) else {
            return;
        };
        entry.time_out(now);
        match entry.hold.step(now) {
            Step::Sleep(at) => {
                let until = entry.renewing.as_ref().map(Renewing::until);
                self.reschedule(id, until.map_or(at, |until| until.min(at)));
            }
            Step::Lost | Step::Over => self.forget(id),
            Step::Renew { ttl, timeout } => {
                let Some(borrowed) = entry.hold.borrow() else {
                    // An extension is under way; what it comes to wakes nobody, so look again soon.
                    let soon = now.boot.saturating_add(10_000_000);
                    return self.reschedule(id, soon);
                };
                entry.hold.sent(now);
                entry.renewing = Some(Renewing::new(borrowed, ttl, timeout, now));
                entry.poll_renewing();
                self.step(id, now);
            }
        }
    }

    fn reschedule(&mut self, id: u64, at: u64) {
        if let Some(entry) = self.holds.get_mut(&id) {
            self.due.remove(&(entry.due, id));
            entry.due = at;
            self.due.insert((at, id));
        }
    }
}

impl Drop for Keeper {
    /// Without a keeper nothing is renewed: who holds is told at once.
    fn drop(&mut self) {
        let post = {
            let mut post = lock(&self.inbox.post);
            post.closed = true;
            std::mem::take(&mut post.new)
        };
        let held = std::mem::take(&mut self.holds)
            .into_values()
            .map(|entry| entry.hold);
        for hold in held.chain(post) {
            hold.lose(LossReason::Unreachable);
        }
    }
}

/// Releases until the answer is definite or the store has ended it by itself.
async fn release(mut abandoned: Abandoned) {
    let begun = clock::now();
    // Twice the TTL: a try that was sent and not answered may land late, and its hold lasts one more.
    let most = abandoned.ttl * 2 + Duration::from_secs(1);
    let mut pause = Duration::from_millis(20);
    while clock::now().since(begun).steady < most {
        let patience = (abandoned.ttl / 3).max(Duration::from_secs(1));
        match within(patience, abandoned.contender.release(abandoned.keep)).await {
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "release unanswered; again"),
        }
        clock::sleep(pause.mul_f64(0.5 + jitter())).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// `future`, or an ambiguous error once `patience` is over.
pub(crate) async fn within<T>(
    patience: Duration,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    match clock::timeout(patience, future).await {
        Some(result) => result,
        None => Err(Error::new(
            ErrorKind::Ambiguous,
            format!(
                "the store gave no answer within {:?}",
                whole_millis(patience)
            ),
        )),
    }
}

/// A duration as people like to read it.
pub(crate) fn whole_millis(exact: Duration) -> Duration {
    Duration::from_millis(exact.as_millis().try_into().unwrap_or(u64::MAX))
}

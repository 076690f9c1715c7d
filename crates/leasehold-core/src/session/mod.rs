//! Sessions that many locks of a client share, for stores whose holds hang on one: kept alive for all of them at once,
//! but never by two attempts on one name.
//!
//! ```text
//! contender ── Seat ──► Session ◄── its task on the keeper's thread: begins it, beats, gives places up, ends it
//!                          ▲ by TTL
//!                        Pool
//! ```
//!
//! A store says through [`SessionStore`] what each of that takes. What a session's places left in the store, and until
//! when, is in [`Place`], without input or output.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};

use crate::clock::{self, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

mod heart;
mod lent;
mod mailbox;
mod place;
mod pool;
mod seat;
mod state;
mod turns;

pub use lent::Lent;
pub use mailbox::Mailbox;
pub use place::Place;
pub use pool::Pool;
pub use seat::Seat;
use state::{Phase, State};
pub use turns::{Turn, Turns};

/// What a store does for its sessions.
#[async_trait]
pub trait SessionStore: Debug + Send + Sync + Sized + 'static {
    /// A session as the store knows it.
    type Live: Clone + Debug + Send + Sync;
    /// What a place made in the store.
    type Made: Debug + Send;

    /// Begins a session of [`asked`](Session::asked), with what that counts for as the first beat.
    ///
    /// # Errors
    /// When there is none; what may have been begun ends by itself.
    async fn begin(&self, session: &Arc<Session<Self>>) -> Result<(Self::Live, Pulse)>;

    /// Keeps a session alive, once. None where the store has ended it.
    ///
    /// # Errors
    /// When that has no answer, which says nothing about the session. `Unsupported` when there never will be one:
    /// the session is given up.
    async fn beat(&self, session: &Session<Self>, live: &Self::Live) -> Result<Option<Pulse>>;

    /// Deletes what a place made, so that nothing brings it back.
    ///
    /// # Errors
    /// When there is no definite answer: it is asked again.
    async fn give_up(&self, session: &Session<Self>, name: &Name) -> Result<()>;

    /// Ends a session that nobody needs any more. One that isn't ended so ends by its TTL.
    async fn end(&self, live: Self::Live);
}

/// A session.
#[derive(Debug)]
pub struct Session<S: SessionStore> {
    asked: Duration,
    state: Mutex<State<S>>,
    changed: watch::Sender<()>,
    /// A beat is wanted, or its time is over.
    called: Notify,
}

/// A beat that counted.
#[derive(Clone, Debug)]
pub struct Pulse {
    /// When the request that the store processed was sent.
    pub since: Moment,
    /// What a holder may count on from then on.
    pub ttl: Duration,
    /// What hung on the session; empty where the store doesn't say.
    pub keys: Arc<HashSet<Vec<u8>>>,
}

impl Pulse {
    /// A beat that says nothing of what hung on the session.
    #[must_use]
    pub fn new(since: Moment, ttl: Duration) -> Self {
        Self {
            since,
            ttl,
            keys: Arc::default(),
        }
    }

    fn age(&self, now: Moment) -> Duration {
        now.since(self.since).any
    }

    /// Whether a hold can begin with it.
    #[must_use]
    pub fn is_young(&self, now: Moment) -> bool {
        self.age(now) < self.ttl / 2
    }

    /// Whether it answers a renewal for `ttl` more that is asked for at `now`, where the last one was answered by a
    /// beat of `last`. Only one that may be `shared` is answered by a beat from before it was asked for.
    #[must_use]
    pub fn renews(&self, now: Moment, last: Moment, ttl: Duration, shared: bool) -> bool {
        let is_new = self.since.since(last).steady > ttl / 5 && self.age(now) <= ttl / 8;
        self.since.boot >= now.boot || shared && is_new
    }
}

impl<S: SessionStore> Session<S> {
    fn new(asked: Duration) -> Self {
        Self {
            asked,
            state: Mutex::new(State::starting()),
            changed: watch::Sender::new(()),
            called: Notify::new(),
        }
    }

    /// The TTL that the store was asked for.
    #[must_use]
    pub fn asked(&self) -> Duration {
        self.asked
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a new attempt on `name` can have a place here.
    fn suits(&self, name: &Name) -> bool {
        let state = self.lock();
        state.is_ready() && !state.places.contains_key(name)
    }

    /// Has one attempt have it to itself, if it is begun and nobody has a place here. Whether it does.
    fn lend(&self) -> bool {
        let mut state = self.lock();
        let begun = matches!(state.phase, Phase::Live(_));
        let lends = begun && state.is_ready() && state.places.is_empty();
        state.lent |= lends;
        lends
    }

    /// Whoever had it to himself gives it back, with its last beat.
    fn give_back(&self, pulse: Pulse) {
        let mut state = self.lock();
        state.lent = false;
        // Its first place is taken after this, and until then it isn't too long idle.
        state.idle_since = clock::now().boot;
        let late = heart::beat_at(&pulse) < state.looks_at;
        drop(state);
        self.beaten(pulse);
        if late {
            self.called.notify_one();
        }
    }

    /// Waits until it has begun.
    ///
    /// # Errors
    /// When it couldn't be begun, or has ended.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn ready(&self) -> Result<S::Live> {
        let mut changed = self.changed.subscribe();
        loop {
            match &self.lock().phase {
                Phase::Starting => {}
                Phase::Live(live) => return Ok(live.clone()),
                Phase::Failed(kind, text) => return Err(Error::new(*kind, text.clone())),
                Phase::Over => return Err(lost()),
            }
            // Its sender lives as long as we do.
            let _ = changed.changed().await;
        }
    }

    /// Waits for a beat that is `fresh`.
    ///
    /// # Errors
    /// When the next one has no answer, or the session has ended.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn beat(&self, fresh: impl Fn(&Pulse) -> bool) -> Result<Pulse> {
        let mut changed = self.changed.subscribe();
        let failures = self.lock().failures;
        loop {
            {
                let mut state = self.lock();
                match &state.phase {
                    Phase::Over => return Err(lost()),
                    Phase::Failed(kind, text) => return Err(Error::new(*kind, text.clone())),
                    Phase::Starting | Phase::Live(_) => {}
                }
                if let Some(pulse) = state.pulse.as_ref().filter(|pulse| fresh(pulse)) {
                    return Ok(pulse.clone());
                }
                if let Some((kind, text)) = &state.failure
                    && state.failures > failures
                {
                    return Err(Error::new(*kind, text.clone()));
                }
                if !std::mem::replace(&mut state.wanted, true) {
                    self.called.notify_one();
                }
            }
            let _ = changed.changed().await;
        }
    }

    /// The store's session, as long as it isn't known to have ended.
    #[must_use]
    pub fn live(&self) -> Option<S::Live> {
        match &self.lock().phase {
            Phase::Live(live) => Some(live.clone()),
            _ => None,
        }
    }

    /// Changes what is known of the store's session.
    pub fn update(&self, change: impl FnOnce(&mut S::Live)) {
        if let Phase::Live(live) = &mut self.lock().phase {
            change(live);
        }
    }

    /// Whether it is of no more use.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.lock().phase, Phase::Failed(..) | Phase::Over)
    }

    /// Whether it was there and isn't any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.lock().phase, Phase::Over)
    }

    /// Looks at a place or changes it; none where there is none.
    pub fn place<T>(&self, name: &Name, look: impl FnOnce(&mut Place<S::Made>) -> T) -> Option<T> {
        self.lock().places.get_mut(name).map(look)
    }

    /// Looks at every place; what `look` makes of those that it makes something of.
    pub fn each<T>(&self, look: impl Fn(&Name, &Place<S::Made>) -> Option<T>) -> Vec<T> {
        let state = self.lock();
        let places = state.places.iter();
        places
            .filter_map(|(name, place)| look(name, place))
            .collect()
    }

    /// A try may land as long as the session is there, and the store can't tell that it doesn't: no new attempt begins
    /// here, and the session ends once nobody holds by it.
    pub fn retire(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.retired, true) {
            state.idle_since = clock::now().boot;
        }
    }

    /// The connection broke: every hold is uncertain until a beat says otherwise.
    pub fn disturb(&self) {
        self.tell_all();
        self.lock().wanted = true;
        self.called.notify_one();
    }

    /// It began. False where it was closed meanwhile.
    fn begin(&self, live: S::Live, pulse: Pulse) -> bool {
        let mut state = self.lock();
        let begins = matches!(state.phase, Phase::Starting);
        if begins {
            state.phase = Phase::Live(live);
            state.pulse = Some(pulse);
        }
        drop(state);
        self.changed.send_replace(());
        begins
    }

    fn fail(&self, error: &Error) {
        let mut state = self.lock();
        state.phase = Phase::Failed(error.kind(), described(error));
        state.places.values_mut().for_each(Place::ended);
        drop(state);
        self.changed.send_replace(());
    }

    /// A beat counted.
    fn beaten(&self, pulse: Pulse) {
        let mut state = self.lock();
        state.pulse = Some(pulse);
        state.failure = None;
        drop(state);
        self.changed.send_replace(());
    }

    /// A beat had no answer: that says nothing about the session.
    fn missed(&self, error: &Error) {
        let mut state = self.lock();
        let first = state.failure.is_none();
        state.failures += 1;
        state.failure = Some((error.kind(), described(error)));
        drop(state);
        if first {
            self.tell_all();
        }
        self.changed.send_replace(());
    }

    /// It has ended, and with it all that hung on it.
    pub fn end(&self) {
        let mut state = self.lock();
        state.phase = Phase::Over;
        state.places.values_mut().for_each(Place::ended);
        drop(state);
        self.tell_all();
        self.changed.send_replace(());
        self.called.notify_one();
    }

    /// What a connection calls when it is gone.
    pub fn ender(self: &Arc<Self>) -> impl Fn() + Clone + Send + 'static {
        let session = Arc::downgrade(self);
        move || {
            if let Some(session) = session.upgrade() {
                session.end();
            }
        }
    }

    /// Has every holder renew now, and every waiter look.
    fn tell_all(&self) {
        let mailboxes: Vec<Arc<Mailbox>> = self
            .lock()
            .places
            .values()
            .map(|place| place.mailbox.clone())
            .collect();
        for mailbox in mailboxes {
            mailbox.put();
        }
    }
}

/// When what lasts `ttl` from `since` ends (boot time).
#[must_use]
pub fn end(since: Moment, ttl: Duration) -> u64 {
    since.boot.saturating_add(nanos(ttl))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The error of what can't go on because its session has ended.
fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, "the session has ended")
}

/// An error's text with its cause, for all who wait for it.
fn described(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{}: {cause}", error.message()),
        None => error.message().to_owned(),
    }
}

//! A lease with what hangs on it: shared by many locks of a client, but never by two attempts on one name.
//!
//! Its task runs on the keeper's thread. It keeps the lease alive, checks that that counted (see [`crate::beat`]),
//! and gives up the places whose time is over. Beside the lease there is its canary: a key that shows that the lease
//! is there, and whose last write every try compares, so that writing it anew voids all tries under way.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::clock::{self, Moment};
use leasehold_core::{Error, ErrorKind, Name, Result};
use tokio::sync::{Notify, watch};

use crate::mailbox::Mailbox;
use crate::place::Place;

/// A session; its task is in [`crate::heart`].
#[derive(Debug)]
pub(crate) struct Session {
    /// The TTL its lease was asked for, in seconds.
    pub(crate) asked: i64,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// A beat is wanted, or its time is over.
    pub(crate) called: Notify,
}

#[derive(Debug)]
pub(crate) struct State {
    phase: Phase,
    places: HashMap<Name, Place>,
    pulse: Option<Pulse>,
    /// Beats that failed, and what the last of them failed of.
    failures: u64,
    failure: Option<(ErrorKind, String)>,
    pub(crate) wanted: bool,
    /// Since when it has no places (boot time).
    pub(crate) idle_since: u64,
}

#[derive(Clone, Debug)]
enum Phase {
    Starting,
    Live(Lease),
    /// It could not be started.
    Failed(ErrorKind, String),
    /// Its lease has ended, or it was closed.
    Over,
}

/// A lease and its canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    pub(crate) canary: Vec<u8>,
    /// The revision the canary was last written at.
    pub(crate) written: i64,
}

/// A beat that counted.
#[derive(Clone, Debug)]
pub(crate) struct Pulse {
    /// When the keep-alive was sent.
    pub(crate) since: Moment,
    /// What the server gives from then on.
    pub(crate) ttl: Duration,
    /// The keys that hung on the lease.
    pub(crate) keys: Arc<HashSet<Vec<u8>>>,
}

impl Pulse {
    pub(crate) fn age(&self, now: Moment) -> Duration {
        now.since(self.since).any
    }

    /// Whether a hold can begin with it.
    pub(crate) fn is_young(&self, now: Moment) -> bool {
        self.age(now) < self.ttl / 2
    }

    /// Whether it answers a renewal for `ttl` more that is asked for at `now`, where the last one was answered by a
    /// beat of `last`. Only one that may be `shared` is answered by a beat from before it was asked for.
    pub(crate) fn renews(&self, now: Moment, last: Moment, ttl: Duration, shared: bool) -> bool {
        let is_new = self.since.since(last).steady > ttl / 5 && self.age(now) <= ttl / 8;
        self.since.boot >= now.boot || shared && is_new
    }
}

impl Session {
    pub(crate) fn new(asked: i64) -> Self {
        Self {
            asked,
            state: Mutex::new(State {
                phase: Phase::Starting,
                places: HashMap::new(),
                pulse: None,
                failures: 0,
                failure: None,
                wanted: false,
                idle_since: clock::now().boot,
            }),
            changed: watch::Sender::new(()),
            called: Notify::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a new attempt on `name` can have a place here.
    pub(crate) fn suits(&self, name: &Name) -> bool {
        let state = self.lock();
        let fit = match &state.phase {
            Phase::Starting => true,
            // One that the server may have ended is no place to begin.
            Phase::Live(_) => state
                .pulse
                .as_ref()
                .is_some_and(|pulse| pulse.is_young(clock::now())),
            Phase::Failed(..) | Phase::Over => false,
        };
        fit && !state.places.contains_key(name)
    }

    /// Waits until there is a lease.
    pub(crate) async fn ready(&self) -> Result<Lease> {
        let mut changed = self.changed.subscribe();
        loop {
            match &self.lock().phase {
                Phase::Starting => {}
                Phase::Live(lease) => return Ok(lease.clone()),
                Phase::Failed(kind, text) => return Err(Error::new(*kind, text.clone())),
                Phase::Over => return Err(lost()),
            }
            // Its sender lives as long as we do.
            let _ = changed.changed().await;
        }
    }

    /// Waits for a beat that is `fresh`.
    pub(crate) async fn beat(&self, fresh: impl Fn(&Pulse) -> bool) -> Result<Pulse> {
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

    /// The newest beat that counted.
    pub(crate) fn pulse(&self) -> Option<Pulse> {
        self.lock().pulse.clone()
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.lock().phase, Phase::Failed(..) | Phase::Over)
    }

    /// Whether it was there and isn't any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.lock().phase, Phase::Over)
    }

    /// The lease began, with what its grant counts as the first beat.
    pub(crate) fn begin(&self, lease: Lease, pulse: Pulse) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Starting) {
            state.phase = Phase::Live(lease);
            state.pulse = Some(pulse);
        }
        drop(state);
        self.changed.send_replace(());
    }

    pub(crate) fn fail(&self, error: &Error) {
        let mut state = self.lock();
        state.phase = Phase::Failed(error.kind(), described(error));
        state.places.values_mut().for_each(Place::ended);
        drop(state);
        self.changed.send_replace(());
    }

    /// A beat counted.
    pub(crate) fn beaten(&self, pulse: Pulse) {
        let mut state = self.lock();
        state.pulse = Some(pulse);
        state.failure = None;
        drop(state);
        self.changed.send_replace(());
    }

    /// A beat had no answer: that says nothing about the lease.
    pub(crate) fn missed(&self, error: &Error) {
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

    /// The lease has ended, and with it every key on it.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.phase = Phase::Over;
        state.places.values_mut().for_each(Place::ended);
        drop(state);
        self.tell_all();
        self.changed.send_replace(());
        self.called.notify_one();
    }

    /// Has every holder renew now, and every waiter look.
    pub(crate) fn tell_all(&self) {
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

    /// The canary was last written at this revision.
    pub(crate) fn written_at(&self, revision: i64) {
        if let Phase::Live(lease) = &mut self.lock().phase {
            lease.written = lease.written.max(revision);
        }
    }

    /// The lease, as long as it isn't known to have ended.
    pub(crate) fn lease(&self) -> Option<Lease> {
        match &self.lock().phase {
            Phase::Live(lease) => Some(lease.clone()),
            _ => None,
        }
    }
}

impl State {
    pub(crate) fn places(&mut self) -> &mut HashMap<Name, Place> {
        &mut self.places
    }

    /// Forgets the places that are over.
    pub(crate) fn sweep(&mut self) {
        let now = clock::now().boot;
        let before = self.places.len();
        self.places.retain(|_, place| !place.is_over(now));
        if before > 0 && self.places.is_empty() {
            self.idle_since = now;
        }
    }

    /// Forgets a place that is over.
    fn tidy(&mut self, name: &Name) {
        let now = clock::now().boot;
        if self
            .places
            .get(name)
            .is_some_and(|place| place.is_over(now))
        {
            self.places.remove(name);
            if self.places.is_empty() {
                self.idle_since = now;
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// A place on a session in an attempt's hand. When it is dropped, what may be in the store ends in its time.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) session: Arc<Session>,
    name: Name,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Seat {
    /// Takes a place; nobody else may have one of this name.
    pub(crate) fn take(session: Arc<Session>, name: Name) -> Self {
        let place = Place::default();
        let mailbox = place.mailbox.clone();
        session.lock().places.insert(name.clone(), place);
        Self {
            session,
            name,
            mailbox,
        }
    }

    /// Looks at the place or changes it.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Place) -> T) -> T {
        let mut state = self.session.lock();
        let due = |state: &State| state.places.get(&self.name).and_then(Place::due);
        let before = due(&state);
        let changed = change(state.places.entry(self.name.clone()).or_default());
        // The task sleeps until the first of all ends it knew of.
        let earlier = match (before, due(&state)) {
            (None, Some(_)) => true,
            (Some(before), Some(after)) => after < before,
            _ => false,
        };
        drop(state);
        if earlier {
            self.session.called.notify_one();
        }
        changed
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        if let Some(place) = state.places.get_mut(&self.name) {
            place.leave();
        }
        state.tidy(&self.name);
    }
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

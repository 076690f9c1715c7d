//! What is known of a session.

use std::collections::BTreeMap;

use super::{Place, Pulse, SessionStore};
use crate::clock;
use crate::error::ErrorKind;
use crate::name::Name;

#[derive(Debug)]
pub(super) struct State<S: SessionStore> {
    pub(super) phase: Phase<S::Live>,
    pub(super) places: BTreeMap<Name, Place<S::Made>>,
    pub(super) pulse: Option<Pulse>,
    /// Beats that failed, and what the last of them failed of.
    pub(super) failures: u64,
    pub(super) failure: Option<(ErrorKind, String)>,
    pub(super) wanted: bool,
    /// No attempt begins on it any more.
    pub(super) retired: bool,
    /// One attempt has it to itself.
    pub(super) lent: bool,
    /// Since when it has no places, or is retired (boot time).
    pub(super) idle_since: u64,
    /// When its task looks again by itself (boot time): to be called for what comes before, and for nothing else,
    /// because waking a thread costs more than a try's own work. In the past while it is awake.
    pub(super) looks_at: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Phase<L> {
    Starting,
    Live(L),
    /// It could not be started.
    Failed(ErrorKind, String),
    /// The store has ended it, or it was closed.
    Over,
}

impl<S: SessionStore> State<S> {
    pub(super) fn starting() -> Self {
        Self {
            phase: Phase::Starting,
            places: BTreeMap::new(),
            pulse: None,
            failures: 0,
            failure: None,
            wanted: false,
            retired: false,
            lent: false,
            idle_since: clock::now().boot,
            looks_at: 0,
        }
    }

    /// Whether attempts may begin here.
    pub(super) fn is_ready(&self) -> bool {
        let fit = match &self.phase {
            Phase::Starting => true,
            // One that the server may have ended is no place to begin.
            Phase::Live(_) => self
                .pulse
                .as_ref()
                .is_some_and(|pulse| pulse.is_young(clock::now())),
            Phase::Failed(..) | Phase::Over => false,
        };
        fit && !self.retired && !self.lent
    }

    /// Whether nobody holds or waits by it.
    pub(super) fn is_idle(&self) -> bool {
        if self.lent {
            return false;
        }
        let abandoned = self.retired && self.places.values().all(Place::is_abandoned);
        self.places.is_empty() || abandoned
    }

    /// Forgets the places that are over.
    pub(super) fn sweep(&mut self) {
        let now = clock::now().boot;
        let before = self.places.len();
        self.places.retain(|_, place| !place.is_over(now));
        if before > 0 && self.places.is_empty() {
            self.idle_since = now;
        }
    }

    /// Forgets a place that is over.
    pub(super) fn tidy(&mut self, name: &Name) {
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
}

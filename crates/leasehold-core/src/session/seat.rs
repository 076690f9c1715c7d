//! An attempt's hand on its place.

use std::sync::Arc;

use super::{Mailbox, Place, Session, SessionStore, State};
use crate::name::Name;

/// A place on a session in an attempt's hand. When it is dropped, what may be in the store ends in its time.
#[derive(Debug)]
pub struct Seat<S: SessionStore> {
    /// The session it is on.
    pub session: Arc<Session<S>>,
    /// Where the attempt is told.
    pub mailbox: Arc<Mailbox>,
    name: Name,
}

impl<S: SessionStore> Seat<S> {
    /// Takes a place; nobody else may have one of this name.
    pub(super) fn take(session: Arc<Session<S>>, name: Name) -> Self {
        let place = Place::default();
        let mailbox = place.mailbox.clone();
        session.lock().places.insert(name.clone(), place);
        Self {
            session,
            mailbox,
            name,
        }
    }

    /// Looks at the place or changes it.
    pub fn with<T>(&self, change: impl FnOnce(&mut Place<S::Made>) -> T) -> T {
        let mut state = self.session.lock();
        let due = |state: &State<S>| state.places.get(&self.name).and_then(Place::due);
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

impl<S: SessionStore> Drop for Seat<S> {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        if let Some(place) = state.places.get_mut(&self.name) {
            place.leave();
        }
        state.tidy(&self.name);
    }
}

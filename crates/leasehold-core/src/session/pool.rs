//! A client's sessions.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Lent, Seat, Session, SessionStore, heart};
use crate::error::Result;
use crate::name::Name;
use crate::{background, clock};

/// How long a session stays without places, where it is the only one ready for its TTL.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// And where it isn't.
const IDLE_SPARE: Duration = Duration::from_secs(5);

/// The sessions of one client; their tasks end them when it is dropped.
pub struct Pool<S: SessionStore> {
    store: Arc<S>,
    sessions: Mutex<Vec<Arc<Session<S>>>>,
}

impl<S: SessionStore> Pool<S> {
    /// A pool without sessions. `store` is used on the keeper's thread, by [`close`](Self::close) on the caller's.
    #[must_use]
    pub fn new(store: Arc<S>) -> Self {
        Self {
            store,
            sessions: Mutex::default(),
        }
    }

    /// A session of the TTL `asked` that nobody else has a place on: one that is there, or a new one.
    ///
    /// # Errors
    /// When the keeper can't be started.
    pub fn lend(self: &Arc<Self>, asked: Duration) -> Result<Lent<S>> {
        let mut sessions = self.lock();
        sessions.retain(|session| !session.is_over());
        let idle = sessions
            .iter()
            .find(|session| session.asked == asked && session.lend());
        if let Some(session) = idle {
            return Ok(Lent::new(session.clone()));
        }
        let session = Arc::new(Session::new(asked));
        session.lock().lent = true;
        self.begin(&mut sessions, session.clone())?;
        Ok(Lent::new(session))
    }

    /// Begins a session in the background.
    fn begin(
        self: &Arc<Self>,
        sessions: &mut Vec<Arc<Session<S>>>,
        session: Arc<Session<S>>,
    ) -> Result<()> {
        let (store, pool) = (self.store.clone(), Arc::downgrade(self));
        background::spawn(heart::run(session.clone(), store, pool))?;
        sessions.push(session);
        Ok(())
    }

    /// A place for an attempt on `name` on a session of the TTL `asked`: one that is there, or a new one.
    ///
    /// # Errors
    /// When the keeper can't be started.
    pub fn seat(self: &Arc<Self>, name: &Name, asked: Duration) -> Result<Seat<S>> {
        let mut sessions = self.lock();
        sessions.retain(|session| !session.is_over());
        let ready = sessions
            .iter()
            .find(|session| session.asked == asked && session.suits(name));
        if let Some(session) = ready {
            return Ok(Seat::take(session.clone(), name.clone()));
        }
        let session = Arc::new(Session::new(asked));
        self.begin(&mut sessions, session.clone())?;
        Ok(Seat::take(session, name.clone()))
    }

    /// Every session is [disturbed](Session::disturb).
    pub fn disturb(&self) {
        for session in self.lock().iter() {
            session.disturb();
        }
    }

    /// Whether a session without places is of no more use; then it is in the pool no longer.
    pub(super) fn may_end(&self, session: &Arc<Session<S>>) -> bool {
        let mut sessions = self.lock();
        let state = session.lock();
        let (idle, retired, since) = (state.is_idle(), state.retired, state.idle_since);
        drop(state);
        if !idle {
            return false;
        }
        let is_ready = |session: &Session<S>| {
            let state = session.lock();
            !state.retired && state.is_idle()
        };
        let spare = sessions.iter().any(|other| {
            other.asked == session.asked
                && !Arc::ptr_eq(other, session)
                && !other.is_over()
                && is_ready(other)
        });
        let most = if spare || retired {
            IDLE_SPARE
        } else {
            IDLE_MAX
        };
        let idle_for = clock::now().boot.saturating_sub(since);
        if Duration::from_nanos(idle_for) < most {
            return false;
        }
        sessions.retain(|other| !Arc::ptr_eq(other, session));
        true
    }

    /// Ends the sessions without places; the others end by their TTL.
    ///
    /// # Cancel safety
    /// Safe: what isn't ended then ends by its TTL.
    pub async fn close(&self) {
        let sessions = std::mem::take(&mut *self.lock());
        let mut ends = JoinSet::new();
        for session in sessions {
            let idle = session.lock().is_idle();
            if let Some(live) = session.live().filter(|_| idle) {
                let store = self.store.clone();
                ends.spawn(async move { store.end(live).await });
            }
            session.end();
        }
        while ends.join_next().await.is_some() {}
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Session<S>>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: SessionStore> Drop for Pool<S> {
    /// Nobody has a place any more: the sessions' tasks end them.
    fn drop(&mut self) {
        for session in self.lock().iter() {
            session.called.notify_one();
        }
    }
}

impl<S: SessionStore> fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("sessions", &self.lock().len())
            .finish_non_exhaustive()
    }
}

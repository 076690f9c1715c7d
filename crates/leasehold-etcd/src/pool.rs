//! A client's sessions.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Name, Result, background, clock};

use crate::feed::Feed;
use crate::heart;
use crate::link::Link;
use crate::session::{Seat, Session};

/// How long a session stays without places, where it is the only one ready for its TTL.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// And where it isn't.
const IDLE_SPARE: Duration = Duration::from_secs(5);

pub(crate) struct Pool {
    /// Renewals, sessions and watches: on the keeper's runtime.
    link: Arc<Link>,
    pub(crate) feed: Feed,
    sessions: Mutex<Vec<Arc<Session>>>,
}

impl Pool {
    pub(crate) fn start(link: Arc<Link>) -> Result<Arc<Self>> {
        let feed = Feed::start(link.clone())?;
        Ok(Arc::new(Self {
            link,
            feed,
            sessions: Mutex::default(),
        }))
    }

    /// A place for an attempt on `name` on a session of this TTL: one that is there, or a new one.
    pub(crate) fn seat(self: &Arc<Self>, name: &Name, ttl: Duration) -> Result<Seat> {
        let asked = seconds(ttl);
        let mut sessions = self.lock();
        sessions.retain(|session| !session.is_over());
        let ready = sessions
            .iter()
            .find(|session| session.asked == asked && session.suits(name));
        if let Some(session) = ready {
            return Ok(Seat::take(session.clone(), name.clone()));
        }
        let session = Arc::new(Session::new(asked));
        let task = heart::run(
            session.clone(),
            self.link.clone(),
            Arc::downgrade(self),
            self.feed.breaks(),
        );
        background::spawn(task)?;
        sessions.push(session.clone());
        Ok(Seat::take(session, name.clone()))
    }

    /// Whether a session without places is of no more use; then it is in the pool no longer.
    pub(crate) fn may_end(&self, session: &Arc<Session>) -> bool {
        let mut sessions = self.lock();
        let idle = |session: &Session| {
            let state = session.lock();
            state
                .is_empty()
                .then(|| clock::now().boot.saturating_sub(state.idle_since))
        };
        let Some(idle_for) = idle(session).map(Duration::from_nanos) else {
            return false;
        };
        let spare = sessions.iter().any(|other| {
            other.asked == session.asked
                && !Arc::ptr_eq(other, session)
                && !other.is_over()
                && idle(other).is_some()
        });
        let most = if spare { IDLE_SPARE } else { IDLE_MAX };
        if idle_for < most {
            return false;
        }
        sessions.retain(|other| !Arc::ptr_eq(other, session));
        true
    }

    /// Ends the sessions without places; the others end by their TTL.
    pub(crate) async fn close(&self) {
        let sessions = std::mem::take(&mut *self.lock());
        let mut leases = Vec::new();
        for session in sessions {
            let empty = session.lock().is_empty();
            if let Some(lease) = session.lease().filter(|_| empty) {
                leases.push(lease.id);
            }
            session.end();
        }
        let revokes = leases.into_iter().map(|id| heart::revoke(&self.link, id));
        futures_util::future::join_all(revokes).await;
        self.link.close();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    /// Nobody has a place any more: the sessions' tasks end them.
    fn drop(&mut self) {
        for session in self.lock().iter() {
            session.called.notify_one();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("sessions", &self.lock().len())
            .finish_non_exhaustive()
    }
}

/// Whole seconds, rounded up: what a lease can last.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    let up = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(up).unwrap_or(i64::MAX).max(1)
}

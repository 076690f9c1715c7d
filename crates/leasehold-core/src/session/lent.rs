//! A session that one attempt has to itself, where waiting for a lock takes a session of its own.

use std::fmt;
use std::sync::Arc;

use super::{Pulse, Seat, Session, SessionStore};
use crate::name::Name;

/// A session without places in one attempt's hand. Nobody else begins on it and it isn't kept alive, so that it ends in
/// its time when the attempt's process stands still. When this is dropped, the session is over.
pub struct Lent<S: SessionStore> {
    session: Option<Arc<Session<S>>>,
}

impl<S: SessionStore> Lent<S> {
    pub(super) fn new(session: Arc<Session<S>>) -> Self {
        Self {
            session: Some(session),
        }
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> Option<&Arc<Session<S>>> {
        self.session.as_ref()
    }

    /// Takes the first place on it; from here on it is a session as the others, of which `pulse` was the last beat. None
    /// where it has ended.
    #[must_use]
    pub fn seat(mut self, name: &Name, pulse: Pulse) -> Option<Seat<S>> {
        let session = self.session.take()?;
        session.give_back(pulse);
        (!session.is_over()).then(|| Seat::take(session, name.clone()))
    }
}

impl<S: SessionStore> Drop for Lent<S> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.end();
        }
    }
}

impl<S: SessionStore> fmt::Debug for Lent<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;

    use super::*;
    use crate::clock;
    use crate::error::Result;
    use crate::session::Pool;

    const TTL: Duration = Duration::from_millis(400);

    /// A store whose sessions are numbered, and count their beats.
    #[derive(Debug, Default)]
    struct Numbered {
        begun: AtomicUsize,
        beats: AtomicUsize,
    }

    fn pulse() -> Pulse {
        Pulse {
            since: clock::now(),
            ttl: TTL,
            keys: Arc::default(),
        }
    }

    #[async_trait]
    impl SessionStore for Numbered {
        type Live = usize;
        type Made = ();

        async fn begin(&self, _: &Arc<Session<Self>>) -> Result<(usize, Pulse)> {
            Ok((self.begun.fetch_add(1, Ordering::SeqCst), pulse()))
        }

        async fn beat(&self, _: &Session<Self>, _: &usize) -> Result<Option<Pulse>> {
            self.beats.fetch_add(1, Ordering::SeqCst);
            Ok(Some(pulse()))
        }

        async fn give_up(&self, _: &Session<Self>, _: &Name) -> Result<()> {
            Ok(())
        }

        async fn end(&self, _: usize) {}
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[tokio::test]
    async fn nobody_begins_on_a_lent_session_and_nothing_keeps_it_alive() {
        let store = Arc::new(Numbered::default());
        let pool = Arc::new(Pool::new(store.clone()));
        let lent = pool.lend(TTL).unwrap();
        let session = lent.session().unwrap().clone();
        assert_eq!(session.ready().await.unwrap(), 0);
        tokio::time::sleep(TTL).await;
        assert_eq!(store.beats.load(Ordering::SeqCst), 0);
        let other = pool.seat(&name("other"), TTL).unwrap();
        assert_eq!(other.session.ready().await.unwrap(), 1);
        // Given back it is kept alive, and has room for others.
        let seat = lent.seat(&name("first"), pulse()).unwrap();
        tokio::time::sleep(TTL).await;
        assert!(store.beats.load(Ordering::SeqCst) > 0);
        assert!(!seat.session.is_over());
    }

    #[tokio::test]
    async fn an_idle_session_is_lent_again_and_ends_when_it_is_dropped() {
        let store = Arc::new(Numbered::default());
        let pool = Arc::new(Pool::new(store.clone()));
        let seat = pool.seat(&name("x"), TTL).unwrap();
        seat.session.ready().await.unwrap();
        // One that somebody has a place on isn't lent.
        let second = pool.lend(TTL).unwrap();
        let session = second.session().unwrap().clone();
        assert_eq!(session.ready().await.unwrap(), 1);
        drop(second);
        assert!(session.has_ended());
        drop(seat);
        let again = pool.lend(TTL).unwrap();
        assert_eq!(again.session().unwrap().ready().await.unwrap(), 0);
    }
}

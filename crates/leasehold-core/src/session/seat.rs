//! An attempt's hand on its place.

use std::sync::Arc;
use std::time::Duration;

use super::{Mailbox, Place, Pulse, Session, SessionStore, end};
use crate::backend::{LossReason, Renewal};
use crate::clock::{self, Moment};
use crate::error::Result;
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
        let place = state.places.entry(self.name.clone()).or_default();
        let changed = change(place);
        let due = place.due();
        let late = due.is_some_and(|due| due < state.looks_at);
        drop(state);
        if late {
            self.session.called.notify_one();
        }
        changed
    }

    /// The beat that a hold can begin with. None where the session has ended.
    ///
    /// # Errors
    /// When none had an answer.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn beginning(&self) -> Result<Option<Pulse>> {
        // Mostly the newest will do; after an outage it is too old.
        let now = clock::now();
        self.answer(|pulse| pulse.is_young(now)).await
    }

    /// The beat that answers a renewal for `ttl` more of a hold that was renewed by one of `last`. None where the session
    /// has ended.
    ///
    /// The keeper's renewals are answered by the beat that was due shortly before them, `shared` by all. Whoever was told
    /// of something, or asks for another time than was claimed, wants to know from now on: then it isn't.
    ///
    /// # Errors
    /// When the next one had no answer.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn renewing(
        &self,
        ttl: Duration,
        last: Moment,
        shared: bool,
    ) -> Result<Option<Pulse>> {
        let now = clock::now();
        self.answer(|pulse| pulse.renews(now, last, ttl, shared))
            .await
    }

    async fn answer(&self, fits: impl Fn(&Pulse) -> bool) -> Result<Option<Pulse>> {
        match self.session.beat(fits).await {
            Ok(pulse) => Ok(Some(pulse)),
            Err(_) if self.session.is_over() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has the place last `ttl` from a beat, or less where that is worth less: what comes of the renewal.
    pub fn renewed(&self, pulse: &Pulse, ttl: Duration) -> Renewal {
        let ttl = ttl.min(pulse.ttl);
        if self.with(|place| place.last(clock::now().boot, end(pulse.since, ttl))) {
            Renewal::Renewed {
                since: pulse.since,
                ttl,
            }
        } else {
            Renewal::Lost(LossReason::Expired)
        }
    }

    /// Why a hold is lost whose place isn't there any more.
    pub fn loss(&self) -> LossReason {
        if self.session.is_over() {
            LossReason::SessionLost
        } else {
            LossReason::Broken
        }
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

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::error::{Error, ErrorKind};

    /// A store that answers nothing.
    #[derive(Debug)]
    struct Silent;

    #[async_trait]
    impl SessionStore for Silent {
        type Live = ();
        type Made = ();

        async fn begin(&self, _: &Arc<Session<Self>>) -> Result<((), Pulse)> {
            Err(Error::new(ErrorKind::Unavailable, "silent"))
        }

        async fn beat(&self, _: &Session<Self>, (): &()) -> Result<Option<Pulse>> {
            Err(Error::new(ErrorKind::Unavailable, "silent"))
        }

        async fn give_up(&self, _: &Session<Self>, _: &Name) -> Result<()> {
            Err(Error::new(ErrorKind::Unavailable, "silent"))
        }

        async fn end(&self, (): ()) {}
    }

    const TTL: Duration = Duration::from_secs(10);

    /// A place whose key was made for a TTL.
    fn seat() -> Seat<Silent> {
        let seat = Seat::take(Arc::new(Session::new(TTL)), Name::new("x").unwrap());
        seat.with(|place| {
            assert!(place.send(end(clock::now(), TTL)));
            place.answered();
            place.made = Some(());
        });
        seat
    }

    fn pulse(ttl: Duration) -> Pulse {
        Pulse {
            since: clock::now(),
            ttl,
            keys: Arc::default(),
        }
    }

    #[tokio::test]
    async fn the_task_is_called_for_what_ends_before_it_looks_and_for_nothing_else() {
        for (looks_in, called) in [(TTL * 2, true), (TTL / 2, false)] {
            let seat = Seat::take(
                Arc::new(Session::<Silent>::new(TTL)),
                Name::new("x").unwrap(),
            );
            seat.session.lock().looks_at = end(clock::now(), looks_in);
            assert!(seat.with(|place| place.send(end(clock::now(), TTL))));
            let call = tokio::time::timeout(Duration::ZERO, seat.session.called.notified());
            assert_eq!(call.await.is_ok(), called);
        }
    }

    #[tokio::test]
    async fn a_renewal_lasts_no_longer_than_the_beat_is_worth() {
        let seat = seat();
        for (worth, lasts) in [(TTL, TTL), (TTL / 2, TTL / 2), (TTL * 2, TTL)] {
            let pulse = pulse(worth);
            let renewed = Renewal::Renewed {
                since: pulse.since,
                ttl: lasts,
            };
            assert_eq!(seat.renewed(&pulse, TTL), renewed);
        }
    }

    /// Its session has begun to delete its key: a beat that comes then is no renewal.
    #[tokio::test]
    async fn what_is_given_up_is_not_renewed_by_a_beat() {
        let seat = seat();
        let over = end(clock::now(), TTL * 2);
        assert!(seat.with(|place| place.give_up(over)));
        let renewal = seat.renewed(&pulse(TTL), TTL);
        assert_eq!(renewal, Renewal::Lost(LossReason::Expired));
    }

    #[tokio::test]
    async fn an_ended_session_is_why_a_hold_is_lost_and_answers_no_renewal() {
        let seat = seat();
        assert_eq!(seat.loss(), LossReason::Broken);
        seat.session.end();
        assert_eq!(seat.loss(), LossReason::SessionLost);
        let last = clock::now();
        assert!(seat.renewing(TTL, last, true).await.unwrap().is_none());
        assert!(seat.beginning().await.unwrap().is_none());
    }
}

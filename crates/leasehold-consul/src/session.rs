//! Consul's part of a session: what it takes to begin one, to keep it alive and to end it.
//!
//! A server counts a session's TTL anew from each renewal, waits twice as long, and begins anew when it becomes the
//! leader. So a renewal counts from its send and for one TTL. A leader that was replaced without noticing may answer a
//! renewal that the new one never hears of: that is harmless within a TTL of the change, because the new one waits two
//! TTLs from there. That it is no later than that shows a read that follows through the same agent and that only a
//! leader answers whom most of the servers follow.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::session::{self, Pulse, SessionStore};
use leasehold_core::{Error, ErrorKind, Name, Result, clock};

use crate::api::STEPS_MAX;
use crate::ending;
use crate::error::Failure;
use crate::keys;
use crate::link::Link;
use crate::wire::{NewSession, Op};

/// How long a session or its end may take to be answered.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a server keeps the question whether a session has ended.
const VIGIL: Duration = Duration::from_secs(30);
/// The pause after a broken connection.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) type Session = session::Session<Renewals>;
pub(crate) type Seat = session::Seat<Renewals>;
pub(crate) type Pool = session::Pool<Renewals>;
pub(crate) type Place = session::Place<Made>;

/// A lock's key as its hold knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// When it was modified last.
    pub(crate) index: u64,
}

/// What renews sessions, on the keeper's runtime.
#[derive(Debug)]
pub(crate) struct Renewals {
    pub(crate) link: Arc<Link>,
    pub(crate) lock_delay: Duration,
}

/// The answers of one beat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    /// Some server renewed the session.
    pub(crate) renewed: bool,
    /// A leader whom most of the servers follow says afterwards that it is there.
    pub(crate) is_there: bool,
    /// Both answers came through the same agent.
    pub(crate) same_agent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The session lasts its TTL from the send of the renewal.
    Renewed,
    /// It has ended.
    Gone,
    /// These answers prove nothing.
    Again,
}

pub(crate) fn verdict(evidence: Evidence) -> Verdict {
    match evidence {
        // That is believed whoever renewed it.
        Evidence {
            is_there: false, ..
        } => Verdict::Gone,
        Evidence {
            renewed: true,
            same_agent: true,
            ..
        } => Verdict::Renewed,
        _ => Verdict::Again,
    }
}

/// A session as it is asked for.
pub(crate) fn new_session(ttl: Duration, lock_delay: Duration) -> NewSession {
    NewSession {
        name: "leasehold",
        ttl: format!("{}s", whole(ttl).as_secs()),
        lock_delay: format!("{}s", lock_delay.as_secs()),
        behavior: "release",
        node: None,
        node_checks: [],
    }
}

/// Whole seconds, rounded up: the TTLs that locks share sessions of.
pub(crate) fn whole(ttl: Duration) -> Duration {
    Duration::from_secs(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0))
}

#[async_trait]
impl SessionStore for Renewals {
    type Live = Arc<str>;
    type Made = Made;

    async fn begin(&self, session: &Arc<Session>) -> Result<(Arc<str>, Pulse)> {
        let since = clock::now();
        let new = new_session(session.asked(), self.lock_delay);
        let id: Arc<str> = self.link.create_session(new, PATIENCE).await?.into();
        tokio::spawn(vigil(
            Arc::downgrade(session),
            self.link.clone(),
            id.clone(),
        ));
        let pulse = Pulse {
            since,
            ttl: session.asked(),
            keys: Arc::default(),
        };
        Ok((id, pulse))
    }

    async fn beat(&self, session: &Session, id: &Arc<str>) -> Result<Option<Pulse>> {
        // Several must fit into a TTL.
        let patience = (session.asked() / 6).clamp(Duration::from_millis(400), PATIENCE);
        let turn = self.link.turn();
        let since = clock::now();
        let renewed = self.link.renew_session(id, patience).await?;
        let evidence = Evidence {
            renewed,
            is_there: self.link.session(id, patience).await?.is_some(),
            same_agent: self.link.turn() == turn,
        };
        match verdict(evidence) {
            Verdict::Gone => Ok(None),
            Verdict::Again => Err(Error::new(
                ErrorKind::Unavailable,
                "the cluster's leader changes; the renewal proves nothing",
            )),
            Verdict::Renewed => Ok(Some(Pulse {
                since,
                ttl: session.asked(),
                keys: Arc::new(self.locked(session, id, patience).await?),
            })),
        }
    }

    async fn give_up(&self, session: &Session, name: &Name) -> Result<()> {
        ending::end(&self.link, session, name, PATIENCE).await?;
        let unanswered = session.place(name, |place| place.unanswered);
        if unanswered.is_none_or(|unanswered| unanswered == 0) {
            return Ok(());
        }
        // Nothing but the session's end keeps it from landing. Others may hold by this session, so that must wait;
        // until then it is looked after again and again.
        session.retire();
        Err(Error::new(
            ErrorKind::Ambiguous,
            "a try without an answer may still land",
        ))
    }

    async fn end(&self, id: Arc<str>) {
        if let Err(failure) = self.link.destroy_session(&id, PATIENCE).await {
            tracing::debug!(?failure, session = %id, "the session is left to end by itself");
        }
    }
}

impl Renewals {
    /// The keys among those of a session's holds that it has locked. Who misses his is told.
    async fn locked(
        &self,
        session: &Session,
        id: &str,
        patience: Duration,
    ) -> Result<HashSet<Vec<u8>>, Failure> {
        let held = session.each(|name, place| place.made.is_some().then(|| name.clone()));
        let mut locked = HashSet::with_capacity(held.len());
        for names in held.chunks(STEPS_MAX) {
            let keys: Vec<String> = names.iter().map(keys::key).collect();
            let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::is_of(key, id)).collect();
            let answer = self.link.look(&ops, patience).await?;
            let missing: HashSet<usize> =
                answer.errors().iter().map(|error| error.op_index).collect();
            for (at, (name, key)) in names.iter().zip(keys).enumerate() {
                if missing.contains(&at) {
                    session.place(name, |place| place.mailbox.put());
                } else {
                    locked.insert(key.into_bytes());
                }
            }
        }
        Ok(locked)
    }
}

/// Has a server say when a session ends, and so learns at once also when the connection breaks.
async fn vigil(session: Weak<Session>, link: Arc<Link>, id: Arc<str>) {
    let mut index = 0;
    let mut broken = false;
    while session.upgrade().is_some_and(|session| !session.is_over()) {
        let (pause, disturb) = match link.changed_session(&id, index, VIGIL).await {
            Ok((true, next)) => {
                index = follow(index, next);
                broken = false;
                (Duration::ZERO, false)
            }
            // Whether that is so shows a beat.
            Ok((false, _)) => (PAUSE, true),
            Err(failure) => {
                tracing::debug!(?failure, session = %id, "the connection to a server broke");
                index = 0;
                (PAUSE, !std::mem::replace(&mut broken, true))
            }
        };
        if disturb && let Some(session) = session.upgrade() {
            session.disturb();
        }
        tokio::time::sleep(pause).await;
    }
}

/// The index that a blocking query goes on from. One that has gone back is of another history: from the beginning.
pub(crate) fn follow(known: u64, told: u64) -> u64 {
    if told < known { 0 } else { told.max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_goes_back_begins_anew_and_none_is_ever_asked_for_at_once_again() {
        assert_eq!(follow(0, 7), 7);
        assert_eq!(follow(7, 9), 9);
        assert_eq!(follow(9, 7), 0);
        // Zero would be answered at once, again and again.
        assert_eq!(follow(0, 0), 1);
    }

    #[test]
    fn a_renewal_counts_with_the_read_that_follows_and_only_that_ends_a_session() {
        let of = |renewed, is_there, same_agent| {
            verdict(Evidence {
                renewed,
                is_there,
                same_agent,
            })
        };
        assert_eq!(of(true, true, true), Verdict::Renewed);
        // A server that lags behind doesn't know it.
        assert_eq!(of(false, true, true), Verdict::Again);
        assert_eq!(of(true, true, false), Verdict::Again);
        for (renewed, same_agent) in [(true, true), (true, false), (false, true)] {
            assert_eq!(of(renewed, false, same_agent), Verdict::Gone);
        }
    }

    #[test]
    fn ttls_are_whole_seconds_and_never_shorter() {
        for (millis, text) in [(10_000, "10s"), (10_001, "11s"), (86_400_000, "86400s")] {
            let session = new_session(Duration::from_millis(millis), Duration::ZERO);
            assert_eq!(session.ttl, text);
        }
    }
}

//! PostgreSQL's part of a session: a connection that is begun, kept from being idle, and closed.
//!
//! The server ends a session that was idle for its TTL, and its locks with it. It counts from the end of the last statement,
//! so whoever counts from the send of one is never late. A statement in flight keeps a session from being idle: so one that
//! holds never waits for a lock, and one that waits holds nothing and isn't kept alive (see [`crate::contender`]).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::session::{self, Pulse, SessionStore};
use leasehold_core::{Name, Result, clock};

use crate::config::Config;
use crate::error::Failure;
use crate::keys::Key;
use crate::link::{Link, Purpose, within};
use crate::probe;

/// How long an unlock may take to be answered.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) type Session = session::Session<Sessions>;
pub(crate) type Seat = session::Seat<Sessions>;
pub(crate) type Lent = session::Lent<Sessions>;
pub(crate) type Pool = session::Pool<Sessions>;
pub(crate) type Place = session::Place<Made>;
pub(crate) type Turn = session::Turn<Key>;
pub(crate) type Turns = session::Turns<Key>;

/// A grant as its place knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) token: u64,
}

/// Where sessions are begun.
#[derive(Debug)]
pub(crate) struct Sessions(pub(crate) Arc<Config>);

#[async_trait]
impl SessionStore for Sessions {
    type Live = Arc<Link>;
    type Made = Made;

    async fn begin(&self, session: &Arc<Session>) -> Result<(Arc<Link>, Pulse)> {
        let weak = Arc::downgrade(session);
        let over = move || {
            if let Some(session) = weak.upgrade() {
                session.end();
            }
        };
        let link = Link::open(&self.0, Purpose::Hold(session.asked()), over).await?;
        let pulse = Pulse {
            since: link.since,
            ttl: session.asked(),
            keys: Arc::default(),
        };
        Ok((Arc::new(link), pulse))
    }

    async fn beat(&self, session: &Session, link: &Arc<Link>) -> Result<Option<Pulse>> {
        // Several must fit into a session.
        let patience = (session.asked() / 6).clamp(Duration::from_millis(250), PATIENCE);
        let since = clock::now();
        match within(patience, link.beat()).await {
            Ok(pid) if pid == link.pid => {}
            Ok(_) => return Err(probe::pooled()),
            Err(Failure::Closed(_)) => return Ok(None),
            Err(failure) => return Err(failure.into()),
        }
        look_for_breaks(session, link, patience).await;
        Ok(Some(Pulse {
            since,
            ttl: session.asked(),
            keys: Arc::default(),
        }))
    }

    async fn give_up(&self, session: &Session, name: &Name) -> Result<()> {
        if let (Some(link), Some(key)) = (session.live(), Key::of_place(name)) {
            unlock(&link, session, name, key).await?;
        }
        Ok(())
    }

    async fn end(&self, link: Arc<Link>) {
        // What it is closed by.
        drop(link);
    }
}

/// Ends the holds that an operator has taken away. Without an answer the next beat looks again.
async fn look_for_breaks(session: &Session, link: &Link, patience: Duration) {
    let holds = session.each(|_, place| place.made);
    if holds.is_empty() {
        return;
    }
    let broken = match within(patience, link.broken()).await {
        Ok(broken) => broken,
        Err(failure) => return tracing::debug!(?failure, "broken holds can't be looked for"),
    };
    let now = clock::now().boot;
    for (key, token) in broken {
        let Ok(name) = Name::new(&key) else { continue };
        session.place(&name, |place| {
            if place
                .made
                .is_some_and(|made| i64::try_from(made.token) == Ok(token))
            {
                place.cut_short(now);
            }
        });
    }
}

/// Gives back what a place took, whether or not an answer ever said that it did; answers whether it had anything. What was
/// asked before on the session is done by then, so nothing of it will come.
pub(crate) async fn unlock(
    link: &Link,
    session: &Session,
    name: &Name,
    key: Key,
) -> Result<bool, Failure> {
    if session
        .place(name, |place| place.is_clean())
        .unwrap_or(true)
    {
        return Ok(false);
    }
    match within(PATIENCE, link.unlock(key)).await {
        // With the session its locks end.
        Err(Failure::Closed(_)) => Ok(false),
        unlocked => unlocked,
    }
}

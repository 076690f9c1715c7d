//! ZooKeeper's part of a session: begun, renewed by a write, ended.
//!
//! A server that is cut off from the leader goes on answering pings and reads, and the leader doesn't hear of them. So
//! a beat is a write without effect, which a majority agreed to. What a holder may count on from then on is three quarters
//! of the session's timeout, and less after a pause: see [`crate::heard`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::session::{self, Pulse, SessionStore};
use leasehold_core::{Error, ErrorKind, Name, Result, clock};

use crate::config::Config;
use crate::ending;
use crate::error::{Failure, unexpected};
use crate::heard::usable;
use crate::link::Link;
#[cfg(test)]
use crate::simulation::fault;
use crate::wire::{Request, Stat};

/// How long a session's end may take to be answered.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) type Session = session::Session<Ensemble>;
pub(crate) type Seat = session::Seat<Ensemble>;
pub(crate) type Pool = session::Pool<Ensemble>;
pub(crate) type Place = session::Place<Made>;

/// A place's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) path: String,
    pub(crate) stat: Stat,
}

/// Where sessions are begun.
#[derive(Debug)]
pub(crate) struct Ensemble(pub(crate) Arc<Config>);

#[async_trait]
impl SessionStore for Ensemble {
    type Live = Arc<Link>;
    type Made = Made;

    async fn begin(&self, session: &Arc<Session>) -> Result<(Arc<Link>, Pulse)> {
        let watched = Arc::downgrade(session);
        let disturbed = move || {
            if let Some(session) = watched.upgrade() {
                session.disturb();
            }
        };
        let link = Link::open(self.0.clone(), session.asked(), disturbed).await?;
        let pulse = Pulse {
            since: link.since(),
            ttl: usable(link.timeout()),
            keys: Arc::default(),
        };
        Ok((Arc::new(link), pulse))
    }

    async fn beat(&self, session: &Session, link: &Arc<Link>) -> Result<Option<Pulse>> {
        // Several must fit into a session.
        let patience = (session.asked() / 8).clamp(Duration::from_millis(250), PATIENCE);
        let since = clock::now();
        link.resume(since);
        let beat = [Request::nothing(), Request::own(self.0.root())];
        #[cfg(test)]
        let beat = fault::beat(beat, self.0.root());
        let [written, own] = link.call(beat, patience).await;
        #[cfg(test)]
        if let Some(pulse) = fault::pulse(&written, since, session) {
            return Ok(Some(pulse));
        }
        match written.and(own) {
            Ok(own) => Ok(Some(Pulse {
                since,
                ttl: link.worth(since).ok_or_else(|| {
                    Error::new(
                        ErrorKind::Unavailable,
                        "the leader may not have heard of the session for too long",
                    )
                })?,
                keys: Arc::new(
                    own.texts()
                        .ok_or_else(|| unexpected("the session's nodes"))?
                        .into_iter()
                        .map(String::into_bytes)
                        .collect(),
                ),
            })),
            Err(Failure::SessionOver) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn give_up(&self, session: &Session, name: &Name) -> Result<()> {
        let Some(link) = session.live() else {
            return Ok(());
        };
        ending::end(&link, session, &self.0, name, PATIENCE).await?;
        Ok(())
    }

    async fn end(&self, link: Arc<Link>) {
        link.close(PATIENCE).await;
    }
}

//! PostgreSQL's part of a session: a connection that is begun, kept from being idle, and closed.
//!
//! The server ends a session that was idle for its TTL, and its locks with it. It counts from the end of the last statement,
//! so whoever counts from the send of one is never late. A statement in flight keeps a session from being idle: so one that
//! holds never waits for a lock, and one that waits holds nothing and isn't kept alive (see [`advisory`]).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::advisory::{self, within};
use leasehold_core::session::{self, Pulse, SessionStore};
use leasehold_core::{Name, Result, Token};

use crate::backend::Store;
use crate::link::{Link, Purpose};

/// How long a beat may take to be answered, and then the question whether an operator took holds away.
const PATIENCE: Duration = Duration::from_secs(2);

type Session = session::Session<Store>;

#[async_trait]
impl SessionStore for Store {
    type Live = Arc<Link>;
    type Made = Token;

    async fn begin(&self, session: &Arc<Session>) -> Result<(Arc<Link>, Pulse)> {
        let purpose = Purpose::Hold(session.asked());
        let link = Link::open(&self.config, purpose, session.ender()).await?;
        let pulse = Pulse::new(link.since, session.asked());
        Ok((Arc::new(link), pulse))
    }

    async fn beat(&self, session: &Session, link: &Arc<Link>) -> Result<Option<Pulse>> {
        let pulse = advisory::beat(session, link, PATIENCE).await?;
        if pulse.is_some() {
            look_for_breaks(session, link).await;
        }
        Ok(pulse)
    }

    async fn give_up(&self, session: &Session, lock: &Name) -> Result<()> {
        if let Some(link) = session.live() {
            advisory::unlock(&*link, session, lock).await?;
        }
        Ok(())
    }

    async fn end(&self, link: Arc<Link>) {
        // What it is closed by.
        drop(link);
    }
}

/// Ends the holds that an operator has taken away. Without an answer the next beat looks again.
async fn look_for_breaks(session: &Session, link: &Link) {
    if session.each(|_, place| place.made).is_empty() {
        return;
    }
    let patience = advisory::patience(session, PATIENCE);
    match within(patience, link.broken()).await {
        Ok(broken) => advisory::end_broken(session, &broken),
        Err(failure) => tracing::debug!(?failure, "broken holds can't be looked for"),
    }
}

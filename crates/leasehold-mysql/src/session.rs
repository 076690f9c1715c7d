//! MySQL's part of a session: a connection that is begun, kept from being silent, and closed.
//!
//! The server ends a session that it has heard nothing of for its TTL, and its locks with it. It counts from the end of the
//! last statement, so whoever counts from the send of one is never late. A statement in flight keeps a session from being
//! silent: so one that holds never waits for a lock, and one that waits holds nothing and isn't kept alive (see
//! [`advisory`]).

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::advisory;
use leasehold_core::session::{self, Pulse, SessionStore};
use leasehold_core::{Name, Result, Token, background, clock};

use crate::backend::Store;
use crate::link::{Link, Purpose, get, named};
use crate::sql;

/// How long a beat may take to be answered, with what is asked before it.
const BEAT: Duration = Duration::from_secs(3);
/// How often a session that holds is looked at: whether it is still there, and whether an operator took a hold away.
const WATCH: Duration = Duration::from_secs(1);

type Session = session::Session<Store>;

#[async_trait]
impl SessionStore for Store {
    type Live = Arc<Link>;
    type Made = Token;

    async fn begin(&self, session: &Arc<Session>) -> Result<(Arc<Link>, Pulse)> {
        let purpose = Purpose::Hold(session.asked());
        let link = Arc::new(Link::open(&self.config, purpose, session.ender()).await?);
        let pulse = Pulse::new(link.since, session.asked());
        background::spawn_here(watch(Arc::downgrade(session), Arc::downgrade(&link)));
        Ok((link, pulse))
    }

    async fn beat(&self, session: &Session, link: &Arc<Link>) -> Result<Option<Pulse>> {
        advisory::beat(session, link, BEAT).await
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

/// Looks at a session as long as it is there. One that nobody holds by is left alone: were it kept alive, one that waits
/// would hold for ever what it is granted while its attempt stands still.
async fn watch(session: Weak<Session>, link: Weak<Link>) {
    loop {
        clock::sleep(WATCH).await;
        let (Some(session), Some(link)) = (session.upgrade(), link.upgrade()) else {
            return;
        };
        if session.is_over() {
            return;
        }
        if session.each(|_, place| place.made).is_empty() {
            continue;
        }
        let broken = link.ask(sql::BROKEN, named([("start", link.start.into())]));
        // The connection isn't kept for this answer.
        drop(link);
        match broken.await {
            Ok(broken) if broken.rows.is_empty() => {}
            Ok(broken) => {
                let holds = broken.rows.iter().filter_map(|row| {
                    let name: String = get(row, 0).ok()?;
                    Some((Name::new(&name).ok()?, Token::new(get(row, 1).ok()?)?))
                });
                advisory::end_broken(&session, &holds.collect::<Vec<_>>());
                session.disturb();
            }
            Err(failure) => tracing::debug!(?failure, "broken holds can't be looked for"),
        }
    }
}

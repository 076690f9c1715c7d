//! MySQL's part of a session: a connection that is begun, kept from being silent, and closed.
//!
//! The server ends a session that it has heard nothing of for its TTL, and its locks with it. It counts from the end of the
//! last statement, so whoever counts from the send of one is never late. A statement in flight keeps a session from being
//! silent: so one that holds never waits for a lock, and one that waits holds nothing and isn't kept alive (see
//! [`crate::contender`]).

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::session::{self, Pulse, SessionStore};
use leasehold_core::{Name, Result, background, clock};

use crate::config::Config;
use crate::error::Failure;
use crate::keys::lock_name;
use crate::link::{Answer, Link, Purpose, get, named, proxied, within};
use crate::sql;

/// How long an unlock may take to be answered.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a beat may take to be answered, with what is asked before it.
const BEAT: Duration = Duration::from_secs(3);
/// How often a session that holds is looked at: whether it is still there, and whether an operator took a hold away.
const WATCH: Duration = Duration::from_secs(1);

pub(crate) type Session = session::Session<Sessions>;
pub(crate) type Seat = session::Seat<Sessions>;
pub(crate) type Lent = session::Lent<Sessions>;
pub(crate) type Pool = session::Pool<Sessions>;
pub(crate) type Place = session::Place<Made>;
pub(crate) type Turn = session::Turn<Name>;
pub(crate) type Turns = session::Turns<Name>;

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
        let link = Arc::new(link);
        background::spawn_here(watch(Arc::downgrade(session), Arc::downgrade(&link)));
        Ok((link, pulse))
    }

    async fn beat(&self, session: &Session, link: &Arc<Link>) -> Result<Option<Pulse>> {
        // Several must fit into a session.
        let patience = (session.asked() / 6).clamp(Duration::from_millis(250), BEAT);
        let since = clock::now();
        match within(patience, link.beat()).await {
            Ok(id) if id == link.id => Ok(Some(Pulse {
                since,
                ttl: session.asked(),
                keys: Arc::default(),
            })),
            Ok(_) => Err(proxied()),
            Err(Failure::Closed(_)) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn give_up(&self, session: &Session, name: &Name) -> Result<()> {
        if let Some(link) = session.live() {
            unlock(&link, session, name).await?;
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
            Ok(broken) => end_broken(&session, &broken),
            Err(failure) => tracing::debug!(?failure, "broken holds can't be looked for"),
        }
    }
}

/// Ends the holds that an operator has taken away.
fn end_broken(session: &Session, broken: &Answer) {
    let now = clock::now().boot;
    for row in &broken.rows {
        let (Ok(name), Ok(token)) = (get::<String>(row, 0), get::<u64>(row, 1)) else {
            continue;
        };
        let Ok(name) = Name::new(&name) else { continue };
        session.place(&name, |place| {
            if place.made == Some(Made { token }) {
                place.cut_short(now);
            }
        });
    }
    if !broken.rows.is_empty() {
        session.disturb();
    }
}

/// Gives back what a place took, whether or not an answer ever said that it did; answers whether it had anything. What was
/// asked before on the session is done by then, so nothing of it will come.
pub(crate) async fn unlock(link: &Link, session: &Session, name: &Name) -> Result<bool, Failure> {
    if session
        .place(name, |place| place.is_clean())
        .unwrap_or(true)
    {
        return Ok(false);
    }
    match within(PATIENCE, link.unlock(&lock_name(name))).await {
        // With the session its locks end.
        Err(Failure::Closed(_)) => Ok(false),
        unlocked => unlocked,
    }
}

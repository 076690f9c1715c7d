//! A try: judged by what is read, and done in a transaction where it changes anything.
//!
//! Served in the order of the queue. Whoever is first in it may take a free lock at once. The one behind `n`
//! others may once it has been free for `n` grace periods, and those it passes over lose their places: they are
//! stopped or too slow, and must not keep the lock free for ever. That needs no sign of life from waiters.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::Busy;
use leasehold_core::{ErrorKind, Identity, Name, Token, clock};
use rusqlite::{OptionalExtension, params};

use crate::error::Failure;
use crate::liveness::{Corpse, Pulse};
use crate::table::{RowHold, boot, boot_of, nanoseconds, span};
use crate::work::Work;

/// How long the first in the queue has a free lock to itself.
const GRACE: Duration = Duration::from_millis(500);

/// How long a waiter goes without looking: one that was stopped and has lost its place is not called any more.
const LOOK: Duration = Duration::from_secs(1);

/// How often a waiter looks whom the system can't wake.
pub(crate) const DEAF: Duration = Duration::from_millis(40);

/// What a contender asks for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) name: Name,
    pub(crate) owner: String,
    pub(crate) ttl: Duration,
    pub(crate) waits: bool,
    pub(crate) identity: Arc<Identity>,
}

/// What a try comes to, by what was read.
enum Verdict {
    Busy(Busy),
    /// The lock is free and it is our turn; our place, and whether others are passed over.
    Take {
        place: Option<i64>,
        ahead: u32,
    },
    /// We hold it already.
    Extend(i64),
    /// Take a place in the queue.
    Queue,
    /// A process in our way is dead.
    Bury(Corpse),
    /// The row is of another clock and new to us.
    Observe,
}

impl Work {
    /// The token, or who is in the way.
    pub(crate) fn attempt(&mut self, ask: &Ask) -> Result<Result<Token, Busy>, Failure> {
        loop {
            let verdict = match self.judge(ask)? {
                Verdict::Busy(mut busy) => {
                    if ask.waits && !self.listen() {
                        busy.retry_in = busy.retry_in.map(|pause| pause.min(DEAF));
                    }
                    return Ok(Err(busy));
                }
                verdict => verdict,
            };
            // In a transaction that was opened just now, it is judged anew.
            if !self.begin()? {
                continue;
            }
            // Each of these takes something out of the way, so that the loop ends.
            match verdict {
                Verdict::Busy(_) => {}
                Verdict::Take { place, ahead } => {
                    return self.grant(ask, place, ahead).map(Ok);
                }
                // Asked again by the holder: the hold counts from this try on, so it must last from this try
                // on. Where its time is over by now, it is judged anew.
                Verdict::Extend(token) => {
                    if self.prolong(ask.name.as_str(), &ask.owner, ask.ttl)? {
                        return Ok(Ok(rising(token)?));
                    }
                }
                Verdict::Queue => {
                    // Before the place can be seen: who sees it, rings.
                    self.listen();
                    self.queue(ask)?;
                }
                Verdict::Bury(corpse) => self.bury(corpse)?,
                Verdict::Observe => self.observe(ask.name.as_str(), boot())?,
            }
        }
    }

    fn judge(&self, ask: &Ask) -> Result<Verdict, Failure> {
        let name = ask.name.as_str();
        let now = boot();
        let Some(row) = self.row(name)? else {
            return Ok(Verdict::Take {
                place: None,
                ahead: 0,
            });
        };
        let standing = self.standing(name, &row, now)?;
        let place = if ask.waits {
            self.place(&ask.owner)?
        } else {
            None
        };
        if standing.held
            && let Some(hold) = &row.hold
        {
            if hold.owner == ask.owner {
                return Ok(Verdict::Extend(row.token));
            }
            if let Some(corpse) = self.death_of(hold, ask.waits) {
                return Ok(Verdict::Bury(corpse));
            }
        }
        let ahead = self.ahead(name, place)?;
        if !standing.held {
            if ahead == 0 {
                return Ok(Verdict::Take { place, ahead });
            }
            if let Some(corpse) = self.death_before(name, place)? {
                return Ok(Verdict::Bury(corpse));
            }
        }
        let Some(ends) = standing.ends else {
            return Ok(Verdict::Observe);
        };
        let turn = ends.saturating_add(nanoseconds(GRACE * ahead));
        if !standing.held && now >= turn {
            return Ok(Verdict::Take { place, ahead });
        }
        if ask.waits && place.is_none() {
            return Ok(Verdict::Queue);
        }
        Ok(Verdict::Busy(Busy {
            holder: row.holder(standing, now).filter(|_| standing.held),
            position: Some(ahead),
            retry_in: Some(pause(span(turn - now))),
        }))
    }

    /// The holder's process, where it is dead. A waiter hears of its death from here on.
    fn death_of(&self, hold: &RowHold, waits: bool) -> Option<Corpse> {
        let live = hold.live.as_ref().filter(|live| **live != self.live.id)?;
        if waits {
            // Before the probe: so a death comes either before it or after the watch began.
            self.listen_to(live);
        }
        match self.live.folder.probe(live) {
            Pulse::Dead(corpse) => Some(corpse),
            Pulse::Alive | Pulse::Unknown => None,
        }
    }

    /// A dead process with a place before ours.
    fn death_before(&self, name: &str, place: Option<i64>) -> Result<Option<Corpse>, Failure> {
        let processes = self.strings(
            "SELECT DISTINCT live FROM waiters WHERE name = ?1 AND seq < ?2",
            params![name, place.unwrap_or(i64::MAX)],
        )?;
        let others = processes.iter().filter(|live| **live != self.live.id);
        Ok(others
            .filter_map(|live| match self.live.folder.probe(live) {
                Pulse::Dead(corpse) => Some(corpse),
                Pulse::Alive | Pulse::Unknown => None,
            })
            .next())
    }

    fn place(&self, owner: &str) -> Result<Option<i64>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT seq FROM waiters WHERE owner = ?1")?;
        Ok(statement.query_row([owner], |row| row.get(0)).optional()?)
    }

    fn queue(&self, ask: &Ask) -> Result<(), Failure> {
        self.execute(
            "INSERT INTO waiters (name, owner, live, identity) VALUES (?1, ?2, ?3, ?4)",
            params![
                ask.name.as_str(),
                ask.owner,
                self.live.id,
                json(&ask.identity)?
            ],
        )?;
        Ok(())
    }

    fn grant(&self, ask: &Ask, place: Option<i64>, ahead: u32) -> Result<Token, Failure> {
        let name = ask.name.as_str();
        let ttl = nanoseconds(ask.ttl);
        let now = clock::now();
        let mut statement = self.connection.prepare_cached(
            "INSERT INTO locks (name, token, rev, clock, owner, live, ends, span, granted, identity)
             VALUES (?1, 1, 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (name) DO UPDATE SET
                 token = token + 1, rev = rev + 1, clock = ?2, owner = ?3, live = ?4,
                 ends = ?5, span = ?6, granted = ?7, identity = ?8
             RETURNING token",
        )?;
        let parameters = params![
            name,
            self.clock,
            ask.owner,
            self.live.id,
            boot_of(now).saturating_add(ttl),
            ttl,
            i64::try_from(now.real / 1_000_000).ok(),
            json(&ask.identity)?
        ];
        let token: i64 = statement.query_row(parameters, |row| row.get(0))?;
        if place.is_some() || ahead > 0 {
            self.execute(
                "DELETE FROM waiters WHERE name = ?1 AND seq <= ?2",
                params![name, place.unwrap_or(i64::MAX)],
            )?;
        }
        rising(token)
    }
}

/// When to look again where it is our turn in `left`. The wait loop adds up to a tenth to spread the looks, so
/// this stays below; the rest is the next pause.
fn pause(left: Duration) -> Duration {
    left.mul_f64(0.9)
        .saturating_add(Duration::from_millis(1))
        .min(LOOK)
}

fn rising(token: i64) -> Result<Token, Failure> {
    crate::table::token(token).ok_or_else(|| {
        Failure::new(
            ErrorKind::Bug,
            format!("a counter that counts from one is at {token}"),
        )
    })
}

fn json(identity: &Identity) -> Result<String, Failure> {
    serde_json::to_string(identity).map_err(|error| {
        Failure::new(
            ErrorKind::Bug,
            format!("an identity has no JSON form: {error}"),
        )
    })
}

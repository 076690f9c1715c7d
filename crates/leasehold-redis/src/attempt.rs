//! One attempt as a state machine without input or output.
//!
//! Every try carries a number, and the store keeps the number of the last try of each waiter that it
//! processed. A hand-over names it, so that the waiter knows from which send its lease counts: from the newest
//! one *sent* would be too late by as long as that one was underway. The contender drives it over a connection,
//! the simulation over a simulated one.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::backend::{Attempt, Busy, Grant};
use leasehold_core::clock::Moment;
use leasehold_core::{Error, ErrorKind, Result, Token};

use crate::reply::TryReply;

/// How long a waiter counts as alive after its last try: what a frozen one may cost the others.
const ALIVE_MAX: Duration = Duration::from_secs(10);
/// How often the first waiter looks when the holder is a client that tells nobody.
const FOREIGN_LOOK: Duration = Duration::from_millis(100);
/// How much later than the one before it each waiter looks once the holder's time is over.
const LOOK_STEP: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Tries {
    ttl: Duration,
    waits: bool,
    last: u64,
    /// Tries that a hand-over may still name, with their sends.
    sent: VecDeque<(u64, Moment)>,
    /// Tries without an answer: they may land at any time.
    unanswered: Vec<u64>,
}

impl Tries {
    pub(crate) fn new(ttl: Duration, waits: bool) -> Self {
        Self {
            ttl,
            waits,
            last: 0,
            sent: VecDeque::new(),
            unanswered: Vec::new(),
        }
    }

    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long this waiter counts as alive after each try.
    pub(crate) fn alive(&self) -> Duration {
        self.ttl.min(ALIVE_MAX)
    }

    /// A try goes out now; its number.
    pub(crate) fn send(&mut self, now: Moment) -> u64 {
        self.last += 1;
        self.sent.push_back((self.last, now));
        self.unanswered.push(self.last);
        // Answers free the others; without any, the oldest sends are of no use any more.
        while self.sent.len() > 64 {
            self.sent.pop_front();
        }
        self.last
    }

    /// A try was never sent, or it was refused: it won't land any more.
    pub(crate) fn void(&mut self, number: u64) {
        self.sent.retain(|(sent, _)| *sent != number);
        self.unanswered.retain(|sent| *sent != number);
    }

    /// The store answered this try.
    pub(crate) fn answered(&mut self, number: u64, reply: TryReply) -> Result<Attempt> {
        let since = self.since(number)?;
        self.unanswered.retain(|sent| *sent != number);
        match reply {
            TryReply::Granted(token) => {
                if self.unanswered.is_empty() {
                    // Nothing lands any more. A hold may last for weeks, and there may be a hundred thousand.
                    self.unanswered = Vec::new();
                    self.sent = VecDeque::new();
                }
                Ok(Attempt::Granted(Grant {
                    token,
                    since,
                    ttl: self.ttl,
                }))
            }
            TryReply::Busy {
                holder,
                ours,
                place,
            } => {
                // It has processed this one, so no hand-over names an older.
                self.sent.retain(|(sent, _)| *sent >= number);
                let retry_in = self.retry_in(ours, place, holder.expires_in);
                Ok(Attempt::Busy(Busy {
                    holder: Some(holder),
                    position: Some(place),
                    retry_in: Some(retry_in),
                }))
            }
            TryReply::Gone => Err(Error::new(
                ErrorKind::Bug,
                "the store says this attempt was released, and it was not",
            )),
        }
    }

    /// The lock was handed over, counted from the try of this number.
    pub(crate) fn handed(&mut self, token: Token, number: u64, alive: Duration) -> Option<Grant> {
        let since = self.since(number).ok()?;
        Some(Grant {
            token,
            since,
            ttl: alive.min(self.alive()),
        })
    }

    /// How long the store must refuse this owner's tries after its release, because one may still land.
    pub(crate) fn tombstone(&self) -> Duration {
        if self.unanswered.is_empty() {
            Duration::ZERO
        } else {
            self.ttl * 2
        }
    }

    fn since(&self, number: u64) -> Result<Moment> {
        self.sent
            .iter()
            .find(|(sent, _)| *sent == number)
            .map(|(_, since)| *since)
            .ok_or_else(|| Error::new(ErrorKind::Bug, "the store names a try that was never made"))
    }

    /// When to try again without having been told.
    fn retry_in(&self, ours: bool, place: u32, expires_in: Option<Duration>) -> Duration {
        let still_here = self.alive() / 3;
        let after_expiry = expires_in.map(|rest| {
            // One millisecond, because the server rounds down.
            rest + Duration::from_millis(1) + LOOK_STEP.saturating_mul(place)
        });
        let look = match (ours, place) {
            (false, 0) => Some(FOREIGN_LOOK.min(after_expiry.unwrap_or(FOREIGN_LOOK))),
            _ => after_expiry,
        };
        still_here.min(look.unwrap_or(still_here))
    }
}

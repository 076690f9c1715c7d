//! The life of one hold as a state machine without input or output: when to renew, when it is lost.
//!
//! The keeper drives it with real clocks and real answers, the stores' simulations with simulated ones. Whoever
//! drives it asks for the next [`Step`] after every change, does it, and says what came of it.

use std::time::Duration;

use crate::backend::{Grant, LossReason, Renewal};
use crate::clock::Moment;
use crate::lease::{Drift, Lease};

/// How a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldState {
    /// Held, and the store said so last.
    Held,
    /// Still within its lease, but the last renewal went unanswered or the store told of trouble.
    Uncertain,
    /// Lost, for this reason.
    Lost(LossReason),
    /// Given back.
    Released,
}

/// What is to be done for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the store for this much more, and wait this long for the answer.
    Renew {
        /// What to ask for.
        ttl: Duration,
        /// How long to wait.
        timeout: Duration,
    },
    /// Nothing before this boot time (nanoseconds).
    Sleep(u64),
    /// It has just been lost: tell the holder.
    Lost,
    /// It is over.
    Over,
}

/// The plan of one hold.
#[derive(Clone, Debug)]
pub struct Plan {
    lease: Lease,
    drift: Drift,
    ttl: Duration,
    renews: bool,
    state: HoldState,
    /// A renewal has been sent and not been answered.
    in_flight: bool,
    /// Renewals unanswered in a row.
    unanswered: u32,
    /// When the next renewal is due (boot time).
    renew_at: u64,
    /// When the last renewal was sent (boot time).
    sent_at: u64,
    /// When the longest time it was to be held is over (boot time).
    ends_at: Option<u64>,
    /// The store told of something: renew even where renewals are off.
    poked: bool,
}

impl Plan {
    /// The plan of a fresh grant. `jitter` is a random number in 0..1: holds taken together are not to be
    /// renewed together for ever.
    #[must_use]
    pub fn new(
        grant: &Grant,
        ttl: Duration,
        renews: bool,
        max_hold: Option<Duration>,
        drift: Drift,
        jitter: f64,
    ) -> Self {
        Self {
            lease: Lease::new(grant.since, grant.ttl, drift),
            drift,
            ttl,
            renews,
            state: HoldState::Held,
            in_flight: false,
            unanswered: 0,
            renew_at: renewal_due(grant.since, grant.ttl, jitter),
            sent_at: grant.since.boot,
            ends_at: max_hold.map(|most| grant.since.boot.saturating_add(nanos(most))),
            poked: false,
        }
    }

    /// How the hold stands, as far as it was told.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.state
    }

    /// How long the holder may go on, by every clock; zero once it is over.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        match self.state {
            HoldState::Held | HoldState::Uncertain => {
                let rest = self.lease.remaining(now);
                self.ends_at.map_or(rest, |ends_at| {
                    rest.min(Duration::from_nanos(ends_at.saturating_sub(now.boot)))
                })
            }
            HoldState::Lost(_) | HoldState::Released => Duration::ZERO,
        }
    }

    /// What is to be done now.
    pub fn step(&mut self, now: Moment) -> Step {
        if self.is_over() {
            return Step::Over;
        }
        if let Some(reason) = self.ended(now) {
            self.state = HoldState::Lost(reason);
            return Step::Lost;
        }
        let stepped = self.lease.remaining(now).is_zero();
        if stepped {
            self.state = HoldState::Uncertain;
        }
        let ends = self
            .lease
            .deadline_boot()
            .min(self.ends_at.unwrap_or(u64::MAX));
        if self.in_flight {
            return Step::Sleep(ends);
        }
        // Past the longest hold there is nothing to renew for.
        let renews = self.renews
            && self
                .ends_at
                .is_none_or(|at| self.lease.deadline_boot() < at);
        let due = if stepped || self.poked {
            // At once, but a store that keeps telling of trouble isn't asked in a busy loop.
            self.sent_at.saturating_add(nanos(self.retry_gap()))
        } else if renews {
            self.renew_at
        } else {
            u64::MAX
        };
        if now.boot < due {
            return Step::Sleep(due.min(ends));
        }
        Step::Renew {
            ttl: if renews {
                self.ttl
            } else {
                // Asks whether it is still ours without making it any longer.
                self.lease.remaining_steady(now)
            },
            timeout: self.ttl / 6,
        }
    }

    fn ended(&self, now: Moment) -> Option<LossReason> {
        if self.ends_at.is_some_and(|at| now.boot >= at) {
            return Some(LossReason::MaxHold);
        }
        self.lease.remaining_steady(now).is_zero().then_some(
            if self.unanswered > 0 || self.in_flight {
                LossReason::Unreachable
            } else {
                LossReason::Expired
            },
        )
    }

    /// A renewal goes out now.
    pub fn sent(&mut self, now: Moment) {
        self.in_flight = true;
        self.poked = false;
        self.sent_at = now.boot;
    }

    /// The store answered, however late; a hold that is over stays over.
    pub fn answered(&mut self, renewal: Renewal, jitter: f64) {
        self.in_flight = false;
        if self.is_over() {
            return;
        }
        match renewal {
            Renewal::Renewed { since, ttl } => {
                self.lease = self.lease.renewed(Lease::new(since, ttl, self.drift));
                self.unanswered = 0;
                self.renew_at = renewal_due(since, ttl, jitter);
                self.state = if self.poked {
                    HoldState::Uncertain
                } else {
                    HoldState::Held
                };
            }
            Renewal::Lost(reason) => self.state = HoldState::Lost(reason),
        }
    }

    /// A renewal got no answer. That says nothing about the hold, so nothing is extended.
    pub fn unanswered(&mut self, now: Moment, jitter: f64) {
        self.in_flight = false;
        if self.is_over() {
            return;
        }
        self.unanswered += 1;
        self.state = HoldState::Uncertain;
        let gap = self.retry_gap().mul_f64(0.5 + jitter);
        self.renew_at = now.boot.saturating_add(nanos(gap));
    }

    /// The store told of something: ask it now.
    pub fn poke(&mut self) {
        if !self.is_over() {
            self.poked = true;
            self.state = HoldState::Uncertain;
        }
    }

    /// The hold is lost for a reason that doesn't come from the store's answer.
    pub fn lose(&mut self, reason: LossReason) {
        if !self.is_over() {
            self.state = HoldState::Lost(reason);
        }
    }

    /// The holder gives it back. A loss it was told of stays one.
    pub fn release(&mut self) {
        if !self.is_over() {
            self.state = HoldState::Released;
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, HoldState::Lost(_) | HoldState::Released)
    }

    /// The pause between two tries of a renewal.
    fn retry_gap(&self) -> Duration {
        (self.ttl / 24).min(Duration::from_secs(1))
    }
}

/// A third of the TTL after the send, a tenth of that earlier or later: three tries of a sixth each fit before the
/// deadline. Moments are rounded up to a three-thousandth of the TTL, so that renewals that are due at about the
/// same time are due at the same time and can go out in one request.
fn renewal_due(since: Moment, ttl: Duration, jitter: f64) -> u64 {
    let due = since
        .boot
        .saturating_add(nanos((ttl / 3).mul_f64(0.9 + 0.2 * jitter)));
    due.checked_next_multiple_of(nanos(ttl / 3000).max(1))
        .unwrap_or(due)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod drift;
#[cfg(test)]
mod tests;

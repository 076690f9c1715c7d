//! When a job is to be stopped: a state machine without input or output.
//!
//! It says when, the guardian does it. What it decides is final: a job that was told to end is not spared
//! because a renewal got through after all.

use std::time::Duration;

use leasehold::LossReason;

/// The job has to be gone at the deadline, and ending it takes a while on a busy machine: so it is over this
/// part of the lease earlier, and at most so much.
const LEAD: (u32, Duration) = (16, Duration::from_millis(500));
/// How long the supervisor may be late before the guardian acts without it: both would wake at the same
/// moment otherwise, and a renewal that came just before would be told too late.
const LATE: u64 = 200_000_000;
/// The supervisor looks at the hold at least this far apart.
const LOOK: u64 = 50_000_000;
/// What comes sooner after the first INT or TERM is the same request: `timeout` sends it to us and to our group.
const AGAIN: u64 = 500_000_000;
/// How long after its time a KILL of the guardian's is taken to have failed.
const OVERDUE: u64 = 100_000_000;

/// When the guardian sends TERM and KILL, on the boot clock in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) term_at: u64,
    pub(super) kill_at: u64,
}

/// How the hold stands at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Boot time, read before `remaining`.
    pub(super) now: u64,
    /// How long the hold lasts by every clock.
    pub(super) remaining: Duration,
    /// Whether it is lost, and why.
    pub(super) lost: Option<LossReason>,
}

/// Why a job is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The lock is lost, or was about to be for want of an answer.
    Lost,
    /// It ran as long as it may.
    MaxHold,
    /// The user insisted.
    Asked,
}

#[derive(Debug)]
pub(super) struct Stop {
    kill_after: u64,
    max_at: u64,
    /// How long before the deadline the job has to be gone.
    lead: u64,
    /// When the job has to be gone, as far as is known. A wall clock stepped forward makes nothing remain
    /// without moving it: then the store is asked, and a loss is told.
    gone_by: u64,
    order: Order,
    why: Option<Why>,
    /// When the user asked it to end first, by INT or TERM.
    asked: Option<u64>,
    /// The job's process has ended.
    ended: bool,
}

impl Stop {
    pub(super) fn new(first: Look, kill_after: Duration, max_hold: Option<Duration>) -> Self {
        let (part, most) = LEAD;
        let mut stop = Self {
            kill_after: nanos(kill_after),
            lead: nanos((first.remaining / part).min(most)),
            max_at: max_hold.map_or(u64::MAX, |most| first.now.saturating_add(nanos(most))),
            gone_by: first.now,
            order: Order {
                term_at: u64::MAX,
                kill_at: u64::MAX,
            },
            why: None,
            asked: None,
            ended: false,
        };
        stop.look(first);
        stop
    }

    /// Takes in how the hold stands.
    pub(super) fn look(&mut self, look: Look) {
        let Look {
            now,
            remaining,
            lost,
        } = look;
        // What the guardian was told for now it has done, also while this process stood still.
        let is_told = now >= self.order.term_at;
        let deadline = now.saturating_add(nanos(remaining));
        self.gone_by = self.gone_by.max(deadline.saturating_sub(self.lead));
        let is_late = now >= self.gone_by;
        let grace = now.saturating_add(self.kill_after);
        // Learnt early, a loss leaves time to end in; at the end of the lease there is none.
        let bound = match lost {
            Some(_) if !is_late => grace,
            _ => self.gone_by,
        };
        if is_told {
            // Being stopped already, it is stopped no later for what came since.
            self.why.get_or_insert(Why::Lost);
            self.order.kill_at = self.order.kill_at.min(bound.max(now));
        } else if lost.is_some() || is_late || (!self.ended && grace >= self.gone_by) {
            self.begin(Why::Lost, now, bound);
        } else if !self.ended && now >= self.max_at {
            self.begin(Why::MaxHold, now, grace.min(self.gone_by));
        } else {
            self.order = Order {
                term_at: self.term_at().saturating_add(LATE.min(self.kill_after / 2)),
                kill_at: self.gone_by,
            };
        }
    }

    fn begin(&mut self, why: Why, now: u64, kill_at: u64) {
        self.why = Some(why);
        self.order = Order {
            term_at: now,
            kill_at: kill_at.max(now),
        };
    }

    /// When TERM is due unless the lease is renewed.
    fn term_at(&self) -> u64 {
        self.gone_by.saturating_sub(self.kill_after)
    }

    /// The user sent INT or TERM. Whether it is to go on to the job: one that is being stopped has had its
    /// TERM, and who asks again insists.
    pub(super) fn ask(&mut self, now: u64) -> bool {
        let Some(first) = self.asked else {
            self.asked = Some(now);
            return self.why.is_none();
        };
        if now >= first.saturating_add(AGAIN) {
            let why = self.why.unwrap_or(Why::Asked);
            self.begin(why, now, now);
        }
        false
    }

    /// The job's process has ended: from here on only a loss counts.
    pub(super) fn ended(&mut self) {
        self.ended = true;
    }

    /// What the guardian is to be told.
    pub(super) fn order(&self) -> Order {
        self.order
    }

    /// Why the job is being stopped, if it is.
    pub(super) fn why(&self) -> Option<Why> {
        self.why
    }

    /// Whether the guardian's time to kill has come.
    pub(super) fn is_killing(&self, now: u64) -> bool {
        self.why.is_some() && now >= self.order.kill_at
    }

    /// Whether the job should be dead by now.
    pub(super) fn is_overdue(&self, now: u64) -> bool {
        self.why.is_some() && now >= self.order.kill_at.saturating_add(OVERDUE)
    }

    /// When to look again.
    pub(super) fn look_at(&self, now: u64) -> u64 {
        if self.why.is_some() {
            let overdue = self.order.kill_at.saturating_add(OVERDUE);
            // Killed and still there: it hangs in the kernel.
            return overdue.max(now.saturating_add(2 * OVERDUE));
        }
        let term_at = self.term_at();
        // Halfway to the moment it counts: a renewal is told to the guardian long before, and the looks
        // become frequent only while none comes.
        let half = now.saturating_add((term_at.saturating_sub(now) / 2).max(LOOK));
        half.min(term_at).min(self.max_at)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

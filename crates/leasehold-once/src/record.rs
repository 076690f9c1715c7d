//! What is to happen once, and what a record says of it.

use std::fmt;
use std::time::{Duration, SystemTime};

use leasehold_core::Name;
use leasehold_fence::{Pass, Stale};

/// An attempt that didn't end is remembered for no less than this, so that one that is still at it finds its record.
const ATTEMPT_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What is to happen once: a key, by the rule of locks' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once {
    key: Name,
    per: Option<Duration>,
    keep: Option<Duration>,
}

impl Once {
    /// Once and never again.
    #[must_use]
    pub fn new(key: Name) -> Self {
        Self {
            key,
            per: None,
            keep: None,
        }
    }

    /// Once in each period. What counts is when the last success *started*, with a tenth of the period as slack: a
    /// nightly job that ended at 02:10 is due at 02:00 of the next night. Unless said otherwise its record is kept for
    /// two periods.
    #[must_use]
    pub fn per(self, period: Duration) -> Self {
        Self {
            per: Some(period),
            ..self
        }
    }

    /// Forgets a success this long after it ended; then it may happen again. Longer than a repeat may come late.
    #[must_use]
    pub fn keep(self, time: Duration) -> Self {
        Self {
            keep: Some(time),
            ..self
        }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Name {
        &self.key
    }

    /// The age from which on a success no longer counts, from its start; `None` if it always does.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        self.per.map(|period| period - period / 10)
    }

    /// How long a success is remembered after its end; `None` for ever.
    #[must_use]
    pub fn kept(&self) -> Option<Duration> {
        self.keep
            .or_else(|| self.per.map(|period| period.saturating_mul(2)))
    }

    /// How long an attempt that doesn't end is remembered after its start; `None` for ever.
    #[must_use]
    pub fn attempt_kept(&self) -> Option<Duration> {
        self.kept().map(|kept| kept.max(ATTEMPT_KEPT))
    }
}

/// What comes of beginning. That it has happened, or somebody is at it, is a value, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "only the first one may work"]
pub enum Begun {
    /// Nobody has done it and nobody with a mark as high is at it: work, and then finish.
    First,
    /// It has happened.
    Done(Success),
    /// An attempt with a newer mark, or this very one, is at it.
    Running(Running),
    /// An attempt with a newer mark has been at it, which failed or is due again, so this one's lock is over.
    Stale(Stale),
}

/// What comes of storing a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a result that isn't recorded leaves the work to be repeated"]
pub enum Finished {
    /// It is recorded, by this call or by an earlier one of the same mark.
    Recorded,
    /// A newer attempt has taken over; nothing was changed. Roll back what was done in the same transaction.
    Stale(Stale),
    /// No attempt of this mark is at it, and nothing was changed: it was never begun, has failed, or its record was
    /// forgotten.
    NotBegun,
}

/// What a repeat is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Success {
    /// The lock and the mark of the attempt that succeeded.
    pub by: Pass,
    /// When that attempt started, by the store's clock.
    pub started: SystemTime,
    /// When it ended, by the store's clock.
    pub ended: SystemTime,
    /// How long ago it started; zero where the store's clock has gone back behind that.
    pub age: Duration,
    /// What it stored.
    pub result: Vec<u8>,
}

/// An attempt under way, or one that crashed and nobody has taken over yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its lock and mark.
    pub by: Pass,
    /// When it started, by the store's clock.
    pub started: SystemTime,
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an attempt with the token {} is at it", self.by.mark())
    }
}

/// What a record says, for showing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key, as it is in the table.
    pub key: String,
    /// The lock that the key belongs to, and the mark of the newest attempt.
    pub by: Pass,
    /// How it stands with it.
    pub state: State,
    /// When it started, by the store's clock.
    pub started: SystemTime,
    /// When it ended, by the store's clock.
    pub ended: Option<SystemTime>,
    /// When the record is forgotten; `None` for never.
    pub expires: Option<SystemTime>,
}

/// How it stands with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has begun and not ended, or crashed.
    Running,
    /// It said that it failed.
    Failed,
    /// It succeeded.
    Done,
}

impl State {
    /// The state in one lower-case word, as the table has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Failed => "failed",
            Self::Done => "done",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn once() -> Once {
        Once::new(Name::new("nightly").unwrap())
    }

    #[test]
    fn a_nightly_job_that_ended_late_is_due_the_next_night_and_not_the_same_one() {
        let window = once().per(24 * HOUR).window().unwrap();
        // Started at 02:00:30 for want of the lock, and again at 02:00:00.
        assert!(24 * HOUR - Duration::from_secs(30) >= window);
        // Another host's 02:00 is an hour later.
        assert!(HOUR < window);
        assert_eq!(once().window(), None);
    }

    #[test]
    fn a_record_outlives_its_period_and_an_attempt_its_record() {
        assert_eq!((once().kept(), once().attempt_kept()), (None, None));
        let nightly = once().per(24 * HOUR);
        assert!(nightly.kept() > nightly.window());
        assert_eq!(nightly.attempt_kept(), Some(7 * 24 * HOUR));
        let kept = once().per(HOUR).keep(1000 * HOUR);
        assert_eq!(kept.kept(), Some(1000 * HOUR));
        assert_eq!(kept.attempt_kept(), Some(1000 * HOUR));
    }
}

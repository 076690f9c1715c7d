//! Lease arithmetic: pure, no input or output, no timers.
//!
//! A lease counts from the moment its request was *sent*, so the holder's count ends before the store's
//! whatever the network did. A rate and a slack are taken off for clocks that don't run alike:
//! `deadline = since + ttl·(1 − rate) − slack`. The margin is that of the Redlock description
//! (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>), on every store.

use std::time::Duration;

use crate::clock::Moment;

/// How unlike two hosts' clocks may run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Parts per million by which the holder's clock may run slower than the store's.
    pub rate_ppm: u32,
    /// A constant taken off besides, for the store's own granularity.
    pub slack: Duration,
}

impl Default for Drift {
    /// 1 % and 2 ms: some ten times what two undisciplined crystals and an NTP slew add up to.
    fn default() -> Self {
        Self {
            rate_ppm: 10_000,
            slack: Duration::from_millis(2),
        }
    }
}

impl Drift {
    /// How much of `ttl` the holder may use.
    #[must_use]
    pub fn usable(self, ttl: Duration) -> Duration {
        let keep = 1_000_000 - self.rate_ppm.min(1_000_000);
        // Rounded down: never a nanosecond too long.
        let nanos = ttl.as_nanos() * u128::from(keep) / 1_000_000;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).saturating_sub(self.slack)
    }
}

/// The right to hold until a deadline that only this process counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    since: Moment,
    window: Duration,
}

impl Lease {
    /// A lease of `ttl` counted from `since`, the send time of the request that the store processed.
    #[must_use]
    pub fn new(since: Moment, ttl: Duration, drift: Drift) -> Self {
        Self {
            since,
            window: drift.usable(ttl),
        }
    }

    /// How long it lasts by every clock. Zero: it may be somebody else's.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.window.saturating_sub(now.since(self.since).any)
    }

    /// How long it lasts by the clocks nobody steps. More than [`remaining`](Self::remaining) after the wall
    /// clock was stepped forward: then only the store can tell.
    #[must_use]
    pub fn remaining_steady(&self, now: Moment) -> Duration {
        self.window.saturating_sub(now.since(self.since).steady)
    }

    /// The deadline on the boot clock, in nanoseconds: when a timer must fire.
    #[must_use]
    pub fn deadline_boot(&self) -> u64 {
        self.since
            .boot
            .saturating_add(u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX))
    }

    /// This lease and a newer confirmation together: the later deadline, counted from the later start. A
    /// renewal never shortens, whatever order the answers come in, and one sent after the wall clock was
    /// stepped forgives the step.
    #[must_use]
    pub fn renewed(self, newer: Lease) -> Lease {
        let since = if newer.since.boot >= self.since.boot {
            newer.since
        } else {
            self.since
        };
        let deadline = self.deadline_boot().max(newer.deadline_boot());
        Lease {
            since,
            window: Duration::from_nanos(deadline.saturating_sub(since.boot)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(boot: u64) -> Moment {
        Moment {
            boot,
            monotonic: boot,
            real: boot,
        }
    }

    proptest! {
        #[test]
        fn the_margin_is_taken_off_whatever_the_ttl(ttl_ms in 1_u64..100_000_000) {
            let usable = Drift::default().usable(Duration::from_millis(ttl_ms));
            let most = Duration::from_micros(ttl_ms * 990).saturating_sub(Duration::from_millis(2));
            prop_assert!(usable <= most);
            prop_assert!(most - usable <= Duration::from_nanos(1));
        }

        #[test]
        fn the_later_deadline_wins_in_any_order(
            first in 0_u64..1_000_000, second in 0_u64..1_000_000,
            one in 1_u64..1_000_000, two in 1_u64..1_000_000,
        ) {
            let drift = Drift { rate_ppm: 0, slack: Duration::ZERO };
            let a = Lease::new(at(first), Duration::from_nanos(one), drift);
            let b = Lease::new(at(second), Duration::from_nanos(two), drift);
            let deadline = a.deadline_boot().max(b.deadline_boot());
            prop_assert_eq!(a.renewed(b).deadline_boot(), deadline);
            prop_assert_eq!(b.renewed(a).deadline_boot(), deadline);
            let probe = at(deadline.saturating_sub(1).max(first).max(second));
            prop_assert_eq!(a.renewed(b).remaining(probe), b.renewed(a).remaining(probe));
        }

        #[test]
        fn remaining_never_grows_with_time(
            window in 1_u64..1_000_000, earlier in 0_u64..2_000_000, more in 0_u64..2_000_000,
        ) {
            let drift = Drift { rate_ppm: 0, slack: Duration::ZERO };
            let lease = Lease::new(at(0), Duration::from_nanos(window), drift);
            prop_assert!(lease.remaining(at(earlier + more)) <= lease.remaining(at(earlier)));
        }
    }

    #[test]
    fn no_arithmetic_overflows() {
        let longest = Duration::MAX;
        let lease = Lease::new(at(u64::MAX), longest, Drift::default());
        assert_eq!(lease.deadline_boot(), u64::MAX);
        let most = Drift {
            rate_ppm: u32::MAX,
            slack: Duration::MAX,
        };
        assert_eq!(most.usable(longest), Duration::ZERO);
    }
}

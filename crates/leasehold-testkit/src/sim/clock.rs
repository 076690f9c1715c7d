use leasehold_core::clock::Moment;

/// What one host takes for the time.
///
/// Its three clocks run at one rate, as those of a machine do; they differ in what they do when the machine
/// stands still or somebody sets the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// True time when the readings below were right.
    at: u64,
    boot: u64,
    monotonic: u64,
    real: i128,
    /// Parts per million by which it runs too fast.
    ppm: i64,
    running: Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    All,
    /// Suspended: the monotonic clock stands.
    Suspended,
    /// A virtual machine that is stopped: all stand.
    Paused,
}

impl Clock {
    /// A clock that shows `real` nanoseconds since the epoch at true time zero and gains `ppm` millionths.
    #[must_use]
    pub fn new(real: u64, ppm: i64) -> Self {
        // The machine was not started at the moment the world was made.
        let boot = real % 1_000_000_000_000;
        Self {
            at: 0,
            boot,
            monotonic: boot,
            real: i128::from(real),
            ppm,
            running: Running::All,
        }
    }

    /// Reads the clocks at true time `now`.
    #[must_use]
    pub fn moment(&self, now: u64) -> Moment {
        let read = self.moved(now);
        Moment {
            boot: read.boot,
            monotonic: read.monotonic,
            real: u64::try_from(read.real).unwrap_or(0),
        }
    }

    /// The wall clock in nanoseconds since the epoch.
    #[must_use]
    pub fn real(&self, now: u64) -> u64 {
        self.moment(now).real
    }

    /// True time when this much has gone by on it, if nothing happens to it until then; rounded up.
    #[must_use]
    pub fn after(&self, now: u64, nanos: u64) -> u64 {
        let rate = i128::from(1_000_000 + self.ppm);
        let true_nanos = (i128::from(nanos) * 1_000_000 + rate - 1) / rate;
        now.saturating_add(u64::try_from(true_nanos).unwrap_or(u64::MAX))
    }

    /// Somebody sets the wall clock forward or back.
    pub fn step(&mut self, now: u64, by_nanos: i64) {
        *self = self.moved(now);
        self.real += i128::from(by_nanos);
    }

    /// The machine is suspended; boot and wall clock run on.
    pub fn suspend(&mut self, now: u64) {
        *self = self.moved(now);
        self.running = Running::Suspended;
    }

    /// The virtual machine is stopped; no clock runs.
    pub fn pause(&mut self, now: u64) {
        *self = self.moved(now);
        self.running = Running::Paused;
    }

    /// The machine goes on. With `tells`, the wall clock of a paused one is set right by its host.
    pub fn resume(&mut self, now: u64, tells: bool) {
        let stood = now - self.at;
        let was = self.running;
        *self = self.moved(now);
        if was == Running::Paused && tells {
            self.real += i128::from(stood);
        }
        self.running = Running::All;
    }

    /// Whether it is stopped without noticing that time goes by.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.running == Running::Paused
    }

    fn moved(mut self, now: u64) -> Self {
        let gone = i128::from(now.saturating_sub(self.at));
        let gone = gone + gone * i128::from(self.ppm) / 1_000_000;
        let nanos = u64::try_from(gone).unwrap_or(0);
        self.at = now;
        if self.running == Running::All {
            self.monotonic += nanos;
        }
        if self.running != Running::Paused {
            self.boot += nanos;
            self.real += gone;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::SECOND;
    use super::*;

    const EPOCH: u64 = 1_700_000_000 * SECOND;

    fn gone(clock: &Clock, from: u64, to: u64) -> (u64, u64, u64) {
        let (a, b) = (clock.moment(from), clock.moment(to));
        (b.boot - a.boot, b.monotonic - a.monotonic, b.real - a.real)
    }

    #[test]
    fn a_fast_clock_gains() {
        let clock = Clock::new(EPOCH, 10_000);
        let second = SECOND + SECOND / 100;
        assert_eq!(gone(&clock, 0, SECOND), (second, second, second));
        assert_eq!(clock.after(0, second), SECOND);
    }

    #[test]
    fn in_suspend_only_the_monotonic_clock_stands() {
        let mut clock = Clock::new(EPOCH, 0);
        let before = clock.moment(SECOND);
        clock.suspend(SECOND);
        clock.resume(4 * SECOND, true);
        let after = clock.moment(5 * SECOND);
        assert_eq!(after.monotonic - before.monotonic, SECOND);
        assert_eq!(after.boot - before.boot, 4 * SECOND);
        assert_eq!(after.real - before.real, 4 * SECOND);
    }

    #[test]
    fn a_paused_machine_learns_of_it_by_the_wall_clock_alone() {
        for (tells, real) in [(true, 4), (false, 1)] {
            let mut clock = Clock::new(EPOCH, 0);
            let before = clock.moment(SECOND);
            clock.pause(SECOND);
            assert_eq!(clock.moment(3 * SECOND), before);
            clock.resume(4 * SECOND, tells);
            let after = clock.moment(5 * SECOND);
            assert_eq!(after.monotonic - before.monotonic, SECOND);
            assert_eq!(after.boot - before.boot, SECOND);
            assert_eq!(after.real - before.real, real * SECOND);
        }
    }

    #[test]
    fn a_step_moves_the_wall_clock_alone() {
        let mut clock = Clock::new(EPOCH, 0);
        let before = clock.moment(0);
        clock.step(0, -5_000_000_000);
        let after = clock.moment(0);
        assert_eq!(
            (after.boot, after.real),
            (before.boot, before.real - 5 * SECOND)
        );
    }
}

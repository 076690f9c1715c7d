use super::{Clock, Stops};

/// What strikes a machine.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// The process is stopped.
    Freeze {
        /// For how long.
        nanos: u64,
    },
    /// The machine is suspended.
    Suspend {
        /// For how long.
        nanos: u64,
    },
    /// The machine is a virtual one, and is stopped as a whole.
    Pause {
        /// For how long.
        nanos: u64,
    },
    /// It goes on after a suspend or a pause.
    Resume,
    /// Somebody sets the wall clock.
    StepClock {
        /// Forward, or back where it is less than zero.
        by_nanos: i64,
    },
    /// The process is gone for good.
    Kill,
}

/// A machine that a process runs on: its clocks, what stops it, and when its timers are due.
#[derive(Debug)]
pub struct Machine {
    /// Its clocks.
    pub clock: Clock,
    /// When its process is frozen or gone.
    pub stops: Stops,
}

impl Machine {
    /// A machine that has these clocks and runs.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            stops: Stops::default(),
        }
    }

    /// Trouble begins. Answers when [`Trouble::Resume`] is to follow, if it is.
    pub fn strike(&mut self, trouble: Trouble, now: u64, tells: bool) -> Option<u64> {
        match trouble {
            Trouble::Freeze { nanos } => self.stops.freeze(now + nanos),
            Trouble::Suspend { nanos } | Trouble::Pause { nanos } => {
                if self.stops.dead() || self.stops.held_up(now).is_some() {
                    return None;
                }
                if matches!(trouble, Trouble::Pause { .. }) {
                    self.clock.pause(now);
                } else {
                    self.clock.suspend(now);
                }
                self.stops.freeze(now + nanos);
                return Some(now + nanos);
            }
            Trouble::Resume => self.clock.resume(now, tells),
            Trouble::StepClock { by_nanos } => self.clock.step(now, by_nanos),
            Trouble::Kill => self.stops.kill(),
        }
        None
    }

    /// Until when in true time a program on it believes that `rest` is left, if nothing happens; not at all while
    /// the machine stands or is gone.
    #[must_use]
    pub fn believes(&self, rest: u64, now: u64) -> Option<u64> {
        let stands = self.stops.dead() || self.clock.paused();
        (rest > 0 && !stands).then(|| self.clock.after(now, rest))
    }
}

//! What a run is made of, all of it from its seed.

use leasehold_testkit::sim::{Habits, MS, Rng, SECOND, Trouble, Weather};

use super::ensemble::Settings;

/// An assumption that a run breaks on purpose: then two may hold at a time, or the simulation is blind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assumption {
    /// The clocks' rates differ by less than the margin.
    DriftWithinMargin,
    /// A virtual machine that was stopped is told the time.
    PausedMachineIsTold,
}

/// What happens to a machine, to members, or to the nodes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nemesis {
    Machine(usize, Trouble),
    /// All connections of a machine break.
    Break {
        machine: usize,
    },
    Freeze {
        member: usize,
        nanos: u64,
    },
    /// The others and this member don't reach each other.
    Cut {
        member: usize,
        nanos: u64,
    },
    /// It and its connections are gone for a while.
    Restart {
        member: usize,
        nanos: u64,
    },
    /// A member takes in nothing for a while, and goes on answering.
    Lag {
        member: usize,
        nanos: u64,
    },
    /// Another leads.
    Elect {
        member: usize,
    },
    /// The client's side of a member's connections is quiet for a while, then the member is cut off.
    CutAfterFreeze {
        machine: usize,
        member: usize,
        nanos: u64,
    },
    /// An operator deletes the first place, or all.
    Delete {
        name: usize,
        all: bool,
    },
    /// Somebody with another client has the lock, or waits for it.
    Foreign {
        name: usize,
        nanos: u64,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    /// What everything else is measured by: the usual TTL, in nanoseconds.
    pub(super) base: u64,
    pub(super) settings: Settings,
    /// Of each machine and each member, in millionths.
    pub(super) ppm: Vec<i64>,
    pub(super) member_ppm: Vec<i64>,
    pub(super) programs: Vec<Habits>,
    pub(super) weather: Weather,
    pub(super) nemeses: Vec<(u64, Nemesis)>,
    /// From here on nothing bad happens, and everybody takes the lock once more.
    pub(super) quiet_at: u64,
    /// A virtual machine that was stopped is told the time.
    pub(super) tells: bool,
}

impl Scenario {
    pub(super) fn new(seed: u64, broken: Option<Assumption>) -> Self {
        let rng = &mut Rng::new(seed);
        let base = rng.within(2..6) * SECOND;
        let machines = 2 + rng.below(2);
        let names = 1 + rng.below(2);
        let drift = if broken == Some(Assumption::DriftWithinMargin) {
            600_000
        } else {
            4_500
        };
        let mut ppm = || rng.within(0..2 * drift) as i64 - drift as i64;
        let member_ppm = (0..3).map(|_| ppm()).collect();
        let ppm = (0..machines).map(|_| ppm()).collect();
        let programs = 3 + rng.below(4);
        let programs = (0..programs)
            .map(|_| Habits::draw(rng, base, machines, names))
            .collect();
        let mut scenario = Self {
            seed,
            base,
            settings: Settings {
                names,
                // A session lasts two ticks at least.
                tick: base / [2, 2, 4, 10][rng.below(4)],
                first: [0, 0, i32::MAX - 3, -3][rng.below(4)],
            },
            ppm,
            member_ppm,
            programs,
            weather: weather(rng, base),
            nemeses: Vec::new(),
            quiet_at: 8 * base,
            tells: broken != Some(Assumption::PausedMachineIsTold),
        };
        scenario.trouble(rng, broken);
        scenario
    }

    fn trouble(&mut self, rng: &mut Rng, broken: Option<Assumption>) {
        let machines = self.ppm.len();
        // A machine that is told the time by its wall clock must not have that set back meanwhile.
        let pauses = rng.chance(0.5) || !self.tells;
        for _ in 0..rng.below(10) {
            let at = rng.within(0..self.quiet_at * 9 / 10);
            let machine = rng.below(machines);
            let member = rng.below(3);
            let nanos = rng.within(self.base / 5..self.base * 5 / 2);
            let name = rng.below(self.settings.names);
            let nemesis = match rng.below(20) {
                0 | 1 => Nemesis::Machine(machine, Trouble::Freeze { nanos }),
                2 => Nemesis::Machine(machine, Trouble::Suspend { nanos }),
                3 if pauses => Nemesis::Machine(machine, Trouble::Pause { nanos }),
                3 => {
                    let by_nanos = nanos as i64 - (self.base * 5 / 4) as i64;
                    Nemesis::Machine(machine, Trouble::StepClock { by_nanos })
                }
                4 => Nemesis::Machine(machine, Trouble::Kill),
                5 => Nemesis::Break { machine },
                6 => Nemesis::Freeze { member, nanos },
                7..=9 => Nemesis::Cut { member, nanos },
                10 => Nemesis::Restart { member, nanos },
                11 | 12 => Nemesis::Lag { member, nanos },
                13 => Nemesis::Elect { member },
                14 | 15 => Nemesis::CutAfterFreeze {
                    machine,
                    member,
                    nanos: nanos / 3,
                },
                16 | 17 => Nemesis::Delete {
                    name,
                    all: rng.chance(0.3),
                },
                _ => Nemesis::Foreign { name, nanos },
            };
            self.nemeses.push((at, nemesis));
        }
        if broken == Some(Assumption::PausedMachineIsTold) {
            for _ in 0..4 {
                let at = rng.within(0..self.quiet_at * 9 / 10);
                let nanos = self.base * 2;
                let pause = Nemesis::Machine(rng.below(machines), Trouble::Pause { nanos });
                self.nemeses.push((at, pause));
            }
        }
    }

    /// When everybody who lives must have had the lock.
    pub(super) fn end_at(&self) -> u64 {
        let longest = self.programs.iter().map(|habits| habits.works).max();
        // What the last trouble left behind: a machine that stood, a dead one's session that a new leader counts anew,
        // releases that go on for two TTLs.
        let left = 14 * self.base + 20 * SECOND;
        let each = longest.unwrap_or(0) + 2 * self.base;
        self.quiet_at + left + self.programs.len() as u64 * each
    }
}

fn weather(rng: &mut Rng, base: u64) -> Weather {
    let mut weather = Weather::fine(MS / 10..base / 200);
    if rng.chance(0.7) {
        weather.late = [0.0, 0.02, 0.1][rng.below(3)];
        weather.late_by = base / 50..base * 4 / 5;
        weather.breaks = [0.0, 0.005, 0.03][rng.below(3)];
        weather.lands = 0.5;
    }
    weather
}

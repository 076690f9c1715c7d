//! What a run is made of, all of it from its seed.

use leasehold_testkit::sim::{Habits, MS, Rng, SECOND, Trouble, Weather};

/// An assumption that a run breaks on purpose: then two may hold at a time, or the simulation is blind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assumption {
    /// The clocks' rates differ by less than the margin.
    DriftWithinMargin,
    /// A virtual machine that was stopped is told the time.
    PausedMachineIsTold,
}

/// What happens to a host, to members, or to the keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nemesis {
    Host(usize, Trouble),
    /// All connections of a host break.
    Cut {
        host: usize,
    },
    FreezeMember {
        member: usize,
        nanos: u64,
    },
    /// It and its connections are gone for a while.
    RestartMember {
        member: usize,
        nanos: u64,
    },
    RestartAll {
        nanos: u64,
    },
    /// Another leads, and the old leader doesn't hear of it for a while: it is stuck, or `cut` off.
    Replace {
        nanos: u64,
        cut: bool,
    },
    /// A follower takes nothing in for a while.
    Lag {
        nanos: u64,
        cut: bool,
    },
    /// A leader that didn't answer the others is replaced.
    Elect {
        instead_of: usize,
    },
    /// An operator deletes the first place.
    Break {
        name: usize,
    },
    /// And all of them at once.
    Clear {
        name: usize,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    /// What everything else is measured by: the usual TTL, in nanoseconds.
    pub(super) base: u64,
    pub(super) names: usize,
    /// Of each host and each member, in millionths.
    pub(super) ppm: Vec<i64>,
    pub(super) member_ppm: Vec<i64>,
    pub(super) clients: Vec<Habits>,
    pub(super) weather: Weather,
    pub(super) nemeses: Vec<(u64, Nemesis)>,
    /// From here on nothing bad happens, and nobody begins anew.
    pub(super) quiet_at: u64,
    /// A virtual machine that was stopped is told the time.
    pub(super) tells: bool,
}

impl Scenario {
    pub(super) fn new(seed: u64, broken: Option<Assumption>) -> Self {
        let rng = &mut Rng::new(seed);
        let base = rng.within(2..6) * SECOND;
        let hosts = 2 + rng.below(3);
        let clients = 3 + rng.below(6);
        let names = 1 + rng.below(2);
        let drift = if broken == Some(Assumption::DriftWithinMargin) {
            150_000
        } else {
            4_500
        };
        let mut ppm = || rng.within(0..2 * drift) as i64 - drift as i64;
        let member_ppm = (0..3).map(|_| ppm()).collect();
        let ppm = (0..hosts).map(|_| ppm()).collect();
        let clients = (0..clients)
            .map(|_| Habits::draw(rng, base, hosts, names))
            .collect();
        let mut scenario = Self {
            seed,
            base,
            names,
            ppm,
            member_ppm,
            clients,
            weather: weather(rng, base),
            nemeses: Vec::new(),
            quiet_at: 8 * base,
            tells: broken != Some(Assumption::PausedMachineIsTold),
        };
        scenario.trouble(rng, broken);
        scenario
    }

    fn trouble(&mut self, rng: &mut Rng, broken: Option<Assumption>) {
        let hosts = self.ppm.len();
        // A machine that is told the time by its wall clock must not have that set back meanwhile.
        let pauses = rng.chance(0.5) || !self.tells;
        for _ in 0..rng.below(10) {
            let at = rng.within(0..self.quiet_at * 9 / 10);
            let host = rng.below(hosts);
            let member = rng.below(3);
            let nanos = rng.within(self.base / 5..self.base * 5 / 2);
            let name = rng.below(self.names);
            let cut = rng.chance(0.5);
            let nemesis = match rng.below(16) {
                0 | 1 => Nemesis::Host(host, Trouble::Freeze { nanos }),
                2 => Nemesis::Host(host, Trouble::Suspend { nanos }),
                3 if pauses => Nemesis::Host(host, Trouble::Pause { nanos }),
                3 => {
                    let by_nanos = nanos as i64 - (self.base * 5 / 4) as i64;
                    Nemesis::Host(host, Trouble::StepClock { by_nanos })
                }
                4 => Nemesis::Host(host, Trouble::Kill),
                5 => Nemesis::Cut { host },
                6 => Nemesis::FreezeMember { member, nanos },
                7 => Nemesis::RestartMember { member, nanos },
                8 => Nemesis::RestartAll { nanos: nanos / 2 },
                9..=12 => Nemesis::Replace { nanos, cut },
                13 => Nemesis::Lag { nanos, cut },
                14 => Nemesis::Break { name },
                _ => Nemesis::Clear { name },
            };
            self.nemeses.push((at, nemesis));
        }
        if broken == Some(Assumption::PausedMachineIsTold) {
            for _ in 0..4 {
                let at = rng.within(0..self.quiet_at * 9 / 10);
                let nanos = self.base * 2;
                let pause = Nemesis::Host(rng.below(hosts), Trouble::Pause { nanos });
                self.nemeses.push((at, pause));
            }
        }
    }

    /// When everybody who lives must have had the lock.
    pub(super) fn end_at(&self) -> u64 {
        let longest = self.clients.iter().map(|client| client.works).max();
        // What the last trouble left behind: a stopped host, a dead one's lease that a new leader counts anew, a
        // request that a member held back.
        let left = 14 * self.base + 20 * SECOND;
        let each = longest.unwrap_or(0) + 2 * self.base;
        self.quiet_at + left + self.clients.len() as u64 * each
    }
}

fn weather(rng: &mut Rng, base: u64) -> Weather {
    let mut weather = Weather::fine(MS / 10..base / 200);
    if rng.chance(0.7) {
        weather.late = [0.0, 0.02, 0.1][rng.below(3)];
        weather.late_by = base / 50..base * 4 / 5;
        weather.breaks = [0.0, 0.005, 0.03][rng.below(3)];
        weather.lands = 0.5;
        weather.doubled = [0.0, 0.02][rng.below(2)];
    }
    weather
}

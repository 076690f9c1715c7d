//! What a run is made of, all of it from its seed.

use std::time::Duration;

use leasehold_testkit::sim::{Habits, MS, Rng, SECOND, Trouble, Weather};

/// An assumption that a run breaks on purpose: then two may hold at a time, or the simulation is blind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assumption {
    /// The clocks' rates differ by less than the margin.
    DriftWithinMargin,
    /// The server keeps its memory.
    ServerRemembers,
    /// Nobody sets the server's wall clock forward.
    ServerClockIsEven,
    /// A virtual machine that was stopped is told the time.
    PausedMachineIsTold,
}

/// What happens to a host or to the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nemesis {
    Host(usize, Trouble),
    Cut { host: usize },
    FreezeServer { nanos: u64 },
    RestartServer { nanos: u64 },
    StepServerClock { by_nanos: i64 },
    Break { name: usize },
}

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    /// What everything else is measured by: the usual TTL, in nanoseconds.
    pub(super) base: u64,
    pub(super) names: usize,
    /// Of each host, in millionths; and of the server.
    pub(super) ppm: Vec<i64>,
    pub(super) server_ppm: i64,
    pub(super) clients: Vec<Habits>,
    /// Clients of another make that poll.
    pub(super) pollers: usize,
    /// The longest pause between two of their polls.
    pub(super) polls_within: u64,
    pub(super) weather: Weather,
    pub(super) nemeses: Vec<(u64, Nemesis)>,
    /// From here on nothing bad happens, and nobody begins anew.
    pub(super) quiet_at: u64,
    /// How long a try may go unanswered.
    pub(super) patience: u64,
    pub(super) always_hand_over: bool,
    /// A virtual machine that was stopped is told the time.
    pub(super) tells: bool,
    pub(super) forgets: bool,
}

impl Scenario {
    pub(super) fn new(seed: u64, broken: Option<Assumption>) -> Self {
        let rng = &mut Rng::new(seed);
        let base = match rng.below(10) {
            0 => rng.within(10 * SECOND..16 * SECOND),
            _ => rng.within(300 * MS..4 * SECOND),
        };
        let hosts = 2 + rng.below(4);
        let clients = 3 + rng.below(6);
        let names = 1 + rng.below(2);
        let drift = if broken == Some(Assumption::DriftWithinMargin) {
            150_000
        } else {
            4_500
        };
        let mut ppm = || rng.within(0..2 * drift) as i64 - drift as i64;
        let server_ppm = ppm();
        let ppm = (0..hosts).map(|_| ppm()).collect();
        let clients = (0..clients)
            .map(|_| habits(rng, base, hosts, names))
            .collect();
        let quiet_at = 8 * base;
        let mut scenario = Self {
            seed,
            base,
            names,
            ppm,
            server_ppm,
            clients,
            pollers: rng.below(4).saturating_sub(2),
            polls_within: base / 10,
            weather: weather(rng, base),
            nemeses: Vec::new(),
            quiet_at,
            patience: match rng.below(3) {
                0 => 5 * SECOND,
                _ => rng.within(base / 4..2 * base),
            },
            always_hand_over: rng.chance(0.2),
            tells: broken != Some(Assumption::PausedMachineIsTold),
            forgets: broken == Some(Assumption::ServerRemembers),
        };
        scenario.trouble(rng, broken);
        scenario
    }

    fn trouble(&mut self, rng: &mut Rng, broken: Option<Assumption>) {
        let hosts = self.ppm.len();
        // A machine that is told the time by its wall clock must not have that set back meanwhile.
        let pauses = rng.chance(0.5) || !self.tells;
        // Tokens of pollers are the server's time: they rise only where that does.
        let steps_back = self.pollers == 0 && rng.chance(0.2);
        for _ in 0..rng.below(8) {
            let at = rng.within(0..self.quiet_at * 9 / 10);
            let host = rng.below(hosts);
            let long = rng.within(self.base / 5..self.base * 5 / 2);
            let nemesis = match rng.below(10) {
                0 | 1 => Nemesis::Host(host, Trouble::Freeze { nanos: long }),
                2 => Nemesis::Host(host, Trouble::Suspend { nanos: long }),
                3 if pauses => Nemesis::Host(host, Trouble::Pause { nanos: long }),
                3 => {
                    let by_nanos = long as i64 - (self.base * 5 / 4) as i64;
                    Nemesis::Host(host, Trouble::StepClock { by_nanos })
                }
                4 => Nemesis::Host(host, Trouble::Kill),
                5 => Nemesis::Cut { host },
                6 => Nemesis::FreezeServer {
                    nanos: rng.within(self.base / 20..self.base),
                },
                7 => Nemesis::RestartServer {
                    nanos: rng.within(self.base / 20..self.base / 2),
                },
                8 if steps_back => Nemesis::StepServerClock {
                    by_nanos: -(rng.within(MS..self.base) as i64),
                },
                _ => Nemesis::Break {
                    name: rng.below(self.names),
                },
            };
            self.nemeses.push((at, nemesis));
        }
        let extra = match broken {
            Some(Assumption::ServerRemembers) => Nemesis::RestartServer {
                nanos: self.base / 20,
            },
            Some(Assumption::ServerClockIsEven) => Nemesis::StepServerClock {
                by_nanos: self.base as i64 * 2,
            },
            Some(Assumption::PausedMachineIsTold) => {
                let nanos = self.base * 2;
                Nemesis::Host(rng.below(hosts), Trouble::Pause { nanos })
            }
            _ => return,
        };
        for _ in 0..4 {
            let at = rng.within(0..self.quiet_at * 9 / 10);
            self.nemeses.push((at, extra));
        }
    }

    /// When everybody who lives must have had the lock.
    pub(super) fn end_at(&self) -> u64 {
        let longest = self.clients.iter().map(|client| client.works).max();
        // What the last trouble left behind: a stopped host, a dead one's lock, a late try's hold.
        let left = 12 * self.base;
        let each = longest.unwrap_or(0) + 2 * self.base;
        self.quiet_at + left + self.clients.len() as u64 * each
    }
}

/// Drawn in an order of its own, so that a seed goes on meaning what it meant.
pub(crate) fn habits(rng: &mut Rng, base: u64, hosts: usize, names: usize) -> Habits {
    let ttl = base * [1, 1, 1, 2][rng.below(4)];
    let works = [base / 50, base / 4, base, 3 * base][rng.below(4)];
    Habits {
        machine: rng.below(hosts),
        name: rng.below(names),
        // Whole milliseconds, as people give them.
        ttl: Duration::from_millis(ttl / MS),
        waits: [1.0, 1.0, 0.7, 0.0][rng.below(4)],
        gives_up: [0.0, 0.3][rng.below(2)],
        renews: rng.chance(0.85),
        works,
        thinks: [base / 20, base / 2, 2 * base][rng.below(3)],
    }
}

pub(crate) fn weather(rng: &mut Rng, base: u64) -> Weather {
    let mut weather = Weather::fine(MS / 10..base / 200);
    if rng.chance(0.7) {
        weather.late = [0.0, 0.02, 0.1][rng.below(3)];
        // A try that is later than its owner's tombstone lasts is out of scope, as the README says.
        weather.late_by = base / 50..base * 4 / 5;
        weather.breaks = [0.0, 0.005, 0.03][rng.below(3)];
        weather.lands = 0.5;
        weather.doubled = [0.0, 0.02][rng.below(2)];
    }
    weather
}

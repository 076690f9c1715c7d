//! What a run is made of, all of it from its seed.

use std::time::Duration;

use leasehold_testkit::sim::{Habits, MS, Rng, SECOND, Trouble, Weather};

use super::super::nodes::Node;
use crate::simulation::scenario::{habits, weather};

/// An assumption that a run breaks on purpose: then two may hold at a time, or the simulation is blind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assumption {
    /// The clocks' rates differ by less than the margin.
    DriftWithinMargin,
    /// Nobody sets the clocks of a majority of nodes forward.
    NodeClocksAreEven,
    /// A disk has what its node was told that it has.
    DisksKeep,
    /// A virtual machine that was stopped is told the time.
    PausedMachineIsTold,
}

/// What is left of a node's memory after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Kept,
    /// All but the newest, as of the last [`Nemesis::Save`].
    Saved,
    Lost,
}

/// What happens to a host or to a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nemesis {
    Host(usize, Trouble),
    Cut {
        host: usize,
    },
    FreezeNode {
        node: Node,
        nanos: u64,
    },
    Save {
        node: Node,
    },
    Crash {
        node: Node,
        nanos: u64,
        left: Memory,
    },
    /// Somebody deletes all that a node has.
    Flush {
        node: Node,
    },
    StepNodeClock {
        node: Node,
        by_nanos: i64,
    },
    Break {
        name: usize,
    },
    /// An operator looks whether he has to say that it is safe to go on.
    Operator,
}

/// One node.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeSetup {
    pub(super) ppm: i64,
    /// Its wall clock at the start, in nanoseconds before or after the others'.
    pub(super) offset: u64,
    /// It has on disk what it answers.
    pub(super) durable: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    /// What everything else is measured by: the usual TTL, in nanoseconds.
    pub(super) base: u64,
    pub(super) names: usize,
    pub(super) nodes: Vec<NodeSetup>,
    /// Of each host, in millionths.
    pub(super) ppm: Vec<i64>,
    pub(super) clients: Vec<Habits>,
    pub(super) weather: Weather,
    pub(super) nemeses: Vec<(u64, Nemesis)>,
    /// From here on nothing bad happens.
    pub(super) calm_at: u64,
    /// From here on nobody begins anew.
    pub(super) last_at: u64,
    /// How long a node may go without an answer.
    pub(super) patience: u64,
    /// A virtual machine that was stopped is told the time.
    pub(super) tells: bool,
}

impl Scenario {
    pub(super) fn new(seed: u64, broken: Option<Assumption>) -> Self {
        let rng = &mut Rng::new(seed);
        let base = rng.within(300 * MS..3 * SECOND);
        let count = [3, 3, 5][rng.below(3)];
        let hosts = 2 + rng.below(4);
        let names = 1 + rng.below(4) / 3;
        let clients = 3 + rng.below(6);
        let drift = if broken == Some(Assumption::DriftWithinMargin) {
            150_000
        } else {
            4_500
        };
        let ppm = |rng: &mut Rng| rng.within(0..2 * drift) as i64 - drift as i64;
        // A majority of clocks that disagree by more than the run lasts, or nearly none.
        let apart = [MS, 20 * SECOND][rng.below(2)];
        let durable = rng.unit();
        let nodes = (0..count)
            .map(|_| NodeSetup {
                ppm: ppm(rng),
                offset: rng.within(0..apart),
                durable: rng.chance(durable),
            })
            .collect();
        let ppm = (0..hosts).map(|_| ppm(rng)).collect();
        let clients = (0..clients)
            .map(|_| {
                let habits = habits(rng, base, hosts, names);
                // Each acquisition is many requests: the time goes to different ones.
                let thinks = habits.thinks.max(base / 3);
                Habits { thinks, ..habits }
            })
            .collect();
        let mut scenario = Self {
            seed,
            base,
            names,
            nodes,
            ppm,
            clients,
            weather: weather(rng, base),
            nemeses: Vec::new(),
            calm_at: 4 * base,
            last_at: 6 * base,
            patience: base / [4, 10, 20][rng.below(3)],
            tells: broken != Some(Assumption::PausedMachineIsTold),
        };
        scenario.trouble(rng);
        scenario.break_on_purpose(rng, broken);
        scenario
    }

    fn trouble(&mut self, rng: &mut Rng) {
        let (hosts, count) = (self.ppm.len(), self.nodes.len());
        // A machine that is told the time by its wall clock must not have that set back meanwhile.
        let pauses = rng.chance(0.5) || !self.tells;
        // If all nodes lose their memory at once they look new; this one never does.
        let keeps = rng.below(count);
        for _ in 0..rng.below(9) {
            let at = rng.within(0..self.calm_at * 9 / 10);
            let host = rng.below(hosts);
            let node = rng.below(count) as Node;
            let long = rng.within(self.base / 5..self.base * 3 / 2);
            let nemesis = match rng.below(15) {
                0 | 1 => Nemesis::Host(host, Trouble::Freeze { nanos: long }),
                2 => Nemesis::Host(host, Trouble::Suspend { nanos: long }),
                3 if pauses => Nemesis::Host(host, Trouble::Pause { nanos: long }),
                3 => {
                    let by_nanos = long as i64 - self.base as i64;
                    Nemesis::Host(host, Trouble::StepClock { by_nanos })
                }
                4 => Nemesis::Host(host, Trouble::Kill),
                5 => Nemesis::Cut { host },
                6 | 7 => Nemesis::FreezeNode {
                    node,
                    nanos: rng.within(self.base / 20..self.base),
                },
                8 => Nemesis::StepNodeClock {
                    node,
                    by_nanos: -(rng.within(MS..self.base) as i64),
                },
                9 if usize::from(node) != keeps => Nemesis::Flush { node },
                9 | 10 => Nemesis::Break {
                    name: rng.below(self.names),
                },
                _ => {
                    self.crash(rng, at, node, usize::from(node) != keeps);
                    continue;
                }
            };
            self.nemeses.push((at, nemesis));
        }
        for look in 0..6 {
            let at = self.calm_at + look * (self.base + SECOND);
            self.nemeses.push((at, Nemesis::Operator));
        }
    }

    fn crash(&mut self, rng: &mut Rng, at: u64, node: Node, loses: bool) {
        let durable = self.nodes[usize::from(node)].durable;
        let left = match rng.below(3) {
            _ if durable || !loses => Memory::Kept,
            0 => Memory::Kept,
            1 => Memory::Saved,
            _ => Memory::Lost,
        };
        let nanos = rng.within(MS..self.base);
        let saved = at.saturating_sub(rng.within(0..SECOND));
        self.nemeses.push((saved, Nemesis::Save { node }));
        self.nemeses
            .push((at, Nemesis::Crash { node, nanos, left }));
    }

    fn break_on_purpose(&mut self, rng: &mut Rng, broken: Option<Assumption>) {
        let (hosts, count) = (self.ppm.len(), self.nodes.len());
        for _ in 0..3 {
            let at = rng.within(0..self.calm_at * 9 / 10);
            match broken {
                Some(Assumption::NodeClocksAreEven) => {
                    let by_nanos = 2 * self.base as i64;
                    for node in 0..(count / 2 + 1) as Node {
                        self.nemeses
                            .push((at, Nemesis::StepNodeClock { node, by_nanos }));
                    }
                }
                Some(Assumption::DisksKeep) => {
                    for node in 0..(count / 2 + 1) as Node {
                        self.nodes[usize::from(node)].durable = true;
                        let saved = at.saturating_sub(rng.within(0..SECOND));
                        self.nemeses.push((saved, Nemesis::Save { node }));
                        let (nanos, left) = (self.base / 50, Memory::Saved);
                        self.nemeses
                            .push((at, Nemesis::Crash { node, nanos, left }));
                    }
                }
                Some(Assumption::PausedMachineIsTold) => {
                    let nanos = self.base * 2;
                    let pause = Nemesis::Host(rng.below(hosts), Trouble::Pause { nanos });
                    self.nemeses.push((at, pause));
                }
                Some(Assumption::DriftWithinMargin) | None => {}
            }
        }
    }

    /// When everybody who lives must have had the lock.
    pub(super) fn end_at(&self) -> u64 {
        let longest = self.clients.iter().map(|client| client.works).max();
        // What the last trouble left behind: a stopped host, a dead one's lock, a node that has to wait.
        let left = 20 * self.base + 10 * SECOND;
        let each = longest.unwrap_or(0) + 2 * self.base;
        self.last_at + left + self.clients.len() as u64 * each
    }

    /// The longest TTL that a client of this host asks for, with its extensions.
    pub(super) fn longest(&self, host: usize) -> Duration {
        let here = self.clients.iter().filter(|client| client.machine == host);
        here.map(|client| client.ttl * 2).max().unwrap_or_default()
    }
}

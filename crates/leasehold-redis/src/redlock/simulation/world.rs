//! The world of one run: hosts, nodes, the network between them, and what happens when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::clock::Moment;
use leasehold_testkit::sim::{Connection, Due, MS, Network, Queue, Records, Rng, SECOND, Weather};
use redis::Value;

use super::super::members::Report;
use super::super::nodes::{Node, Nodes, Quorum};
use super::client::Client;
use super::host::{Host, Wake};
use super::node::Server;
use super::scenario::{Nemesis, Scenario};
use crate::simulation::lua::{Interpreter, Script};

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A request reaches a node.
    Serve(Request),
    /// A node notices that a connection is gone.
    Deaf(Node, Connection),
    /// Something reaches a host.
    Host(usize, Arrival),
    Nemesis(Nemesis),
}

/// What reaches a host.
#[derive(Clone, Debug)]
pub(super) enum Arrival {
    Answer {
        call: u64,
        value: Answered,
    },
    Message {
        line: Line,
        payload: String,
    },
    Subscribed {
        line: Line,
    },
    /// A connection's end is noticed.
    Broken {
        line: Line,
    },
    Timer {
        due: Due,
        wake: Wake,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Answered {
    Value(Value),
    Report(Box<Report>),
}

/// A connection to one run of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) node: Node,
    pub(super) run: u32,
    pub(super) connection: Connection,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) host: usize,
    pub(super) line: Line,
    pub(super) call: u64,
    pub(super) ask: Ask,
}

#[derive(Clone, Debug)]
pub(super) enum Ask {
    Script {
        script: Script,
        keys: Vec<String>,
        args: Vec<String>,
    },
    /// What the node says about itself.
    Report,
    Subscribe,
    Publish {
        channel: String,
        payload: String,
    },
}

/// Faults put into whoever drives the protocol, to see them found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// A lease counts from the decision.
    pub(super) from_the_answer: bool,
    /// A lease counts from the newest request sent.
    pub(super) newest_sent: bool,
    /// The clock isn't read again when answers come.
    pub(super) one_reading: bool,
    /// A token is used before a majority has it.
    pub(super) token_at_once: bool,
    /// A node that lost its memory isn't waited for.
    pub(super) counted_at_once: bool,
    /// A renewal without a majority's answer extends.
    pub(super) unanswered_extends: bool,
    /// What an attempt may have left is not cleaned up.
    pub(super) no_clean_up: bool,
    /// A release leaves no tombstone where a request may still land.
    pub(super) no_tombstone: bool,
    /// Whether a lock is held is a flag, and not read from the clocks.
    pub(super) held_by_flag: bool,
    /// Time is read from the monotonic clock alone.
    pub(super) monotonic_only: bool,
    /// A client has one owner for all its attempts.
    pub(super) one_owner: bool,
}

pub(super) struct World<'a> {
    pub(super) scenario: Scenario,
    pub(super) faults: Faults,
    pub(super) quorum: Quorum,
    pub(super) queue: Queue<Event>,
    pub(super) rng: Rng,
    pub(super) network: Network,
    pub(super) redis: &'a Interpreter,
    pub(super) nodes: Vec<Server>,
    pub(super) names: Vec<Name>,
    pub(super) hosts: Vec<Host>,
    pub(super) clients: Vec<Client>,
    pub(super) records: Records<String>,
    /// Where each owner's release has been answered: it must hold there no more.
    pub(super) ended: BTreeSet<(Node, String)>,
    /// When each owner was let go.
    pub(super) let_go: BTreeMap<String, u64>,
    /// How often an operator said that it is safe to go on. Tokens rise while a majority remembers them.
    pub(super) eras: usize,
    /// When a node last lost something, or came back.
    pub(super) lost_at: u64,
    pub(super) calls: u64,
    pub(super) violation: Option<String>,
    pub(super) trace: Option<Vec<String>>,
}

const EPOCH: u64 = 1_790_000_000 * SECOND;

impl<'a> World<'a> {
    pub(super) fn new(scenario: Scenario, redis: &'a Interpreter, faults: Faults) -> Self {
        let mut rng = Rng::new(!scenario.seed);
        let mut queue = Queue::default();
        for (at, nemesis) in &scenario.nemeses {
            queue.push(*at, Event::Nemesis(*nemesis));
        }
        let nodes: Vec<Server> = scenario
            .nodes
            .iter()
            .map(|setup| Server::new(*setup, EPOCH + 300 * SECOND))
            .collect();
        let hosts = scenario.ppm.iter().enumerate();
        // Hosts' wall clocks are minutes apart: nothing may depend on them.
        let hosts = hosts.map(|(at, ppm)| {
            let real = EPOCH + rng.within(0..600 * SECOND);
            Host::new(at, real, *ppm, scenario.longest(at), nodes.len())
        });
        let hosts = hosts.collect();
        let mut world = Self {
            quorum: Quorum::of(nodes.len()).expect("as many nodes as are allowed"),
            network: Network::new(scenario.weather.clone()),
            names: (0..scenario.names)
                .map(|name| Name::new(&format!("n{name}")).expect("a name"))
                .collect(),
            clients: scenario.clients.iter().cloned().map(Client::new).collect(),
            scenario,
            faults,
            queue,
            rng,
            redis,
            nodes,
            hosts,
            records: Records::default(),
            ended: BTreeSet::new(),
            let_go: BTreeMap::new(),
            eras: 0,
            lost_at: 0,
            calls: 0,
            violation: None,
            trace: None,
        };
        for host in 0..world.hosts.len() {
            world.judge(host);
            world.listen(host);
        }
        for client in 0..world.clients.len() {
            world.think(client);
        }
        world
    }

    /// Lets everything happen that happens until `until`.
    pub(super) fn run_until(&mut self, until: u64) {
        while self.violation.is_none() {
            if self.now() >= self.scenario.calm_at && self.network.weather.late_by.end > 0 {
                self.network.weather = Weather::fine(self.scenario.weather.travel.clone());
            }
            let Some(event) = self.queue.next_until(until) else {
                self.queue.advance(until);
                return;
            };
            self.happen(event);
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.queue.now()
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.queue.now();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} ms  {}", now as f64 / 1e6, line()));
        }
    }

    pub(super) fn violated(&mut self, what: String) {
        self.note(|| format!("VIOLATION {what}"));
        self.violation.get_or_insert(what);
    }

    /// The clocks of a host as its programs read them.
    pub(super) fn moment(&self, host: usize) -> Moment {
        let mut moment = self.hosts[host].machine.clock.moment(self.now());
        if self.faults.monotonic_only {
            moment.boot = moment.monotonic;
            moment.real = moment.monotonic;
        }
        moment
    }

    fn happen(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Serve(request) => {
                let node = &mut self.nodes[usize::from(request.line.node)];
                // A connection ends with the run of the server that it was made to.
                if node.run != request.line.run {
                    return;
                }
                if let Some(later) = node.busy_until(now) {
                    self.queue.push(later, Event::Serve(request));
                } else {
                    node.free_at = now + MS / 50;
                    self.serve(request);
                }
            }
            Event::Deaf(node, connection) => self.nodes[usize::from(node)].deaf(connection),
            Event::Host(host, arrival) => {
                let stops = &self.hosts[host].machine.stops;
                if stops.dead() {
                    return;
                }
                match stops.held_up(now) {
                    Some(later) => self.queue.push(later, Event::Host(host, arrival)),
                    None => self.arrive(host, arrival),
                }
            }
            Event::Nemesis(nemesis) => self.strike(nemesis),
        }
    }

    fn arrive(&mut self, host: usize, arrival: Arrival) {
        match arrival {
            Arrival::Timer { due, wake } => {
                if due.rest(self.moment(host)) > 0 {
                    self.timer(host, due, wake);
                } else {
                    self.wake(host, wake);
                }
            }
            Arrival::Answer { call, value } => self.answered(host, call, value),
            Arrival::Message { line, payload } => self.told(host, line, &payload),
            Arrival::Subscribed { line } => self.subscribed(host, line),
            Arrival::Broken { line } => self.broken(host, line),
        }
    }

    pub(super) fn timer(&mut self, host: usize, due: Due, wake: Wake) {
        let rest = due.rest(self.moment(host));
        let at = self.hosts[host].machine.clock.after(self.now(), rest);
        self.queue
            .push(at, Event::Host(host, Arrival::Timer { due, wake }));
    }

    /// A timer as the asynchronous runtime has them: on the monotonic clock.
    pub(super) fn after(&mut self, host: usize, nanos: u64, wake: Wake) {
        let at = self.moment(host).monotonic + nanos;
        self.timer(host, Due::Monotonic(at), wake);
    }

    pub(super) fn send(&mut self, host: usize, line: Line, call: u64, ask: Ask, again: bool) {
        let now = self.now();
        let fate = self
            .network
            .send(&mut self.rng, now, line.connection, false);
        let request = Request {
            host,
            line,
            call,
            ask,
        };
        let again = fate.again.filter(|_| again);
        for at in fate.arrives.into_iter().chain(again) {
            self.queue.push(at, Event::Serve(request.clone()));
        }
        if fate.broke {
            self.breaks(host, line);
        }
    }

    pub(super) fn send_back(&mut self, host: usize, line: Line, arrival: Arrival) {
        let now = self.now();
        let fate = self.network.send(&mut self.rng, now, line.connection, true);
        if let Some(at) = fate.arrives {
            self.queue.push(at, Event::Host(host, arrival));
        }
        if fate.broke {
            self.breaks(host, line);
        }
    }

    /// A connection broke. Its ends notice some time or, where only answers are awaited, perhaps never.
    pub(super) fn breaks(&mut self, host: usize, line: Line) {
        let now = self.now();
        self.network.cut(line.connection);
        let base = self.scenario.base;
        if self.hosts[host].listens_on(line) || self.rng.chance(0.6) {
            let at = now + self.rng.within(MS..base);
            self.queue
                .push(at, Event::Host(host, Arrival::Broken { line }));
        }
        let at = now + self.rng.within(MS..base);
        self.queue.push(at, Event::Deaf(line.node, line.connection));
    }

    pub(super) fn all(&self) -> Nodes {
        self.quorum.all()
    }
}

/// Nanoseconds of a duration.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

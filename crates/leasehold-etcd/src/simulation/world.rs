//! The world of one run: hosts, members, the network between them, and what happens when.

use std::sync::Arc;

use leasehold_core::clock::Moment;
use leasehold_core::{Identity, Name, Owner};
use leasehold_testkit::sim::{
    Clock, Connection, Due, MS, Network, Queue, Records, Rng, SECOND, Weather,
};

use super::client::Client;
use super::host::{Answer, Ask, Host, Wake};
use super::member::Cluster;
use super::scenario::{Nemesis, Scenario};

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A request reaches a member.
    Serve(Request),
    /// A request about a lease reaches the member that is taken for the leader.
    Lessor {
        request: Request,
        at: usize,
    },
    /// A member answers.
    Answer {
        request: Request,
        answer: Answer,
    },
    /// The leader looks for leases that are over.
    Expire,
    /// A member takes in what it missed.
    CaughtUp(usize),
    /// Something reaches a host.
    Host(usize, Arrival),
    Nemesis(Nemesis),
}

/// What reaches a host.
#[derive(Clone, Debug)]
pub(super) enum Arrival {
    Answer {
        call: u64,
        answer: Answer,
    },
    /// A watch was created, or tells of events.
    Watched {
        id: i64,
        events: Option<Vec<crate::wire::Event>>,
    },
    /// A connection's end is noticed.
    Broken(Connection),
    /// A timer, due when the clock shows this.
    Timer {
        due: Due,
        wake: Wake,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) host: usize,
    pub(super) member: usize,
    pub(super) connection: Connection,
    pub(super) call: u64,
    pub(super) sent: u64,
    pub(super) ask: Ask,
}

/// Faults put into a client, to see them found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// A keep-alive counts without the quorum read after it.
    pub(super) keep_alive_alone: bool,
    /// A lease counts from the answer.
    pub(super) from_the_answer: bool,
    /// The token is the revision in the header of the answer.
    pub(super) header_token: bool,
    /// What cleans up doesn't void tries without an answer.
    pub(super) no_voiding: bool,
    /// Who is told that it is the first doesn't read its key again.
    pub(super) no_reading: bool,
    /// Time is read from the monotonic clock alone.
    pub(super) monotonic_only: bool,
}

pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) faults: Faults,
    pub(super) queue: Queue<Event>,
    pub(super) rng: Rng,
    pub(super) network: Network,
    pub(super) cluster: Cluster,
    pub(super) hosts: Vec<Host>,
    pub(super) clients: Vec<Client>,
    pub(super) names: Vec<Name>,
    pub(super) identity: Arc<Identity>,
    pub(super) records: Records<Owner>,
    pub(super) calls: u64,
    pub(super) violation: Option<String>,
    pub(super) trace: Option<Vec<String>>,
}

const EPOCH: u64 = 1_790_000_000 * SECOND;

impl World {
    pub(super) fn new(scenario: Scenario, faults: Faults) -> Self {
        let mut rng = Rng::new(!scenario.seed);
        let mut queue = Queue::default();
        for (at, nemesis) in &scenario.nemeses {
            queue.push(*at, Event::Nemesis(*nemesis));
        }
        queue.push(0, Event::Expire);
        let mut network = Network::new(scenario.weather.clone());
        let members = scenario.member_ppm.len();
        let cluster = Cluster::new(&mut rng, members, &scenario.member_ppm);
        let mut host = |ppm: &i64| {
            // Hosts' wall clocks are minutes apart: nothing may depend on them.
            let real = EPOCH + rng.within(0..600 * SECOND);
            let at = rng.below(members);
            Host::new(Clock::new(real, *ppm), at, &mut network)
        };
        let hosts = scenario.ppm.iter().map(&mut host).collect();
        let clients = scenario.clients.iter().cloned().map(Client::new).collect();
        let names = 0..scenario.names;
        let mut world = Self {
            names: names
                .map(|name| Name::new(&format!("n{name}")).unwrap())
                .collect(),
            scenario,
            faults,
            queue,
            rng,
            network,
            cluster,
            hosts,
            clients,
            identity: Identity::of_this_process(),
            records: Records::default(),
            calls: 0,
            violation: None,
            trace: None,
        };
        for client in 0..world.clients.len() {
            world.think(client);
        }
        world
    }

    /// Lets everything happen that happens until `until`.
    pub(super) fn run_until(&mut self, until: u64) {
        while self.violation.is_none() {
            if self.now() >= self.scenario.quiet_at && self.network.weather.late_by.end > 0 {
                let travel = self.scenario.weather.travel.clone();
                self.network.weather = Weather::fine(travel);
            }
            let Some(event) = self.queue.next_until(until) else {
                return self.queue.advance(until);
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
            Event::Serve(request) => self.serve(request),
            Event::Lessor { request, at } => self.lessor(request, at),
            Event::Answer { request, answer } => self.answer(&request, answer),
            Event::Expire => self.expire(),
            Event::CaughtUp(member) => self.caught_up(member),
            Event::Host(host, arrival) => {
                let stops = self.hosts[host].machine.stops;
                match stops.held_up(now) {
                    _ if stops.dead() => {}
                    Some(later) => self.queue.push(later, Event::Host(host, arrival)),
                    None => self.arrive(host, arrival),
                }
            }
            Event::Nemesis(nemesis) => self.strike(nemesis),
        }
    }

    /// Sends a request to a member.
    pub(super) fn send(&mut self, request: Request) {
        let now = self.now();
        let (host, connection) = (request.host, request.connection);
        let fate = self.network.send(&mut self.rng, now, connection, false);
        // What writes is never sent twice by itself; what only looks may be.
        let looks = matches!(
            request.ask,
            Ask::Range(_) | Ask::KeepAlive { .. } | Ask::TimeToLive { .. }
        );
        let again = looks.then_some(fate.again).flatten();
        for at in fate.arrives.into_iter().chain(again) {
            self.queue.push(at, Event::Serve(request.clone()));
        }
        if fate.broke {
            self.breaks(host, connection);
        }
    }

    pub(super) fn send_back(&mut self, connection: Connection, host: usize, arrival: Arrival) {
        let now = self.now();
        let fate = self.network.send(&mut self.rng, now, connection, true);
        if let Some(at) = fate.arrives {
            self.queue.push(at, Event::Host(host, arrival));
        }
        if fate.broke {
            self.breaks(host, connection);
        }
    }

    /// A connection broke. Its ends notice some time or, where only answers are awaited, perhaps never.
    pub(super) fn breaks(&mut self, host: usize, connection: Connection) {
        let now = self.now();
        self.network.cut(connection);
        let watchers = &mut self.cluster.watchers;
        watchers.retain(|watcher| watcher.connection != connection);
        let watches = self.hosts[host].feed.is_on(connection);
        if watches || self.rng.chance(0.6) {
            let at = now + self.rng.within(MS..self.scenario.base);
            self.queue
                .push(at, Event::Host(host, Arrival::Broken(connection)));
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

    fn arrive(&mut self, host: usize, arrival: Arrival) {
        match arrival {
            Arrival::Timer { due, wake } => {
                if due.rest(self.moment(host)) > 0 {
                    self.timer(host, due, wake);
                } else {
                    self.wake(host, wake);
                }
            }
            Arrival::Answer { call, answer } => self.call_answered(host, call, answer),
            Arrival::Watched { id, events } => self.watched(host, id, events),
            Arrival::Broken(connection) => self.broken(host, connection),
        }
    }
}

//! The world of one run: hosts, the network between them and the server, and what happens when.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_testkit::sim::{
    Clock, Connection, Due, MS, Network, Queue, Records, Rng, SECOND, Stops, Weather,
};
use redis::Value;

use super::client::Client;
use super::host::{Host, Wake};
use super::lua::{Interpreter, Script};
use super::poller::Poller;
use super::scenario::{Nemesis, Scenario};
use crate::keys::Keys;

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A request reaches the server.
    Serve(Request),
    /// The server notices that a connection is gone.
    Deaf(Connection),
    /// Something reaches a host.
    Host(usize, Arrival),
    Nemesis(Nemesis),
}

/// What reaches a host.
#[derive(Clone, Debug)]
pub(super) enum Arrival {
    Answer {
        call: u64,
        value: Value,
    },
    Message {
        connection: Connection,
        payload: String,
    },
    Subscribed {
        connection: Connection,
    },
    /// A connection's end is noticed.
    Broken {
        connection: Connection,
    },
    /// A timer, due when the clock shows this.
    Timer {
        due: Due,
        wake: Wake,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) host: usize,
    pub(super) connection: Connection,
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
    Subscribe,
    /// `SET key value NX PX ms`, answered with the server's time if it was set.
    Set {
        key: String,
        value: String,
        px: u64,
    },
    /// Compare and delete, as other libraries do it.
    Delete {
        key: String,
        value: String,
    },
}

/// Faults put into a client, to see them found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// A hand-over counts from the newest try sent instead of the one it names.
    pub(super) newest_sent: bool,
    /// A renewal without an answer extends.
    pub(super) unanswered_extends: bool,
    /// A lease counts from the answer.
    pub(super) from_the_answer: bool,
    /// Time is read from the monotonic clock alone.
    pub(super) monotonic_only: bool,
    /// The wall clock isn't looked at.
    pub(super) blind_to_the_wall: bool,
    /// Nothing is taken off for drift.
    pub(super) no_margin: bool,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) clock: Clock,
    pub(super) stops: Stops,
    /// Restarting until then: what arrives is refused.
    pub(super) down_until: u64,
    /// One request at a time.
    free_at: u64,
    /// The connections it believes to listen, and whose they are.
    pub(super) listeners: Vec<(Connection, usize)>,
}

pub(super) struct World<'a> {
    pub(super) scenario: Scenario,
    pub(super) faults: Faults,
    pub(super) queue: Queue<Event>,
    pub(super) rng: Rng,
    pub(super) network: Network,
    pub(super) redis: &'a Interpreter,
    pub(super) server: Server,
    /// The keys of each name.
    pub(super) keys: Vec<Keys>,
    pub(super) hosts: Vec<Host>,
    pub(super) clients: Vec<Client>,
    pub(super) pollers: Vec<Poller>,
    pub(super) records: Records<String>,
    /// Owners whose release has been answered.
    pub(super) released: BTreeSet<String>,
    pub(super) calls: u64,
    /// The newest token of each name, as the server has it.
    pub(super) tokens: Vec<u64>,
    pub(super) violation: Option<String>,
    pub(super) trace: Option<Vec<String>>,
}

const EPOCH: u64 = 1_790_000_000 * SECOND;

pub(super) fn name_of(name: usize) -> leasehold_core::Name {
    leasehold_core::Name::new(&format!("n{name}")).unwrap()
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: Scenario, redis: &'a Interpreter, faults: Faults) -> Self {
        let mut rng = Rng::new(!scenario.seed);
        *redis.store() = super::store::Store::default();
        let mut queue = Queue::default();
        for (at, nemesis) in &scenario.nemeses {
            queue.push(*at, Event::Nemesis(*nemesis));
        }
        let mut host = |at: usize, ppm: i64| {
            // Hosts' wall clocks are minutes apart: nothing may depend on them.
            let real = EPOCH + rng.within(0..600 * SECOND);
            Host::new(at, Clock::new(real, ppm))
        };
        let mut hosts: Vec<Host> = scenario
            .ppm
            .iter()
            .enumerate()
            .map(|(at, ppm)| host(at, *ppm))
            .collect();
        let first_poller = hosts.len();
        for at in 0..scenario.pollers {
            hosts.push(host(first_poller + at, 0));
        }
        let clients = scenario.clients.iter().cloned().map(Client::new).collect();
        let pollers = (0..scenario.pollers)
            .map(|at| Poller::new(first_poller + at))
            .collect();
        let mut world = Self {
            server: Server {
                clock: Clock::new(EPOCH + 300 * SECOND, scenario.server_ppm),
                stops: Stops::default(),
                down_until: 0,
                free_at: 0,
                listeners: Vec::new(),
            },
            network: Network::new(scenario.weather.clone()),
            tokens: vec![0; scenario.names],
            keys: (0..scenario.names)
                .map(|name| Keys::of(&name_of(name)))
                .collect(),
            scenario,
            faults,
            queue,
            rng,
            redis,
            hosts,
            clients,
            pollers,
            records: Records::default(),
            released: BTreeSet::new(),
            calls: 0,
            violation: None,
            trace: None,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        for client in 0..self.clients.len() {
            self.think(client);
        }
        for poller in 0..self.pollers.len() {
            self.poll_later(poller);
        }
    }

    /// Lets everything happen that happens until `until`.
    pub(super) fn run_until(&mut self, until: u64) {
        while self.violation.is_none() {
            let quiet = self.scenario.quiet_at;
            if self.queue.now() >= quiet && self.network.weather.late_by.end > 0 {
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
        }
        if self.faults.monotonic_only || self.faults.blind_to_the_wall {
            moment.real = moment.boot;
        }
        moment
    }

    fn happen(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Serve(request) => {
                let busy = (self.server.free_at > now).then_some(self.server.free_at);
                if let Some(later) = self.server.stops.held_up(now).or(busy) {
                    self.queue.push(later, Event::Serve(request));
                } else if self.server.down_until <= now {
                    self.server.free_at = now + MS / 50;
                    self.serve(request);
                }
            }
            Event::Deaf(connection) => {
                self.server.listeners.retain(|(c, _)| *c != connection);
            }
            Event::Host(host, arrival) => {
                if self.hosts[host].machine.stops.dead() {
                    return;
                }
                match self.hosts[host].machine.stops.held_up(now) {
                    Some(later) => self.queue.push(later, Event::Host(host, arrival)),
                    None => self.arrive(host, arrival),
                }
            }
            Event::Nemesis(nemesis) => self.strike(nemesis),
        }
    }

    /// Tells the server's memory the time and who listens.
    pub(super) fn set_server(&self) {
        let now = self.now();
        let mut store = self.redis.store();
        store.micros = self.server.clock.real(now) / 1000;
        store.listeners.clear();
        for (_, host) in &self.server.listeners {
            let channel = self.hosts[*host].channel.clone();
            *store.listeners.entry(channel).or_default() += 1;
        }
    }

    fn serve(&mut self, request: Request) {
        self.set_server();
        self.check_before();
        let answer = match request.ask.clone() {
            Ask::Subscribe => {
                self.server
                    .listeners
                    .push((request.connection, request.host));
                let arrival = Arrival::Subscribed {
                    connection: request.connection,
                };
                return self.send_back(request.connection, request.host, arrival);
            }
            Ask::Script { script, keys, args } => {
                let answer = self.redis.run(script, &keys, &args);
                self.note(|| format!("server: {script:?} {} {args:?} -> {answer:?}", keys[0]));
                match answer {
                    Ok(value) => value,
                    Err(error) => return self.violated(error),
                }
            }
            Ask::Set { key, value, px } => {
                let mut store = self.redis.store();
                let reply = store.command(&["SET", &key, &value, "NX", "PX", &px.to_string()]);
                let set = matches!(reply, super::store::Reply::Status(_));
                if set {
                    Value::Int(store.micros as i64)
                } else {
                    Value::Nil
                }
            }
            Ask::Delete { key, value } => {
                let mut store = self.redis.store();
                if store.text(&key).as_ref() == Some(&value) {
                    store.command(&["DEL", &key]);
                }
                Value::Nil
            }
        };
        self.check_after();
        let value = Arrival::Answer {
            call: request.call,
            value: answer,
        };
        self.send_back(request.connection, request.host, value);
        self.publish();
    }

    pub(super) fn publish(&mut self) {
        let published = std::mem::take(&mut self.redis.store().published);
        for (channel, payload) in published {
            self.note(|| format!("server: tells {channel} {payload}"));
            let listeners: Vec<(Connection, usize)> = self
                .server
                .listeners
                .iter()
                .filter(|(_, host)| self.hosts[*host].channel == channel)
                .copied()
                .collect();
            for (connection, host) in listeners {
                let payload = payload.clone();
                self.send_back(
                    connection,
                    host,
                    Arrival::Message {
                        connection,
                        payload,
                    },
                );
            }
        }
    }

    fn send_back(&mut self, connection: Connection, host: usize, arrival: Arrival) {
        let now = self.now();
        let fate = self.network.send(&mut self.rng, now, connection, true);
        // A stream carries nothing twice; a message that was kept and sent again is what comes nearest.
        let again = matches!(arrival, Arrival::Message { .. }).then_some(fate.again);
        for at in fate.arrives.into_iter().chain(again.flatten()) {
            self.queue.push(at, Event::Host(host, arrival.clone()));
        }
        if fate.broke {
            self.breaks(host, connection);
        }
    }

    /// A connection broke. Its ends notice some time or, where only answers are awaited, perhaps never.
    pub(super) fn breaks(&mut self, host: usize, connection: Connection) {
        let now = self.now();
        self.network.cut(connection);
        let listens = self.hosts[host].listens_on(connection);
        let base = self.scenario.base;
        if listens || self.rng.chance(0.6) {
            let at = now + self.rng.within(MS..base);
            self.queue
                .push(at, Event::Host(host, Arrival::Broken { connection }));
        }
        let at = now + self.rng.within(MS..base);
        self.queue.push(at, Event::Deaf(connection));
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
            Arrival::Answer { call, value } => {
                if let Some((_, call)) = self.hosts[host].calls.remove(&call) {
                    self.answered(call, value);
                }
            }
            Arrival::Message {
                connection,
                payload,
            } => self.told(host, connection, &payload),
            Arrival::Subscribed { connection } => self.subscribed(host, connection),
            Arrival::Broken { connection } => self.broken(host, connection),
        }
    }
}

/// Nanoseconds of a duration.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

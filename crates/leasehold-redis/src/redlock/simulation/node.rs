//! A node: a server with its memory, and what it does with a request.

use std::time::Duration;

use leasehold_testkit::sim::{Clock, Connection, Stops};

use super::super::members::Report;
use super::super::nodes::Node;
use super::super::script;
use super::scenario::{Memory, NodeSetup};
use super::world::{Answered, Arrival, Ask, Line, Request, World};
use crate::simulation::store::Store;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) clock: Clock,
    pub(super) stops: Stops,
    /// Rises with each start.
    pub(super) run: u32,
    /// What its clock showed at its start.
    started: u64,
    /// Restarting until then: nobody can connect.
    pub(super) down_until: u64,
    /// One request at a time.
    pub(super) free_at: u64,
    durable: bool,
    pub(super) store: Store,
    /// What is on its disk.
    saved: Store,
    /// The connections it believes to listen, and whose they are.
    listeners: Vec<(usize, Line)>,
}

impl Server {
    pub(super) fn new(setup: NodeSetup, real: u64) -> Self {
        let clock = Clock::new(real + setup.offset, setup.ppm);
        Self {
            clock,
            stops: Stops::default(),
            run: 0,
            started: clock.real(0),
            down_until: 0,
            free_at: 0,
            durable: setup.durable,
            store: Store::default(),
            saved: Store::default(),
            listeners: Vec::new(),
        }
    }

    /// Until when it takes nothing in, if it doesn't.
    pub(super) fn busy_until(&self, now: u64) -> Option<u64> {
        let busy = (self.free_at > now).then_some(self.free_at);
        self.stops.held_up(now).or(busy)
    }

    pub(super) fn is_up(&self, now: u64) -> bool {
        self.down_until <= now
    }

    pub(super) fn deaf(&mut self, connection: Connection) {
        self.listeners
            .retain(|(_, line)| line.connection != connection);
    }

    pub(super) fn save(&mut self) {
        self.saved = self.store.clone();
    }

    /// It ends, and starts again after `nanos` with what is left.
    pub(super) fn crash(&mut self, now: u64, nanos: u64, left: Memory) {
        self.run += 1;
        self.down_until = self.down_until.max(now + nanos);
        self.started = self.clock.real(self.down_until);
        self.stops = Stops::default();
        self.listeners.clear();
        match left {
            Memory::Kept => {}
            Memory::Saved => self.store = self.saved.clone(),
            Memory::Lost => {
                self.store = Store::default();
                self.save();
            }
        }
    }

    pub(super) fn run_id(node: Node, run: u32) -> String {
        format!("run-{node}-{run}")
    }

    pub(super) fn report(&mut self, node: Node, now: u64) -> Report {
        self.store.micros = self.clock.real(now) / 1000;
        // Servers tell it in whole seconds of their wall clock.
        let uptime =
            (self.clock.real(now) / 1_000_000_000).saturating_sub(self.started / 1_000_000_000);
        Report {
            run: Self::run_id(node, self.run),
            master: true,
            uptime: Duration::from_secs(uptime),
            promoted: false,
            durable: self.durable,
            record: script::record(&self.store.fields(script::record_key())),
        }
    }
}

impl World<'_> {
    /// Has `work` done on a node's memory by the interpreter, at the node's time.
    pub(super) fn on_node<T>(&mut self, node: Node, work: impl FnOnce(&mut Self) -> T) -> T {
        let now = self.now();
        let server = &mut self.nodes[usize::from(node)];
        server.store.micros = server.clock.real(now) / 1000;
        server.store.listeners.clear();
        for (host, _) in &server.listeners {
            let channel = self.hosts[*host].channel.clone();
            *server.store.listeners.entry(channel).or_default() += 1;
        }
        std::mem::swap(&mut server.store, &mut *self.redis.store());
        let done = work(self);
        let server = &mut self.nodes[usize::from(node)];
        std::mem::swap(&mut server.store, &mut *self.redis.store());
        done
    }

    pub(super) fn serve(&mut self, request: Request) {
        let now = self.now();
        let Request {
            host,
            line,
            call,
            ask,
        } = request;
        let node = line.node;
        let value = match ask {
            Ask::Subscribe => {
                self.nodes[usize::from(node)].listeners.push((host, line));
                return self.send_back(host, line, Arrival::Subscribed { line });
            }
            Ask::Report => {
                let report = self.nodes[usize::from(node)].report(node, now);
                Answered::Report(Box::new(report))
            }
            Ask::Publish { channel, payload } => {
                let published = &mut self.nodes[usize::from(node)].store.published;
                published.push((channel, payload));
                self.publish(node);
                return;
            }
            Ask::Script { script, keys, args } => {
                let answer = self.on_node(node, |world| world.redis.run(script, &keys, &args));
                self.note(|| format!("node {node}: {script:?} {} {args:?} -> {answer:?}", keys[0]));
                match answer {
                    Ok(value) => Answered::Value(value),
                    Err(error) => return self.violated(error),
                }
            }
        };
        self.check_after(node);
        self.send_back(host, line, Arrival::Answer { call, value });
        self.publish(node);
    }

    pub(super) fn publish(&mut self, node: Node) {
        let server = &mut self.nodes[usize::from(node)];
        for (channel, payload) in std::mem::take(&mut server.store.published) {
            self.note(|| format!("node {node}: tells {channel} {payload}"));
            let listeners = self.nodes[usize::from(node)].listeners.clone();
            for (host, line) in listeners {
                if self.hosts[host].channel == channel {
                    let payload = payload.clone();
                    self.send_back(host, line, Arrival::Message { line, payload });
                }
            }
        }
    }
}

//! What decides in a simulation: tries, looks, beats, what is looked after, and the core's plan, with simulated clocks,
//! messages and leaders. The requests are those that ship.
//!
//! Half of the seeds have servers that wait one TTL, the least that Consul promises, under one leader. The other half have
//! leaders that freeze, are replaced, come back, and renew sessions that the new one counts down; there servers wait two
//! TTLs, as they do. What it leaves out: many names on one session, moves between sessions, waiters, several holders'
//! hosts that stand still. That a renewal alone would not do is not found by it: two TTLs bear one that counts falsely.
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

mod client;
mod cluster;

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_testkit::sim::{MS, Rng, SECOND, seeds};

use self::client::{Act, Client, nanos};
use self::cluster::{Cluster, Request, Response};

const TTL: Duration = Duration::from_secs(10);
/// How long a run lasts.
const LASTS: u64 = 300 * SECOND;
/// How many seeds are run each time.
const SEEDS: u64 = 400;

/// What is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The lease counts from the answer.
    SinceAnswer,
    /// The holder counts on all that a server waits.
    TwoTtls,
}

enum Event {
    /// A request reaches an agent.
    Arrive(usize, u64, usize, Request),
    Answer(usize, u64, Response),
    /// A client's pause or patience is over.
    Wake(usize, u64),
    Freeze,
    Elect,
    Thaw(usize),
    /// A client is cut off, or not any more.
    Cut(usize),
    /// An agent learns of a leader.
    See(usize, usize),
}

struct World {
    now: u64,
    next: u64,
    events: BTreeMap<(u64, u64), Event>,
    cluster: Cluster,
    /// Whom each agent takes for the leader.
    sees: [usize; 3],
    /// What waits at a frozen leader.
    stuck: Vec<(usize, Event)>,
    clients: Vec<Client>,
    /// Tells a client's request from earlier ones, and whether one is under way.
    tags: Vec<(u64, bool)>,
    /// Until when each client is cut off.
    cut: [u64; 3],
    rng: Rng,
}

impl World {
    fn new(seed: u64, fault: Fault) -> Self {
        let mut rng = Rng::new(seed);
        let changes = seed % 2 == 1;
        let wait = nanos(TTL) * if changes { 2 } else { 1 };
        let clients = (0..3)
            .map(|_| Client::new(Rng::new(rng.bits()), fault))
            .collect();
        let mut world = Self {
            now: 0,
            next: 0,
            events: BTreeMap::new(),
            cluster: Cluster::new(wait),
            sees: [0; 3],
            stuck: Vec::new(),
            clients,
            tags: vec![(0, false); 3],
            cut: [0; 3],
            rng,
        };
        for client in 0..3 {
            world.at(0, Event::Wake(client, 0));
        }
        for client in 0..3 {
            let first = world.rng.within(0..60 * SECOND);
            world.at(first, Event::Cut(client));
        }
        if changes {
            world.at(5 * SECOND, Event::Freeze);
        }
        world
    }

    fn at(&mut self, after: u64, event: Event) {
        self.next += 1;
        self.events.insert((self.now + after, self.next), event);
    }

    /// How long a message of a client's, or to it, takes; none where it is lost.
    fn travel(&mut self, client: usize) -> Option<u64> {
        if self.now < self.cut[client] {
            return None;
        }
        match self.rng.below(100) {
            0..=3 => None,
            4..=6 => Some(self.rng.within(SECOND..20 * SECOND)),
            _ => Some(self.rng.within(MS..400 * MS)),
        }
    }

    fn run(&mut self) -> seeds::Outcome {
        let mut last = 0;
        let mut holds = 0;
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > LASTS {
                break;
            }
            self.now = at;
            self.happen(event);
            let believers = self.clients.iter().filter(|one| one.believes(at)).count();
            if believers > 1 {
                return Err(format!("two holders at {:.3} s", at as f64 / SECOND as f64));
            }
            for client in &mut self.clients {
                for token in client.grants.drain(..) {
                    holds += 1;
                    if token <= last {
                        return Err(format!("token {token} after {last}"));
                    }
                    last = token;
                }
            }
        }
        Ok(holds)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(client, tag, agent, request) => {
                let leader = self.sees[agent];
                self.arrive(leader, client, tag, request);
            }
            Event::Answer(client, tag, response) if self.tags[client] == (tag, true) => {
                let act = self.clients[client].take(self.now, response);
                self.act(client, act);
            }
            Event::Wake(client, tag) if self.tags[client].0 == tag => {
                let act = if self.tags[client].1 {
                    self.clients[client].late(self.now)
                } else {
                    self.clients[client].act(self.now)
                };
                self.act(client, act);
            }
            Event::Answer(..) | Event::Wake(..) => {}
            Event::Freeze => {
                let old = self.cluster.leader();
                self.cluster.freeze();
                let election = self.rng.within(500 * MS..3 * SECOND);
                self.at(election, Event::Elect);
                let frozen = election + self.rng.within(0..25 * SECOND);
                self.at(frozen, Event::Thaw(old));
                let again = self.rng.within(30 * SECOND..60 * SECOND);
                self.at(again, Event::Freeze);
            }
            Event::Elect => {
                self.cluster.elect(self.now);
                let leader = self.cluster.leader();
                // Those that are frozen themselves, or cut off, learn of it late.
                let late = self.rng.chance(0.5);
                for agent in 0..3 {
                    let after = if late || self.rng.chance(0.3) {
                        self.rng.within(5 * SECOND..25 * SECOND)
                    } else {
                        self.rng.within(0..2 * SECOND)
                    };
                    self.at(after, Event::See(agent, leader));
                }
            }
            Event::Thaw(leader) => {
                let until = self.now + self.rng.within(0..8 * SECOND);
                self.cluster.thaw(leader, until);
                let (stuck, others) = std::mem::take(&mut self.stuck)
                    .into_iter()
                    .partition(|(at, _)| *at == leader);
                self.stuck = others;
                for (_, event) in stuck {
                    if let Event::Arrive(client, tag, _, request) = event {
                        self.arrive(leader, client, tag, request);
                    }
                }
            }
            Event::Cut(client) => {
                self.cut[client] = self.now + self.rng.within(SECOND..20 * SECOND);
                let again = self.rng.within(30 * SECOND..90 * SECOND);
                self.at(again, Event::Cut(client));
            }
            Event::See(agent, leader) => self.sees[agent] = self.sees[agent].max(leader),
        }
    }

    fn arrive(&mut self, leader: usize, client: usize, tag: u64, request: Request) {
        if self.cluster.is_frozen(leader) {
            let event = Event::Arrive(client, tag, 0, request);
            return self.stuck.push((leader, event));
        }
        if let Some(response) = self.cluster.process(self.now, leader, &request)
            && let Some(travel) = self.travel(client)
        {
            self.at(travel, Event::Answer(client, tag, response));
        }
    }

    fn act(&mut self, client: usize, act: Act) {
        self.tags[client].0 += 1;
        let tag = self.tags[client].0;
        match act {
            Act::Ask(agent, request, patience) => {
                self.tags[client].1 = true;
                if let Some(travel) = self.travel(client) {
                    self.at(travel, Event::Arrive(client, tag, agent, request));
                }
                self.at(patience, Event::Wake(client, tag));
            }
            Act::Sleep(nanos) => {
                self.tags[client].1 = false;
                self.at(nanos, Event::Wake(client, tag));
            }
        }
    }
}

#[test]
fn many_seeds_keep_the_promises() {
    let run = || |seed| World::new(seed, Fault::None).run();
    if let Some(seed) = seeds::alone() {
        run()(seed).unwrap();
        return;
    }
    let name = "simulation::many_seeds_keep_the_promises";
    let (seeds, holds) = seeds::keep(SEEDS, "leasehold-consul", name, run);
    assert!(holds as u64 > seeds * 5, "{holds} holds: nothing to see");
}

fn is_found(fault: Fault) {
    let (found, holds) = seeds::search(0..20_000, || move |seed| World::new(seed, fault).run());
    assert!(found.is_some(), "{fault:?} is not found in {holds} holds");
}

#[test]
fn a_lease_that_counts_from_the_answer_is_found() {
    is_found(Fault::SinceAnswer);
}

#[test]
fn a_holder_that_counts_on_all_that_a_server_waits_is_found() {
    is_found(Fault::TwoTtls);
}

//! Nodes that run the real scripts, and clients that run the real protocol, with a network whose order each test
//! says.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::backend::{LossReason, Release, Renewal};
use leasehold_core::clock::Moment;
use leasehold_core::{Name, Owner};
use redis::Value;

use super::super::attempt::Attempt;
use super::super::exchange::{Effect, Event, Outcome, Request};
use super::super::hold::{Extension, Leaving, Step};
use super::super::nodes::{Node, Nodes, Quorum};
use super::super::script::{self, ENTER, LEAVE, Notice, TAKE, WRITE};
use crate::renewer::renewal;
use crate::script::RENEW;
use crate::simulation::lua::{Interpreter, Texts};

pub(super) const TTL: Duration = Duration::from_secs(10);
const START: u64 = 1_700_000_000_000_000;

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn nodes(of: impl IntoIterator<Item = Node>) -> Nodes {
    of.into_iter().collect()
}

pub(super) struct Cluster {
    nodes: Vec<Interpreter>,
    clock: u64,
    name: Name,
}

/// One attempt, with the requests it has on their way.
pub(super) struct Client {
    pub(super) attempt: Attempt,
    owner: Owner,
    pub(super) outbox: VecDeque<(Node, Request)>,
    pub(super) outcome: Option<Outcome>,
    pub(super) pause: Option<Duration>,
    pub(super) requests: usize,
}

impl Cluster {
    pub(super) fn new(count: u8) -> Self {
        let cluster = Self {
            nodes: (0..count)
                .map(|_| Interpreter::new(&Texts::shipped()))
                .collect(),
            clock: 0,
            name: Name::new("a").unwrap(),
        };
        for node in 0..count {
            cluster.give_record(node);
        }
        cluster
    }

    /// A record with a floor, as a node that counts has one: laid, then entered.
    pub(super) fn give_record(&self, node: Node) {
        self.set_clock(node);
        let server = &self.nodes[usize::from(node)];
        let key = script::record_key();
        for _ in 0..2 {
            let seen = script::record(&server.store().fields(key));
            let version = seen.map_or(0, |record| record.version).to_string();
            let args = [&version, "1", "10000", "0", "1", "n", "r"].map(str::to_owned);
            server.eval(ENTER.text, &[key.to_owned()], &args).unwrap();
        }
    }

    pub(super) fn quorum(&self) -> Quorum {
        Quorum::of(self.nodes.len()).unwrap()
    }

    pub(super) fn now(&self) -> Moment {
        let at = self.clock * 1000 + 1;
        Moment {
            boot: at,
            monotonic: at,
            real: at,
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.clock += u64::try_from(time.as_micros()).unwrap();
    }

    fn set_clock(&self, node: Node) {
        self.nodes[usize::from(node)].store().micros = START + self.clock;
    }

    pub(super) fn client(&self, waits: bool) -> Client {
        Client {
            attempt: Attempt::new(self.quorum(), TTL, waits),
            owner: Owner::random().unwrap(),
            outbox: VecDeque::new(),
            outcome: None,
            pause: None,
            requests: 0,
        }
    }

    fn run(&self, node: Node, text: &str, keys: &[String], args: &[String]) -> Value {
        self.set_clock(node);
        self.nodes[usize::from(node)]
            .eval(text, keys, args)
            .unwrap()
    }

    pub(super) fn holder(&self, node: Node) -> Option<String> {
        self.set_clock(node);
        self.nodes[usize::from(node)].store().text("a")
    }

    pub(super) fn holds(&self, client: &Client) -> Nodes {
        let all = self.quorum().all();
        let hex = client.owner.to_hex();
        all.iter()
            .filter(|node| self.holder(*node).as_ref() == Some(&hex))
            .collect()
    }

    /// Another program's plain command.
    pub(super) fn command(&self, node: Node, words: &[&str]) {
        self.set_clock(node);
        self.nodes[usize::from(node)].store().command(words);
    }

    pub(super) fn forget(&self, node: Node) {
        self.nodes[usize::from(node)].store().forget_everything();
    }

    /// The node does what it is asked, and answers.
    pub(super) fn serve(&self, client: &Client, node: Node, request: Request) -> Event {
        let [lock, counter, .., record] = script::keys(&self.name, client.owner);
        let owner = client.owner.to_hex();
        if let Request::Write { number, token } = request {
            let args = [owner, token.to_string()];
            let answer = self.run(node, WRITE.text, &[lock, counter, record], &args);
            let answer = script::written(&answer).unwrap();
            return Event::Answered {
                node,
                number,
                answer,
            };
        }
        let (number, mode) = script::mode(request).unwrap();
        let channel = if client.waits() { "leasehold:c:x" } else { "-" };
        let listeners = [(channel.to_owned(), 1)].into();
        self.nodes[usize::from(node)].store().listeners = listeners;
        let args = [
            owner,
            number.to_string(),
            mode.to_owned(),
            TTL.as_millis().to_string(),
            client.attempt.alive().as_millis().to_string(),
            channel.to_owned(),
            "{}".to_owned(),
        ];
        let keys = script::keys(&self.name, client.owner);
        let (answer, _) = script::taken(self.run(node, TAKE.text, &keys, &args)).unwrap();
        Event::Answered {
            node,
            number,
            answer,
        }
    }

    /// The oldest request of a client to `node` arrives and is answered.
    pub(super) fn deliver(&self, client: &mut Client, node: Node) {
        let at = client.outbox.iter().position(|(to, _)| *to == node);
        let (_, request) = client
            .outbox
            .remove(at.expect("nothing is on its way"))
            .unwrap();
        let event = self.serve(client, node, request);
        client.handle(event, self.now());
    }

    /// Everything that is on its way to `nodes` arrives, and what comes of that.
    pub(super) fn settle_on(&self, client: &mut Client, nodes: Nodes) {
        while let Some((node, _)) = client.outbox.iter().find(|(to, _)| nodes.contains(*to)) {
            self.deliver(client, *node);
        }
    }

    pub(super) fn settle(&self, client: &mut Client) {
        self.settle_on(client, self.quorum().all());
    }

    /// A whole try.
    pub(super) fn try_once(&self, client: &mut Client) -> Outcome {
        self.begin(client);
        self.settle(client);
        client.outcome.expect("no decision")
    }

    pub(super) fn begin(&self, client: &mut Client) {
        self.begin_on(client, self.quorum().all());
    }

    pub(super) fn begin_on(&self, client: &mut Client, counted: Nodes) {
        let mut effects = Vec::new();
        client.outcome = None;
        client.attempt.begin(counted, self.now(), &mut effects);
        client.take_in(effects);
    }

    /// What the nodes have published since, given to its waiters.
    pub(super) fn tell(&self, clients: &mut [&mut Client]) -> Vec<(Node, Owner)> {
        let mut told = Vec::new();
        for node in self.quorum().all().iter() {
            let published = std::mem::take(&mut self.nodes[usize::from(node)].store().published);
            for (_, payload) in published {
                let Some(Notice::Free { owner, by }) = Notice::parse(&payload) else {
                    continue;
                };
                let owner: Owner = owner.parse().unwrap();
                told.push((node, owner));
                for client in clients.iter_mut().filter(|client| client.owner == owner) {
                    client.handle(Event::Told { node, by }, self.now());
                }
            }
        }
        told
    }

    /// A renewal that reaches these nodes.
    pub(super) fn renew_on(&self, client: &Client, reached: Nodes) -> Option<Renewal> {
        let all = self.quorum().all();
        let held = client.attempt.held();
        let mut extension = Extension::new(self.quorum(), held, TTL, self.now());
        let [lock, counter, ..] = script::keys(&self.name, client.owner);
        for node in all.iter() {
            let answer = if reached.contains(node) {
                let args = [client.owner.to_hex(), TTL.as_millis().to_string()];
                let keys = [lock.clone(), counter.clone()];
                let Value::Array(answers) = self.run(node, RENEW.text, &keys, &args) else {
                    panic!("no list");
                };
                renewal(&answers[0], self.now(), TTL).into()
            } else {
                super::super::hold::Extended::Unknown
            };
            if let Some(verdict) = extension.answered(node, answer) {
                return verdict;
            }
        }
        panic!("no verdict");
    }

    /// A release that reaches these nodes; what it found, the steps left to do, and the release itself.
    pub(super) fn leave_on(
        &self,
        client: &Client,
        reached: Nodes,
    ) -> (Option<Release>, Vec<Step>, Leaving) {
        let mut steps = Vec::new();
        let loose = client.attempt.loose();
        let mut leaving = Leaving::begin(self.quorum(), loose, TTL, self.now(), &mut steps);
        let mut found = None;
        let mut rest = Vec::new();
        // It takes two to leave it at that.
        let (mut refused, mut again) = (Nodes::NONE, Nodes::NONE);
        while !steps.is_empty() {
            match steps.remove(0) {
                Step::Leave {
                    node, tombstone, ..
                } if reached.contains(node) => {
                    let left = self.leave(client, node, tombstone);
                    leaving.answered(node, left, &mut steps);
                }
                Step::Leave { node, .. } if !again.contains(node) => {
                    if refused.contains(node) {
                        again.insert(node);
                    }
                    refused.insert(node);
                    leaving.failed(node, true, self.now(), &mut steps);
                }
                Step::Decide(release) => found = Some(release),
                step => rest.push(step),
            }
        }
        (found.expect("no decision"), rest, leaving)
    }

    pub(super) fn leave(
        &self,
        client: &Client,
        node: Node,
        tombstone: bool,
    ) -> super::super::hold::Left {
        let tombstone = if tombstone { TTL * 2 } else { Duration::ZERO };
        let args = [
            client.owner.to_hex(),
            "99".to_owned(),
            "0".to_owned(),
            tombstone.as_millis().to_string(),
        ];
        let channel = "leasehold:c:x".to_owned();
        self.nodes[usize::from(node)].store().listeners = [(channel, 1)].into();
        let keys = script::keys(&self.name, client.owner);
        script::left(self.run(node, LEAVE.text, &keys, &args)).unwrap()
    }

    /// A release that reaches every node.
    pub(super) fn release(&self, client: &Client) -> Option<Release> {
        self.leave_on(client, self.quorum().all()).0
    }
}

impl Client {
    fn waits(&self) -> bool {
        self.attempt.waits()
    }

    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    pub(super) fn handle(&mut self, event: Event, now: Moment) {
        let mut effects = Vec::new();
        self.attempt.handle(event, now, &mut effects);
        self.take_in(effects);
    }

    fn take_in(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(node, request) => {
                    self.requests += 1;
                    self.outbox.push_back((node, request));
                }
                Effect::Pause(pause) => self.pause = Some(pause),
                Effect::Decide(outcome) => {
                    assert_eq!(self.outcome, None, "decided twice");
                    self.outcome = Some(outcome);
                }
            }
        }
    }

    pub(super) fn resume(&mut self, now: Moment) {
        self.pause.take().expect("no pause");
        self.handle(Event::Paused, now);
    }

    /// The oldest request to `node` gets no answer, though it may still land: it is given back.
    pub(super) fn fail(&mut self, node: Node, now: Moment) -> Request {
        let at = self.outbox.iter().position(|(to, _)| *to == node);
        let (_, request) = self
            .outbox
            .remove(at.expect("nothing is on its way"))
            .unwrap();
        let number = match request {
            Request::Take { number, .. }
            | Request::Stay { number }
            | Request::Write { number, .. } => number,
        };
        let event = Event::Failed {
            node,
            number,
            may_land: true,
        };
        self.handle(event, now);
        request
    }

    pub(super) fn token(&self) -> u64 {
        match self.outcome {
            Some(Outcome::Granted { token, .. }) => token,
            other => panic!("not granted: {other:?}"),
        }
    }
}

/// What a renewal says that is lost for this reason.
pub(super) fn lost(reason: LossReason) -> Option<Renewal> {
    Some(Renewal::Lost(reason))
}

//! What a member does for its clients, and what the leader decides for it.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use leasehold_testkit::sim::MS;
use leasehold_testkit::sim::wire::Server;

use super::ensemble::{Ensemble, What};
use super::message::{self, Ask, NO_NODE, Reply, SESSION_EXPIRED, SESSION_MOVED};
use super::tree::{Change, Node};
use crate::wire;

/// A connection at a member.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) member: usize,
    received: Vec<u8>,
    session: Option<i64>,
    /// It has asked for a session.
    began: bool,
    waiting: VecDeque<Waiting>,
    watches: BTreeSet<String>,
}

/// A request that isn't answered yet. They are answered in their order.
#[derive(Debug)]
struct Waiting {
    number: i32,
    ask: Ask,
    outcome: Option<(usize, Reply)>,
}

impl Served {
    pub(super) fn new(member: usize) -> Self {
        Self {
            member,
            received: Vec::new(),
            session: None,
            began: false,
            waiting: VecDeque::new(),
            watches: BTreeSet::new(),
        }
    }

    pub(super) fn outcome(&mut self, known: usize, reply: Reply) {
        let mut waiting = self.waiting.iter_mut();
        let first = waiting.find(|one| !one.ask.is_local() && one.outcome.is_none());
        if let Some(first) = first {
            first.outcome = Some((known, reply));
        }
    }

    /// The next message that is here whole.
    fn next(&mut self) -> Option<Vec<u8>> {
        let length = wire::length(&self.received).flatten()?;
        if self.received.len() < 4 + length {
            return None;
        }
        let message = self.received[4..4 + length].to_vec();
        self.received.drain(..4 + length);
        Some(message)
    }
}

/// What the wires know as the server: it and the ensemble have each other.
pub(super) struct Front(pub(super) Rc<Ensemble>);

impl Server for Front {
    fn received(&self, wire: usize, bytes: Vec<u8>) {
        let known = {
            let state = &mut *self.0.state.borrow_mut();
            let served = state.wires.get_mut(&wire);
            served.map(|served| served.received.extend(bytes))
        };
        match known {
            Some(()) => self.0.pump(wire),
            None => self.0.wires.close(wire),
        }
    }

    fn ended(&self, wire: usize) {
        self.0.state.borrow_mut().wires.remove(&wire);
    }
}

impl Ensemble {
    /// A member takes in what a client has sent.
    fn pump(self: &Rc<Self>, wire: usize) {
        let now = self.world.now();
        loop {
            let (at, message, began) = {
                let state = &mut *self.state.borrow_mut();
                let Some(served) = state.wires.get_mut(&wire) else {
                    return;
                };
                let member = &mut state.members[served.member];
                if let Some(later) = member.stops.held_up(now) {
                    return self.at(later, move |this| this.pump(wire));
                }
                if member.down_until.max(member.looks_until) > now {
                    state.wires.remove(&wire);
                    return self.wires.close(wire);
                }
                let Some(message) = served.next() else {
                    return;
                };
                member.touched.extend(served.session);
                let began = std::mem::replace(&mut served.began, true);
                (served.member, message, began)
            };
            let (number, ask) = if began {
                Ask::decode(&message).unwrap_or_else(|| panic!("{message:?}"))
            } else {
                (0, Ask::connect(&message).unwrap())
            };
            self.takes(at, wire, number, ask);
        }
    }

    fn takes(self: &Rc<Self>, at: usize, wire: usize, number: i32, ask: Ask) {
        let is_local = ask.is_local();
        let (session, is_leader) = {
            let state = &mut *self.state.borrow_mut();
            if let Ask::Connect { session, .. } = ask {
                // A member ends the session's connection that it has.
                let old = |served: &Served| served.member == at && served.session == Some(session);
                state.wires.retain(|_, served| !old(served));
            }
            let is_leader = state.leader == at;
            let Some(served) = state.wires.get_mut(&wire) else {
                return;
            };
            served.waiting.push_back(Waiting {
                number,
                ask: ask.clone(),
                outcome: None,
            });
            (served.session, is_leader)
        };
        // The leader hears of its own clients at once.
        if let Some(session) = session.filter(|_| is_leader) {
            self.touch(session);
        }
        if is_local {
            self.answer(wire);
        } else {
            self.forward(at, What::Ask(wire, session.unwrap_or(0), ask));
        }
    }

    /// The leader decides about a request.
    pub(super) fn decide(self: &Rc<Self>, member: usize, wire: usize, session: i64, ask: &Ask) {
        if let Ask::Connect {
            timeout_ms,
            session,
        } = *ask
        {
            return self.session(member, wire, timeout_ms, session);
        }
        // What came by a connection that is no more is decided all the same.
        let (owner, here) = {
            let state = self.state.borrow();
            let owner = state.sessions.get(&session).map(|tracked| tracked.owner);
            (owner, (member, state.members[member].generation))
        };
        let (change, reply) = match owner {
            // A transaction looks at the session with each of its operations, and this one has none.
            _ if matches!(ask, Ask::Nothing) => (Change::Nothing, Reply::code(0)),
            None => (Change::Nothing, Reply::code(SESSION_EXPIRED)),
            Some(owner) if owner.is_some_and(|owner| owner != here) => {
                (Change::Nothing, Reply::code(SESSION_MOVED))
            }
            Some(_) => self.change(session, ask),
        };
        if let Change::End { session } = change {
            self.state.borrow_mut().sessions.remove(&session);
        }
        self.world
            .note(|| format!("session {session:x}: {ask:?} has code {}", reply.code));
        let known = self.agree(change);
        self.outcome(wire, known, reply);
    }

    /// What a request changes, and how it is answered.
    fn change(&self, session: i64, ask: &Ask) -> (Change, Reply) {
        let state = self.state.borrow();
        let fails = |code| (Change::Nothing, Reply::code(code));
        match ask {
            Ask::Make { path, data, kind } => {
                if !state.tree.has_parent_of(path) {
                    return fails(NO_NODE);
                }
                let made = state.next_change();
                let (path, node) = match kind {
                    3 => {
                        let path = format!("{path}{:010}", state.tree.number(path));
                        (path, Node::new(made, session, data.clone()))
                    }
                    _ => (path.clone(), Node::container(made, self.settings.first)),
                };
                if state.tree.has(&path) {
                    return fails(-110);
                }
                let reply = Reply::made(&path, &node);
                (Change::Make { path, node }, reply)
            }
            Ask::Delete { path } if state.tree.has(path) => {
                let path = path.clone();
                (Change::Delete { path }, Reply::code(0))
            }
            Ask::Delete { .. } => fails(NO_NODE),
            Ask::Close => (Change::End { session }, Reply::code(0)),
            _ => fails(0),
        }
    }

    /// The leader begins a session, or has one go on at this member.
    fn session(self: &Rc<Self>, member: usize, wire: usize, timeout_ms: i32, session: i64) {
        let generation = self.state.borrow().members[member].generation;
        let owner = (member, generation);
        let tick_ms = i32::try_from(self.settings.tick / MS).unwrap();
        let (session, timeout_ms) = if session == 0 {
            let timeout_ms = timeout_ms.clamp(2 * tick_ms, 20 * tick_ms);
            (self.track(timeout_ms, owner), timeout_ms)
        } else {
            self.touch(session);
            let state = &mut *self.state.borrow_mut();
            let tracked = state.sessions.get_mut(&session);
            let timeout_ms = tracked.map_or(0, |tracked| {
                tracked.owner = Some(owner);
                tracked.timeout_ms
            });
            (session, timeout_ms)
        };
        self.world
            .note(|| format!("member {member}: session {session:x} has {timeout_ms} ms"));
        let arrives = self.travels(member);
        self.at(arrives, move |this| {
            let is_there = {
                let state = &mut *this.state.borrow_mut();
                let served = state.wires.get_mut(&wire);
                served.map(|served| {
                    served.waiting.pop_front();
                    served.session = (timeout_ms > 0).then_some(session);
                })
            };
            if is_there.is_some() {
                this.wires
                    .send(wire, message::connected(timeout_ms, session));
                if timeout_ms == 0 {
                    this.wires.close(wire);
                }
            }
        });
    }

    /// Answers what can be answered by now.
    fn answer(self: &Rc<Self>, wire: usize) {
        loop {
            let (answer, closes) = {
                let state = &mut *self.state.borrow_mut();
                let Some(served) = state.wires.get_mut(&wire) else {
                    return;
                };
                let member = &state.members[served.member];
                let Some(first) = served.waiting.front() else {
                    return;
                };
                let reply = match &first.outcome {
                    Some((known, reply)) if *known <= member.applied => reply.clone(),
                    None if first.ask.is_local() => {
                        let session = served.session.unwrap_or(0);
                        member.read(session, &first.ask)
                    }
                    _ => return,
                };
                let closes = matches!(first.ask, Ask::Close);
                if reply.code == SESSION_MOVED {
                    // The connection ends instead.
                    state.wires.remove(&wire);
                    return self.wires.close(wire);
                }
                if let (0, Ask::Exists { path, watch: true } | Ask::Data { path, watch: true }) =
                    (reply.code, &first.ask)
                {
                    served.watches.insert(path.clone());
                }
                let answer = reply.encode(first.number);
                served.waiting.pop_front();
                (answer, closes)
            };
            self.wires.send(wire, answer);
            if closes {
                self.state.borrow_mut().wires.remove(&wire);
                return self.wires.close(wire);
            }
        }
    }

    pub(super) fn answer_all(self: &Rc<Self>, at: usize) {
        for wire in self.wires_of(at) {
            self.answer(wire);
        }
    }

    /// A session is over: its connection at this member ends, once its own goodbye is answered.
    pub(super) fn hangs_up(self: &Rc<Self>, at: usize, session: i64) {
        for wire in self.wires_of(at) {
            let is_of = |served: &Served| served.session == Some(session);
            if !self.state.borrow().wires.get(&wire).is_some_and(is_of) {
                continue;
            }
            self.answer(wire);
            if self.state.borrow_mut().wires.remove(&wire).is_some() {
                self.wires.close(wire);
            }
        }
    }

    pub(super) fn wires_of(&self, at: usize) -> Vec<usize> {
        let state = self.state.borrow();
        let wires = state.wires.iter();
        wires
            .filter(|(_, served)| served.member == at)
            .map(|(wire, _)| *wire)
            .collect()
    }

    /// A member tells who watches them that nodes have ended.
    pub(super) fn tell(&self, at: usize, paths: &[String]) {
        for wire in self.wires_of(at) {
            for path in paths {
                let told = {
                    let state = &mut *self.state.borrow_mut();
                    let served = state.wires.get_mut(&wire);
                    served.is_some_and(|served| served.watches.remove(path))
                };
                if told {
                    self.wires.send(wire, message::ended(path));
                }
            }
        }
    }
}

impl super::ensemble::Member {
    /// What it answers by itself.
    fn read(&self, session: i64, ask: &Ask) -> Reply {
        let node = |path: &String| self.tree.nodes.get(path);
        match ask {
            Ask::Exists { path, .. } if path == "/" => Reply::stat(&Node::new(0, 0, Vec::new())),
            Ask::Exists { path, .. } => {
                node(path).map_or_else(|| Reply::code(NO_NODE), Reply::stat)
            }
            Ask::Data { path, .. } => node(path).map_or_else(|| Reply::code(NO_NODE), Reply::data),
            Ask::Children { path } if self.tree.has(path) => {
                Reply::texts(&self.tree.children(path))
            }
            Ask::Children { .. } => Reply::code(NO_NODE),
            Ask::Own { prefix } => Reply::texts(&self.tree.of(session, prefix)),
            _ => Reply::code(0),
        }
    }
}

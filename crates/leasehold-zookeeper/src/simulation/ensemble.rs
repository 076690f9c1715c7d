//! The members: who leads, what each knows, and the sessions that the leader counts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use leasehold_testkit::sim::holders::Holders;
use leasehold_testkit::sim::wire::Wires;
use leasehold_testkit::sim::{Clock, MS, Rng, SECOND, Stops, World};

use super::message::{Ask, Reply};
use super::serving::Served;
use super::tree::{Change, Tree};

/// Three members. Requests go in at one; what changes anything, and what asks for the newest, goes to the leader.
pub(super) struct Ensemble {
    pub(super) world: World,
    pub(super) wires: Rc<Wires>,
    pub(super) holders: Rc<Holders>,
    pub(super) settings: Settings,
    pub(super) state: RefCell<State>,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) names: usize,
    /// Nanoseconds. Sessions last two to twenty.
    pub(super) tick: u64,
    /// The number of a lock's first place.
    pub(super) first: i32,
}

pub(super) struct State {
    pub(super) log: Vec<Change>,
    pub(super) members: Vec<Member>,
    pub(super) leader: usize,
    epoch: i64,
    changes: i64,
    /// The nodes with all that the leader has agreed to.
    pub(super) tree: Tree,
    pub(super) sessions: BTreeMap<i64, Tracked>,
    last_session: i64,
    /// Nobody leads until then.
    pub(super) leaderless_until: u64,
    /// What has reached the leader and waits.
    pub(super) inbox: VecDeque<Message>,
    pub(super) wires: BTreeMap<usize, Served>,
}

#[derive(Debug)]
pub(super) struct Member {
    clock: Clock,
    pub(super) stops: Stops,
    pub(super) down_until: u64,
    /// Rises whenever it parts from the leader, so that what was under way between them is lost.
    pub(super) generation: u64,
    /// Serves nobody until then, as it has no leader.
    pub(super) looks_until: u64,
    /// The others and it don't reach each other until then.
    pub(super) cut_until: u64,
    /// It takes in nothing until then.
    pub(super) behind_until: u64,
    pub(super) applied: usize,
    pub(super) tree: Tree,
    /// Sessions that were heard of since the leader was told.
    pub(super) touched: BTreeSet<i64>,
    /// When the newest message between it and the leader arrives.
    newest: u64,
}

/// A session as the leader counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracked {
    pub(super) timeout_ms: i32,
    /// By the leader's clock.
    expires: u64,
    /// The member it is connected to, by its generation.
    pub(super) owner: Option<(usize, u64)>,
}

/// What a member sends the leader.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) member: usize,
    pub(super) generation: u64,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// A request of a session's that came by a connection.
    Ask(usize, i64, Ask),
    /// These sessions are alive.
    Touch(BTreeSet<i64>),
}

/// A session of another client's, which somebody keeps alive.
pub(super) const FOREIGN: i64 = 7;

impl State {
    pub(super) fn new(rng: &mut Rng, ppm: &[i64]) -> Self {
        let member = |ppm: &i64| Member {
            clock: Clock::new(rng.within(SECOND..1_000_000 * SECOND), *ppm),
            stops: Stops::default(),
            down_until: 0,
            generation: 0,
            looks_until: 0,
            cut_until: 0,
            behind_until: 0,
            applied: 0,
            tree: Tree::default(),
            touched: BTreeSet::new(),
            newest: 0,
        };
        Self {
            log: Vec::new(),
            members: ppm.iter().map(member).collect(),
            leader: 0,
            epoch: 1,
            changes: 0,
            tree: Tree::default(),
            sessions: BTreeMap::new(),
            last_session: 0x0100_0000,
            leaderless_until: 0,
            inbox: VecDeque::new(),
            wires: BTreeMap::new(),
        }
    }

    /// The number of the next change.
    pub(super) fn next_change(&self) -> i64 {
        (self.epoch << 32) + self.changes + 1
    }

    /// Whether a member takes part.
    pub(super) fn is_able(&self, at: usize, now: u64) -> bool {
        let member = &self.members[at];
        let away = member
            .down_until
            .max(member.cut_until)
            .max(member.looks_until);
        away <= now && member.stops.held_up(now).is_none()
    }

    pub(super) fn able(&self, now: u64) -> Vec<usize> {
        (0..self.members.len())
            .filter(|at| self.is_able(*at, now))
            .collect()
    }

    /// Whether the leader can have anything agreed on.
    pub(super) fn agrees(&self, now: u64) -> bool {
        self.leaderless_until <= now
            && self.is_able(self.leader, now)
            && self.able(now).len() > self.members.len() / 2
    }

    fn boot(&self, now: u64) -> u64 {
        self.members[self.leader].clock.moment(now).boot
    }
}

impl Ensemble {
    pub(super) fn start(self: &Rc<Self>) {
        self.pings();
        self.expires();
        self.sweeps();
    }

    /// Something of the ensemble's that happens later.
    pub(super) fn at(self: &Rc<Self>, at: u64, happens: impl FnOnce(&Rc<Self>) + 'static) {
        let this = self.clone();
        self.world.at(at, move || happens(&this));
    }

    pub(super) fn chance<T>(&self, take: impl FnOnce(&mut Rng) -> T) -> T {
        self.world.chance(take)
    }

    /// When a message between a member and the leader arrives, in the order they are sent.
    pub(super) fn travels(&self, at: usize) -> u64 {
        let travel = self.chance(|rng| rng.within(MS / 10..2 * MS));
        let now = self.world.now();
        let state = &mut *self.state.borrow_mut();
        let leader_cut = state.members[state.leader].cut_until;
        let travel = if at == state.leader { 0 } else { travel };
        let member = &mut state.members[at];
        let cut = if at == state.leader {
            0
        } else {
            member.cut_until.max(leader_cut)
        };
        member.newest = member.newest.max((now + travel).max(cut));
        member.newest
    }

    /// A member sends the leader something.
    pub(super) fn forward(self: &Rc<Self>, member: usize, what: What) {
        let arrives = self.travels(member);
        let generation = self.state.borrow().members[member].generation;
        let message = Message {
            member,
            generation,
            what,
        };
        self.at(arrives, move |this| {
            this.state.borrow_mut().inbox.push_back(message);
            this.drain();
        });
    }

    /// The leader takes in what has reached it.
    pub(super) fn drain(self: &Rc<Self>) {
        let now = self.world.now();
        loop {
            let mut state = self.state.borrow_mut();
            if state.inbox.is_empty() {
                return;
            }
            if !state.agrees(now) {
                drop(state);
                return self.at(now + 50 * MS, Self::drain);
            }
            let Some(message) = state.inbox.pop_front() else {
                return;
            };
            if message.generation != state.members[message.member].generation {
                continue;
            }
            drop(state);
            match message.what {
                What::Touch(sessions) => sessions.iter().for_each(|session| self.touch(*session)),
                What::Ask(wire, session, ask) => {
                    self.decide(message.member, wire, session, &ask);
                }
            }
        }
    }

    /// The leader has heard of a session.
    pub(super) fn touch(&self, session: i64) {
        let now = self.world.now();
        let state = &mut *self.state.borrow_mut();
        let (boot, tick) = (state.boot(now), self.settings.tick);
        if let Some(tracked) = state.sessions.get_mut(&session) {
            // Sessions are ended by the tick.
            let lasts = u64::try_from(tracked.timeout_ms).unwrap() * MS;
            let expires = ((boot + lasts) / tick + 1) * tick;
            tracked.expires = tracked.expires.max(expires);
        }
    }

    /// A new session.
    pub(super) fn track(&self, timeout_ms: i32, owner: (usize, u64)) -> i64 {
        let session = {
            let state = &mut *self.state.borrow_mut();
            state.last_session += 1;
            let tracked = Tracked {
                timeout_ms,
                expires: 0,
                owner: Some(owner),
            };
            state.sessions.insert(state.last_session, tracked);
            state.last_session
        };
        self.touch(session);
        session
    }

    /// A change is agreed on: every member makes it when it learns of it. How many there are then.
    pub(super) fn agree(self: &Rc<Self>, change: Change) -> usize {
        self.check_believers(&change);
        let length = {
            let state = &mut *self.state.borrow_mut();
            state.changes += 1;
            state.tree.change(&change);
            state.log.push(change);
            state.log.len()
        };
        let members = self.state.borrow().members.len();
        for member in 0..members {
            let arrives = self.travels(member);
            self.at(arrives, move |this| this.learns(member, length));
        }
        length
    }

    /// A member has learnt of the changes up to this many.
    fn learns(self: &Rc<Self>, at: usize, length: usize) {
        let now = self.world.now();
        let (mut told, mut over) = (Vec::new(), Vec::new());
        {
            let state = &mut *self.state.borrow_mut();
            let member = &mut state.members[at];
            let later = member.stops.held_up(now).unwrap_or(0);
            let later = later.max(member.behind_until).max(member.cut_until);
            if later > now {
                return self.at(later, move |this| this.learns(at, length));
            }
            while member.applied < length {
                let change = &state.log[member.applied];
                if let Change::End { session } = change {
                    over.push(*session);
                }
                told.extend(member.tree.change(change));
                member.applied += 1;
            }
        }
        self.tell(at, &told);
        for session in over {
            self.hangs_up(at, session);
        }
        self.answer_all(at);
    }

    /// The leader asks its followers which sessions they have heard of.
    fn pings(self: &Rc<Self>) {
        let now = self.world.now();
        let next = now + self.settings.tick / 2;
        self.at(next, Self::pings);
        let (leader, members) = {
            let state = self.state.borrow();
            if !state.is_able(state.leader, now) {
                return;
            }
            (state.leader, state.members.len())
        };
        for member in (0..members).filter(|member| *member != leader) {
            let arrives = self.travels(member);
            let generation = self.state.borrow().members[member].generation;
            self.at(arrives, move |this| this.pinged(member, generation));
        }
    }

    fn pinged(self: &Rc<Self>, member: usize, generation: u64) {
        let now = self.world.now();
        let touched = {
            let state = &mut *self.state.borrow_mut();
            let member = &mut state.members[member];
            if member.generation != generation || member.down_until > now {
                return;
            }
            if member.stops.held_up(now).is_some() {
                return;
            }
            std::mem::take(&mut member.touched)
        };
        self.forward(member, What::Touch(touched));
    }

    /// The leader ends the sessions that it hasn't heard of for too long.
    fn expires(self: &Rc<Self>) {
        let now = self.world.now();
        let late = self.chance(|rng| rng.within(0..5 * MS));
        let (over, next) = {
            let state = self.state.borrow();
            let (boot, tick) = (state.boot(now), self.settings.tick);
            let leader = &state.members[state.leader];
            let next = leader.clock.after(now, (boot / tick + 1) * tick - boot);
            let over = state.sessions.iter();
            let over = over.filter(|(_, tracked)| tracked.expires <= boot);
            let over: Vec<i64> = over.map(|(session, _)| *session).collect();
            (if state.agrees(now) { over } else { Vec::new() }, next)
        };
        self.at(next + late, Self::expires);
        for session in over {
            self.world.note(|| format!("session {session:x} is over"));
            self.state.borrow_mut().sessions.remove(&session);
            self.agree(Change::End { session });
        }
    }

    /// The leader deletes containers that have become empty.
    fn sweeps(self: &Rc<Self>) {
        let now = self.world.now();
        let next = now + self.chance(|rng| rng.within(SECOND..20 * SECOND));
        self.at(next, Self::sweeps);
        let empty = {
            let state = self.state.borrow();
            if !state.agrees(now) {
                return;
            }
            state.tree.empty_containers()
        };
        for path in empty {
            self.agree(Change::Delete { path });
        }
    }

    /// Another leads, and counts every session anew. Who takes part lets go of all its clients.
    pub(super) fn elect(self: &Rc<Self>, elected: usize) {
        let now = self.world.now();
        let until = now + self.chance(|rng| rng.within(10 * MS..SECOND));
        let able = {
            let state = &mut *self.state.borrow_mut();
            state.epoch += 1;
            state.changes = 0;
            state.leader = elected;
            state.leaderless_until = until;
            state.inbox.clear();
            for member in &mut state.members {
                // They speak with another.
                member.newest = now;
            }
            let length = state.log.len();
            let member = &mut state.members[elected];
            while member.applied < length {
                member.tree.change(&state.log[member.applied]);
                member.applied += 1;
            }
            let (boot, tick) = (state.boot(now), self.settings.tick);
            for tracked in state.sessions.values_mut() {
                let lasts = u64::try_from(tracked.timeout_ms).unwrap() * MS;
                tracked.expires = ((boot + lasts) / tick + 1) * tick;
                tracked.owner = None;
            }
            state.able(now)
        };
        self.world.note(|| format!("member {elected} leads"));
        for member in able {
            self.parts(member, until);
        }
    }

    /// A member parts from the leader it had, and from its clients, until then at least.
    pub(super) fn parts(self: &Rc<Self>, at: usize, until: u64) {
        let wires = {
            let state = &mut *self.state.borrow_mut();
            let member = &mut state.members[at];
            member.generation += 1;
            member.touched.clear();
            member.looks_until = member.looks_until.max(until);
            let mut wires = Vec::new();
            state.wires.retain(|wire, served| {
                let leaves = served.member == at;
                wires.extend(leaves.then_some(*wire));
                !leaves
            });
            wires
        };
        self.world
            .note(|| format!("member {at} lets go of its clients"));
        for wire in wires {
            self.wires.close(wire);
        }
        let length = self.state.borrow().log.len();
        self.at(until, move |this| this.learns(at, length));
    }

    /// Whoever believes to hold must have the first place, made by the change that is its token: the holder knows first
    /// that it has it no longer.
    fn check_believers(&self, change: &Change) {
        if matches!(change, Change::Make { .. } | Change::Nothing) {
            return;
        }
        for believer in self.holders.believers() {
            let lock = format!("/{}", leasehold_testkit::sim::holders::name(believer.name));
            let state = self.state.borrow();
            let first = state.tree.first(&lock);
            let ends = first.as_ref().is_some_and(|(path, node)| match change {
                Change::End { session } => node.owner == *session,
                Change::Delete { path: deleted } => path == deleted,
                _ => false,
            });
            let is_first = first
                .as_ref()
                .is_some_and(|(_, node)| node.made.unsigned_abs() == believer.token);
            if !is_first || ends {
                let first = first.map(|(path, node)| format!("{path}, made by {:x}", node.made));
                self.world.violated(format!(
                    "{believer:x?} believes to hold, the ensemble has {first:?} and is about to do {change:?}"
                ));
            }
        }
    }

    /// At the end nothing is left.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let state = self.state.borrow();
        let names = 0..self.settings.names;
        let locks = names.map(|name| format!("/{}", leasehold_testkit::sim::holders::name(name)));
        locks.flat_map(|lock| state.tree.children(&lock)).collect()
    }

    /// A reply to a request, which its member may give once it knows of this many changes.
    pub(super) fn outcome(self: &Rc<Self>, wire: usize, known: usize, reply: Reply) {
        let state = &mut *self.state.borrow_mut();
        if let Some(served) = state.wires.get_mut(&wire) {
            served.outcome(known, reply);
        }
    }
}

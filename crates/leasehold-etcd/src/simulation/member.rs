//! The members of the cluster: who leads, who still believes to, and who counts the leases.

use std::collections::BTreeMap;

use leasehold_core::Name;
use leasehold_testkit::sim::{Clock, Connection, MS, Rng, SECOND, Stops};

use super::cluster::{Granted, Store};
use super::host::{Answer, Ask};
use super::world::{Arrival, Event, Request, World};
use crate::keys;
use crate::wire::{
    Header, KeyValue, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseTimeToLiveResponse,
    TxnResponse,
};

/// How long a member holds a request back that it can't have agreed on.
const HOLDS_BACK: u64 = 7 * SECOND;
/// How often the leader looks for leases that are over, at most.
const LESSOR: u64 = 500 * MS;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) clock: Clock,
    pub(super) stops: Stops,
    /// Restarting until then.
    pub(super) down_until: u64,
    pub(super) term: u64,
    /// The leader it knows of. An old leader that is behind knows of itself.
    pub(super) follows: usize,
    /// Until then it takes in nothing of what the others agree on, but answers what it can by itself.
    pub(super) behind_until: u64,
    /// And the others don't reach it.
    pub(super) cut: bool,
    /// The leases as it knew them when it was replaced.
    stale: BTreeMap<i64, Granted>,
    /// When each lease ends by its own count (boot time), where it leads.
    ends: BTreeMap<i64, u64>,
    /// How much of the history it has.
    applied: usize,
}

#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) store: Store,
    pub(super) members: Vec<Member>,
    pub(super) leader: usize,
    pub(super) term: u64,
    /// Nothing is agreed on until then.
    pub(super) leaderless_until: u64,
    pub(super) watchers: Vec<Watcher>,
}

/// A watch at a member.
#[derive(Debug)]
pub(super) struct Watcher {
    host: usize,
    pub(super) connection: Connection,
    pub(super) member: usize,
    id: i64,
    name: Name,
    next: usize,
}

impl Cluster {
    pub(super) fn new(rng: &mut Rng, members: usize, ppm: &[i64]) -> Self {
        let leader = rng.below(members);
        let member = |at: usize| Member {
            clock: Clock::new(rng.within(SECOND..1_000_000 * SECOND), ppm[at]),
            stops: Stops::default(),
            down_until: 0,
            term: 2,
            follows: leader,
            behind_until: 0,
            cut: false,
            stale: BTreeMap::new(),
            ends: BTreeMap::new(),
            applied: 0,
        };
        Self {
            store: Store::new(),
            members: (0..members).map(member).collect(),
            leader,
            term: 2,
            leaderless_until: 0,
            watchers: Vec::new(),
        }
    }

    /// When this member can have something agreed on, where that isn't now.
    fn waits(&self, at: usize, now: u64) -> Option<u64> {
        let leader = &self.members[self.leader];
        let until = self.leaderless_until.max(self.members[at].behind_until);
        let until = until.max(leader.stops.held_up(now).unwrap_or(0));
        (until > now).then_some(until)
    }

    /// Takes in what was agreed on.
    fn learn(&mut self, at: usize) {
        let applied = self.store.history.len();
        let (term, leader) = (self.term, self.leader);
        let member = &mut self.members[at];
        member.term = term;
        member.follows = leader;
        member.cut = false;
        member.applied = applied;
        member.stale.clear();
    }

    /// Begins a term. The leases' time begins anew, by the new leader's clock.
    pub(super) fn lead(&mut self, leader: usize, now: u64) {
        self.term += 1;
        self.leader = leader;
        let boot = self.members[leader].clock.moment(now).boot;
        let ends = |lease: &Granted| boot + lease.ttl.unsigned_abs() * SECOND;
        self.members[leader].ends = self
            .store
            .leases
            .iter()
            .map(|(id, lease)| (*id, ends(lease)))
            .collect();
        self.learn(leader);
    }

    /// This member doesn't hear of it until then.
    pub(super) fn leave_behind(&mut self, at: usize, until: u64, cut: bool) {
        let leases = self.store.leases.clone();
        let member = &mut self.members[at];
        if member.behind_until < until {
            member.behind_until = until;
        }
        member.cut = cut;
        if member.stale.is_empty() {
            member.stale = leases;
        }
    }

    /// What a member that takes itself for the leader says of a lease: the TTL it was granted and what hangs on it.
    fn lease(&self, at: usize, id: i64) -> Option<&Granted> {
        if at == self.leader {
            self.store.leases.get(&id)
        } else {
            self.members[at].stale.get(&id)
        }
    }
}

impl World {
    /// A member takes a request in.
    pub(super) fn serve(&mut self, request: Request) {
        let now = self.now();
        let at = request.member;
        let member = &self.cluster.members[at];
        if member.down_until > now {
            return;
        }
        if let Some(later) = member.stops.held_up(now) {
            return self.queue.push(later, Event::Serve(request));
        }
        match request.ask {
            Ask::KeepAlive { .. } | Ask::TimeToLive { .. } => {
                let to = member.follows;
                let travel = if to == at { 0 } else { self.travel() };
                self.queue
                    .push(now + travel, Event::Lessor { request, at: to });
            }
            Ask::Watch { id, ref name } => {
                let next = member.applied;
                self.cluster.watchers.push(Watcher {
                    host: request.host,
                    connection: request.connection,
                    member: at,
                    id,
                    name: name.clone(),
                    next,
                });
                let created = Arrival::Watched { id, events: None };
                self.send_back(request.connection, request.host, created);
            }
            Ask::Txn(_) | Ask::Range(_) | Ask::Grant { .. } => self.agree(request),
        }
    }

    /// Has the members agree on a request.
    fn agree(&mut self, request: Request) {
        let now = self.now();
        let at = request.member;
        if let Some(later) = self.cluster.waits(at, now) {
            // What was proposed without a leader may be lost, or come through in the end.
            if later < request.sent + HOLDS_BACK && self.rng.chance(0.7) {
                self.queue
                    .push(later + self.rng.within(0..MS), Event::Serve(request));
            }
            return;
        }
        let leader = self.cluster.leader;
        self.cluster.learn(at);
        let boot = self.cluster.members[leader].clock.moment(now).boot;
        let answer = match &request.ask {
            Ask::Txn(txn) => {
                self.check_believers();
                match self.cluster.store.txn(txn) {
                    Some(answer) => Answer::Txn(answer),
                    None => Answer::LeaseGone,
                }
            }
            Ask::Range(range) => Answer::Range(self.cluster.store.range(range)),
            Ask::Grant { ttl } => {
                let id = self.cluster.store.grant(*ttl);
                let ends = boot + ttl.unsigned_abs() * SECOND;
                self.cluster.members[leader].ends.insert(id, ends);
                Answer::Granted(LeaseGrantResponse {
                    id,
                    ttl: *ttl,
                    header: None,
                })
            }
            _ => return,
        };
        let is_write = !matches!(request.ask, Ask::Range(_));
        self.note(|| format!("member {at} for host {}: {answer}", request.host));
        let answered = Event::Answer { request, answer };
        self.queue.push(now + MS / 50, answered);
        if is_write {
            self.tell_watchers();
        }
    }

    /// A request about a lease reaches whom a member takes for the leader.
    pub(super) fn lessor(&mut self, request: Request, at: usize) {
        let now = self.now();
        let member = &self.cluster.members[at];
        let reached = at == request.member || !member.cut;
        if member.down_until > now || member.follows != at || !reached {
            return;
        }
        if let Some(later) = member.stops.held_up(now) {
            return self.queue.push(later, Event::Lessor { request, at });
        }
        let boot = member.clock.moment(now).boot;
        let answer = match request.ask {
            Ask::KeepAlive { id } => {
                let ttl = self.cluster.lease(at, id).map_or(0, |lease| lease.ttl);
                let ends = boot + ttl.unsigned_abs() * SECOND;
                if let Some(end) = self.cluster.members[at].ends.get_mut(&id) {
                    *end = ends;
                }
                Answer::KeptAlive(LeaseKeepAliveResponse { header: None, ttl })
            }
            Ask::TimeToLive { id } => {
                let lease = self.cluster.lease(at, id);
                let ends = member.ends.get(&id).copied().unwrap_or(0);
                let left = ends.saturating_sub(boot) / SECOND;
                Answer::Left(LeaseTimeToLiveResponse {
                    header: None,
                    ttl: lease.map_or(-1, |_| i64::try_from(left).unwrap()),
                    granted_ttl: lease.map_or(0, |lease| lease.ttl),
                    keys: lease.map_or_else(Vec::new, |lease| lease.keys.iter().cloned().collect()),
                })
            }
            _ => return,
        };
        self.note(|| format!("member {at} for {}: {answer}", request.member));
        let travel = if at == request.member {
            0
        } else {
            self.travel()
        };
        let answered = Event::Answer { request, answer };
        self.queue.push(now + travel, answered);
    }

    /// A member answers: with its own term, as it is then.
    pub(super) fn answer(&mut self, request: &Request, mut answer: Answer) {
        let now = self.now();
        let member = &self.cluster.members[request.member];
        if member.down_until > now {
            return;
        }
        let header = Header {
            cluster_id: 1,
            member_id: request.member as u64 + 1,
            revision: self.cluster.store.revision,
            raft_term: member.term,
        };
        answer.head(header);
        let arrival = Arrival::Answer {
            call: request.call,
            answer,
        };
        self.send_back(request.connection, request.host, arrival);
    }

    /// The leader ends the leases that are over.
    pub(super) fn expire(&mut self) {
        let now = self.now();
        let next = now + self.rng.within(MS..LESSOR);
        self.queue.push(next, Event::Expire);
        let leader = self.cluster.leader;
        let member = &self.cluster.members[leader];
        if self.cluster.leaderless_until > now || member.stops.held_up(now).is_some() {
            return;
        }
        let boot = member.clock.moment(now).boot;
        let over = member.ends.iter().filter(|(_, ends)| **ends <= boot);
        let over: Vec<i64> = over.map(|(id, _)| *id).collect();
        for id in over {
            self.note(|| format!("member {leader}: lease {id:x} is over"));
            self.check_believers_of(id);
            self.cluster.members[leader].ends.remove(&id);
            self.cluster.store.revoke(id);
        }
        self.tell_watchers();
    }

    /// A member has caught up.
    pub(super) fn caught_up(&mut self, at: usize) {
        let now = self.now();
        let member = &self.cluster.members[at];
        if member.behind_until <= now && member.down_until <= now {
            self.cluster.learn(at);
            self.tell_watchers();
        }
    }

    /// Members tell of what they have taken in.
    pub(super) fn tell_watchers(&mut self) {
        let now = self.now();
        let all = self.cluster.store.history.len();
        for member in &mut self.cluster.members {
            let away = member.down_until.max(member.behind_until) > now;
            if !away && member.stops.held_up(now).is_none() {
                member.applied = all;
            }
        }
        let mut tell = Vec::new();
        for watcher in &mut self.cluster.watchers {
            let applied = self.cluster.members[watcher.member].applied;
            let (from, to) = keys::under(&watcher.name);
            let new = self.cluster.store.history[watcher.next.min(applied)..applied].iter();
            let seen = |kv: &KeyValue| from <= kv.key && kv.key < to;
            let events: Vec<crate::wire::Event> = new
                .filter(|event| event.kv.as_ref().is_some_and(seen))
                .cloned()
                .collect();
            watcher.next = watcher.next.max(applied);
            if !events.is_empty() {
                let arrival = Arrival::Watched {
                    id: watcher.id,
                    events: Some(events),
                };
                tell.push((watcher.connection, watcher.host, arrival));
            }
        }
        for (connection, host, arrival) in tell {
            self.send_back(connection, host, arrival);
        }
    }

    /// Somebody else writes.
    pub(super) fn write(&mut self, txn: &crate::wire::TxnRequest) -> Option<TxnResponse> {
        let answer = self.cluster.store.txn(txn);
        self.tell_watchers();
        answer
    }

    fn travel(&mut self) -> u64 {
        self.rng.within(MS / 10..2 * MS)
    }
}

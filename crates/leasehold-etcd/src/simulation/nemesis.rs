//! What strikes hosts, members and keys.

use leasehold_testkit::sim::{MS, SECOND, Trouble};

use super::scenario::Nemesis;
use super::world::{Event, World};
use crate::keys;
use crate::note::Note;
use crate::wire::{KeyValue, Op, TxnRequest};

impl World {
    pub(super) fn strike(&mut self, nemesis: Nemesis) {
        let now = self.now();
        self.note(|| format!("{nemesis:?}"));
        match nemesis {
            Nemesis::Host(host, trouble) => self.trouble(host, trouble),
            Nemesis::Cut { host } => self.cut_all(host),
            Nemesis::FreezeMember { member, nanos } => {
                self.cluster.members[member].stops.freeze(now + nanos);
                self.queue.push(now + nanos, Event::CaughtUp(member));
                let missed = self.rng.within(SECOND..2 * SECOND);
                if member == self.cluster.leader && nanos > missed {
                    let elect = Nemesis::Elect { instead_of: member };
                    self.queue.push(now + missed, Event::Nemesis(elect));
                }
            }
            Nemesis::Elect { instead_of } => {
                if let Some(thaws) = self.cluster.members[instead_of].stops.held_up(now) {
                    let learns = thaws + self.rng.within(MS..SECOND);
                    self.replace(learns, false);
                }
            }
            Nemesis::RestartMember { member, nanos } => self.restart(member, nanos),
            Nemesis::RestartAll { nanos } => {
                for member in 0..self.cluster.members.len() {
                    self.cluster.members[member].behind_until = 0;
                    self.goes_down(member, now + nanos);
                }
                self.cluster.leaderless_until = now + nanos;
                // Whoever leads then counts from then on.
                let elect = self.rng.below(self.cluster.members.len());
                self.cluster.lead(elect, now + nanos);
            }
            Nemesis::Replace { nanos, cut } => self.replace(now + nanos, cut),
            Nemesis::Lag { nanos, cut } => {
                let member = (self.cluster.leader + 1) % self.cluster.members.len();
                if self.able(now) == self.cluster.members.len() {
                    self.leave_behind(member, now + nanos, cut);
                }
            }
            Nemesis::Break { name } => {
                let first = self.first(name).cloned();
                self.delete(name, first.into_iter().collect());
            }
            Nemesis::Clear { name } => {
                let places = self.cluster.store.keys();
                let places = places.filter(|kv| keys::is_place(&self.names[name], kv));
                let places = places.cloned().collect();
                self.delete(name, places);
            }
        }
    }

    /// How many members take part.
    fn able(&self, now: u64) -> usize {
        let takes_part = |member: &&super::member::Member| {
            member.behind_until.max(member.down_until) <= now && member.stops.held_up(now).is_none()
        };
        self.cluster.members.iter().filter(takes_part).count()
    }

    /// Another leads; the old leader learns of it at `until`.
    fn replace(&mut self, until: u64, cut: bool) {
        let now = self.now();
        let old = self.cluster.leader;
        let members = self.cluster.members.len();
        let able: Vec<usize> = (0..members)
            .filter(|at| {
                let member = &self.cluster.members[*at];
                let away = member.behind_until.max(member.down_until) > now;
                *at != old && !away && member.stops.held_up(now).is_none()
            })
            .collect();
        // Without a majority besides the old leader nobody is elected.
        if able.len() < members / 2 + 1 {
            return;
        }
        self.leave_behind(old, until, cut);
        let elected = able[self.rng.below(able.len())];
        self.elect(elected);
    }

    fn elect(&mut self, elected: usize) {
        let now = self.now();
        self.cluster.leaderless_until = now + self.rng.within(0..SECOND / 2);
        self.cluster.lead(elected, now);
        for at in 0..self.cluster.members.len() {
            self.caught_up(at);
        }
        self.note(|| format!("member {elected} leads"));
    }

    fn leave_behind(&mut self, member: usize, until: u64, cut: bool) {
        self.cluster.leave_behind(member, until, cut);
        self.queue.push(until, Event::CaughtUp(member));
    }

    fn restart(&mut self, member: usize, nanos: u64) {
        let now = self.now();
        if self.able(now) < self.cluster.members.len() {
            return;
        }
        self.goes_down(member, now + nanos);
        if member == self.cluster.leader {
            let members = self.cluster.members.len();
            let elected = (member + 1 + self.rng.below(members - 1)) % members;
            self.elect(elected);
        }
    }

    fn goes_down(&mut self, member: usize, until: u64) {
        self.cluster.members[member].down_until = until;
        let host_connections: Vec<_> = (0..self.hosts.len())
            .flat_map(|host| {
                let all = self.hosts[host].connections_to(member);
                all.into_iter().map(move |connection| (host, connection))
            })
            .collect();
        for (host, connection) in host_connections {
            self.breaks(host, connection);
        }
        self.queue.push(until, Event::CaughtUp(member));
    }

    fn trouble(&mut self, host: usize, trouble: Trouble) {
        let now = self.now();
        let tells = self.scenario.tells;
        self.observe_host(host);
        let resumes = self.hosts[host].machine.strike(trouble, now, tells);
        self.observe_host(host);
        if let Some(at) = resumes {
            let resume = Nemesis::Host(host, Trouble::Resume);
            self.queue.push(at, Event::Nemesis(resume));
        }
        if let Trouble::Kill = trouble {
            self.cut_all(host);
        }
    }

    fn cut_all(&mut self, host: usize) {
        for connection in self.hosts[host].connections() {
            self.breaks(host, connection);
        }
    }

    /// An operator deletes places, all in one revision.
    fn delete(&mut self, name: usize, places: Vec<KeyValue>) {
        let now = self.now();
        if self.cluster.leaderless_until > now {
            return;
        }
        for client in 0..self.clients.len() {
            if let Some(attempt) = &self.clients[client].attempt
                && self.clients[client].habits.name == name
            {
                let owner = attempt.owner;
                let is_of = |kv: &KeyValue| Note::of(kv).is_some_and(|note| note.is_of(owner));
                if places.iter().any(is_of) {
                    self.records.broken(owner, now);
                }
            }
        }
        let success = places.iter().map(|kv| Op::delete(&kv.key)).collect();
        self.write(&TxnRequest {
            success,
            ..TxnRequest::default()
        });
    }
}

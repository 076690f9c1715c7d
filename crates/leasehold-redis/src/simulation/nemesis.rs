//! What strikes hosts and server.

use super::lua::Script;
use super::scenario::Nemesis;
use super::world::{Event, World, name_of};
use crate::keys::Keys;
use leasehold_testkit::sim::Trouble;

impl World<'_> {
    pub(super) fn strike(&mut self, nemesis: Nemesis) {
        let now = self.now();
        self.note(|| format!("{nemesis:?}"));
        match nemesis {
            Nemesis::Host(host, trouble) => self.trouble(host, trouble),
            Nemesis::Cut { host } => self.cut_all(host),
            Nemesis::FreezeServer { nanos } => self.server.stops.freeze(now + nanos),
            Nemesis::RestartServer { nanos } => self.restart(nanos),
            Nemesis::StepServerClock { by_nanos } => self.server.clock.step(now, by_nanos),
            Nemesis::Break { name } => self.break_hold(name),
        }
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

    fn restart(&mut self, nanos: u64) {
        let now = self.now();
        for host in 0..self.hosts.len() {
            self.cut_all(host);
        }
        self.server.listeners.clear();
        if self.scenario.forgets {
            self.redis.store().forget_everything();
        }
        self.server.down_until = self.server.down_until.max(now + nanos);
    }

    fn break_hold(&mut self, name: usize) {
        let now = self.now();
        if self.server.down_until > now || self.server.stops.held_up(now).is_some() {
            return;
        }
        let keys = self.keys[name].clone();
        self.set_server();
        if let Some(owner) = self.redis.store().text(&keys.lock) {
            self.records.broken(owner, now);
        }
        let broken = Keys::broken(&name_of(name));
        let keys = [keys.lock, keys.counter, keys.queue, keys.waiters, broken];
        match self.redis.run(Script::Break, &keys, &[String::new()]) {
            Ok(_) => self.publish(),
            Err(error) => self.violated(error),
        }
    }
}

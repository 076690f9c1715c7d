//! What strikes hosts and server.

use super::lua::Script;
use super::scenario::Nemesis;
use super::world::{Event, World, name_of};
use crate::keys::Keys;

impl World<'_> {
    pub(super) fn strike(&mut self, nemesis: Nemesis) {
        let now = self.now();
        self.note(|| format!("{nemesis:?}"));
        match nemesis {
            Nemesis::Freeze { host, nanos } => self.hosts[host].stops.freeze(now + nanos),
            Nemesis::Suspend { host, nanos } | Nemesis::Pause { host, nanos } => {
                if self.hosts[host].stops.dead() || self.hosts[host].stops.held_up(now).is_some() {
                    return;
                }
                self.observe_host(host);
                let pauses = matches!(nemesis, Nemesis::Pause { .. });
                let host_state = &mut self.hosts[host];
                if pauses {
                    host_state.clock.pause(now);
                } else {
                    host_state.clock.suspend(now);
                }
                host_state.stops.freeze(now + nanos);
                self.queue
                    .push(now + nanos, Event::Nemesis(Nemesis::Resume { host }));
                self.observe_host(host);
            }
            Nemesis::Resume { host } => {
                self.observe_host(host);
                let tells = self.scenario.tells;
                self.hosts[host].clock.resume(now, tells);
                self.observe_host(host);
            }
            Nemesis::StepClock { host, by_nanos } => {
                self.observe_host(host);
                self.hosts[host].clock.step(now, by_nanos);
                self.observe_host(host);
            }
            Nemesis::Kill { host } => {
                self.observe_host(host);
                self.hosts[host].stops.kill();
                self.observe_host(host);
                self.cut_all(host);
            }
            Nemesis::Cut { host } => self.cut_all(host),
            Nemesis::FreezeServer { nanos } => self.server.stops.freeze(now + nanos),
            Nemesis::RestartServer { nanos } => self.restart(nanos),
            Nemesis::StepServerClock { by_nanos } => self.server.clock.step(now, by_nanos),
            Nemesis::Break { name } => self.break_hold(name),
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

//! What must be true, with each request and at the end.

use std::time::Duration;

use super::world::World;
use crate::keys::Family;

impl World<'_> {
    /// Whoever believes to hold must be the one the server has: the holder knows first.
    pub(super) fn check_before(&mut self) {
        let now = self.now();
        for client in 0..self.clients.len() {
            let Some((name, owner)) = self.believer(client) else {
                continue;
            };
            let current = self.redis.store().text(&self.keys[name].lock);
            if current.as_deref() != Some(&owner) && !self.records.is_broken(&owner) {
                self.violated(format!(
                    "client {client} believes at {now} to hold lock {name} as {owner}, the server has {current:?}"
                ));
            }
        }
    }

    pub(super) fn check_after(&mut self) {
        for name in 0..self.scenario.names {
            let keys = &self.keys[name];
            let mut store = self.redis.store();
            let current = store.text(&keys.lock);
            let noted = store.text(&keys.counter);
            drop(store);
            if let Some(owner) = current
                && self.released.contains(&owner)
            {
                self.violated(format!(
                    "lock {name} is held for {owner}, which was released"
                ));
            }
            if let Some(noted) = noted {
                let token = noted.split(' ').next().and_then(|token| token.parse().ok());
                let token: u64 = token.unwrap_or(0);
                if token < self.tokens[name] {
                    self.violated(format!("the counter of lock {name} fell to {token}"));
                }
                self.tokens[name] = token;
            }
        }
    }

    /// At the end: everybody was served, nothing is left, and no two held at a time.
    pub(super) fn finish(&mut self) {
        let now = self.now();
        if self.violation.is_none()
            && let Some(client) = (0..self.clients.len()).find(|client| !self.is_done(*client))
        {
            let state = format!("{:?}", self.clients[client]);
            self.violated(format!("client {client} was never served: {state}"));
        }
        let longest = Duration::from_nanos(4 * self.scenario.base) + Duration::from_secs(12);
        let later = now + longest.as_nanos() as u64;
        let left: Vec<String> = {
            let mut store = self.redis.store();
            store.micros = self.server.clock.real(later) / 1000;
            let names = store.names();
            names
                .into_iter()
                .filter(|key| Family::Single.lock_of(key).is_none())
                .collect()
        };
        if !left.is_empty() {
            self.violated(format!("left behind: {left:?}"));
        }
        if let Err(violation) = self.records.check(self.scenario.names, now) {
            self.violated(violation);
        }
    }
}

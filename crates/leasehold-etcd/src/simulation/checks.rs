//! What must be true, before each write and at the end.

use super::world::World;
use crate::keys;
use crate::wire::KeyValue;

impl World {
    /// Whoever believes to hold must have the first place, made at the revision that is its token: the holder knows
    /// first that it has it no longer.
    pub(super) fn check_believers(&mut self) {
        for client in 0..self.clients.len() {
            let (Some(_), Some(hold), Some(attempt)) = (
                self.believes(client),
                &self.clients[client].hold,
                &self.clients[client].attempt,
            ) else {
                continue;
            };
            let name = self.clients[client].habits.name;
            let (token, owner) = (hold.token, attempt.owner);
            let first = self.first(name).map(|kv| kv.create_revision);
            if first != Some(token) && !self.records.is_broken(&owner) {
                self.violated(format!(
                    "client {client} believes to hold lock {name} with token {token}, the cluster has {first:?}"
                ));
            }
        }
    }

    /// The same before a lease ends: nobody may believe to hold by it.
    pub(super) fn check_believers_of(&mut self, lease: i64) {
        self.check_believers();
        for client in 0..self.clients.len() {
            if let (Some(_), Some(hold)) = (self.believes(client), &self.clients[client].hold) {
                let (name, token) = (self.clients[client].habits.name, hold.token);
                if self
                    .first(name)
                    .is_some_and(|kv| kv.lease == lease && kv.create_revision == token)
                {
                    self.violated(format!(
                        "client {client} believes to hold lock {name} by lease {lease:x}, which is over"
                    ));
                }
            }
        }
    }

    /// The first place of a lock.
    pub(super) fn first(&self, name: usize) -> Option<&KeyValue> {
        let name = &self.names[name];
        let places = self.cluster.store.keys();
        places
            .filter(|kv| keys::is_place(name, kv))
            .min_by_key(|kv| kv.create_revision)
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
        let left = self.cluster.store.keys().filter(|kv| !self.is_canary(kv));
        let left: Vec<String> = left
            .map(|kv| String::from_utf8_lossy(&kv.key).into_owned())
            .collect();
        if !left.is_empty() {
            self.violated(format!("left behind: {left:?}"));
        }
        if let Err(violation) = self.records.check(self.names.len(), now) {
            self.violated(violation);
        }
    }

    /// Whether this is the canary of a session that lives.
    fn is_canary(&self, kv: &KeyValue) -> bool {
        let alive = self.hosts.iter();
        let mut sessions = alive
            .filter(|host| !host.machine.stops.dead())
            .flat_map(|host| &host.sessions);
        sessions.any(|session| session.lease().is_some_and(|lease| lease.canary == kv.key))
    }
}

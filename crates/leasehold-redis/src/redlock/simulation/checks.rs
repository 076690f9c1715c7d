//! What must be true, with each request and at the end.

use std::time::Duration;

use leasehold_testkit::sim::MS;

use super::super::nodes::Node;
use super::super::script;
use super::world::World;
use crate::keys::Family;

impl World<'_> {
    /// A released owner never holds, and what was let go in good weather is soon gone.
    pub(super) fn check_after(&mut self, node: Node) {
        let now = self.now();
        let base = self.scenario.base;
        let settled = self.scenario.calm_at + base * 6 / 5;
        // A release that isn't answered is sent once more.
        let grace = 2 * self.scenario.patience + 100 * MS;
        for name in 0..self.names.len() {
            let key = self.names[name].as_str();
            let Some(owner) = self.nodes[usize::from(node)].store.text(key) else {
                continue;
            };
            if self.ended.contains(&(node, owner.clone())) {
                self.violated(format!(
                    "node {node} holds lock {name} for {owner}, which was released there"
                ));
            }
            let let_go = self.let_go.get(&owner);
            if let_go.is_some_and(|at| *at > settled && now > at + grace) {
                self.violated(format!(
                    "node {node} holds lock {name} for {owner}, which let go of it long ago"
                ));
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
        for node in 0..self.nodes.len() {
            let server = &mut self.nodes[node];
            server.store.micros = server.clock.real(later) / 1000;
            let left: Vec<String> = server
                .store
                .names()
                .into_iter()
                .filter(|key| *key != script::record_key())
                .filter(|key| Family::Redlock.lock_of(key).is_none())
                .collect();
            if !left.is_empty() {
                self.violated(format!("left behind on node {node}: {left:?}"));
            }
        }
        // Those of each era are another lock's, as it were.
        let locks = self.names.len() * (self.eras + 1);
        if let Err(violation) = self.records.check(locks, now) {
            self.violated(violation);
        }
    }
}

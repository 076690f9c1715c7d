//! What strikes hosts and nodes.

use super::super::nodes::Node;
use super::super::script;
use super::scenario::{Memory, Nemesis};
use super::world::{Event, World, nanos};
use crate::simulation::lua::Script;
use leasehold_testkit::sim::Trouble;

impl World<'_> {
    pub(super) fn strike(&mut self, nemesis: Nemesis) {
        let now = self.now();
        self.note(|| format!("{nemesis:?}"));
        match nemesis {
            Nemesis::Host(host, trouble) => self.trouble(host, trouble),
            Nemesis::Cut { host } => self.cut_all(host),
            Nemesis::FreezeNode { node, nanos } => {
                self.nodes[usize::from(node)].stops.freeze(now + nanos);
            }
            Nemesis::Save { node } => self.nodes[usize::from(node)].save(),
            Nemesis::Crash { node, nanos, left } => self.crash(node, nanos, left),
            Nemesis::Flush { node } => {
                self.nodes[usize::from(node)].store.forget_everything();
                self.ended.retain(|(of, _)| *of != node);
                self.lost_at = now;
            }
            Nemesis::StepNodeClock { node, by_nanos } => {
                self.nodes[usize::from(node)].clock.step(now, by_nanos);
                if by_nanos > 0 {
                    // Its tombstones are over too soon.
                    self.ended.retain(|(of, _)| *of != node);
                }
            }
            Nemesis::Break { name } => self.break_hold(name),
            Nemesis::Operator => self.operator(),
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
        for line in self.hosts[host].all_lines() {
            self.breaks(host, line);
        }
    }

    fn crash(&mut self, node: Node, nanos: u64, left: Memory) {
        let now = self.now();
        for host in 0..self.hosts.len() {
            for line in self.hosts[host].all_lines() {
                if line.node == node {
                    self.breaks(host, line);
                }
            }
        }
        self.nodes[usize::from(node)].crash(now, nanos, left);
        self.lost_at = now + nanos;
        if left != Memory::Kept {
            // It has forgotten whom it refuses.
            self.ended.retain(|(of, _)| *of != node);
        }
    }

    /// An operator takes the lock from whoever has it, on all nodes.
    fn break_hold(&mut self, name: usize) {
        let now = self.now();
        for node in self.all().iter() {
            let server = &self.nodes[usize::from(node)];
            if !server.is_up(now) || server.busy_until(now).is_some() {
                continue;
            }
            let key = self.names[name].as_str().to_owned();
            let owner = self.on_node(node, |world| world.redis.store().text(&key));
            let Some(owner) = owner else { continue };
            self.records.broken(owner.clone(), now);
            let keys = script::break_keys(&self.names[name]);
            let done = self.on_node(node, |world| {
                world
                    .redis
                    .run(Script::BreakNode, &keys, &[owner, "0".into()])
            });
            if let Err(error) = done {
                self.violated(error);
            }
            self.publish(node);
        }
    }

    /// Where too many nodes have lost their memory, he waits until all that was held is over, and says so.
    fn operator(&mut self) {
        let longest = self.scenario.clients.iter().map(|client| client.ttl * 2);
        let longest = longest.max().unwrap_or_default();
        let over = self.lost_at + nanos(longest) * 21 / 20;
        if self.now() > over {
            self.rejoin();
        }
    }
}

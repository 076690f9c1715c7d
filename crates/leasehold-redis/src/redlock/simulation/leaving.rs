//! Releases: on every node until each has answered, in the background.

use std::time::Duration;

use leasehold_core::Owner;

use super::super::hold::{Leaving, Step};
use super::super::nodes::{Node, Nodes};
use super::super::script::{self, Notice};
use super::host::{Call, Pipe, Wake};
use super::world::{Ask, Line, World, nanos};
use crate::simulation::lua::Script;

#[derive(Debug)]
pub(super) struct Releasing {
    name: usize,
    owner: Owner,
    ttl: Duration,
    leaving: Option<Leaving>,
    decided: bool,
}

impl Releasing {
    pub(super) fn new(name: usize, owner: Owner, ttl: Duration) -> Self {
        Self {
            name,
            owner,
            ttl,
            leaving: None,
            decided: false,
        }
    }
}

impl World<'_> {
    /// Releases what this owner has, or may yet get on the nodes that are `loose`.
    pub(super) fn release(&mut self, host: usize, mut release: Releasing, loose: Nodes) {
        let mut steps = Vec::new();
        let (now, ttl) = (self.moment(host), release.ttl);
        release.leaving = Some(Leaving::begin(self.quorum, loose, ttl, now, &mut steps));
        self.hosts[host].releases.push(release);
        let at = self.hosts[host].releases.len() - 1;
        self.leaving_steps(host, at, steps);
    }

    fn leaving_steps(&mut self, host: usize, release: usize, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Leave {
                    node,
                    tombstone,
                    after,
                } if after.is_zero() => self.leave(host, release, node, tombstone),
                Step::Leave {
                    node,
                    tombstone,
                    after,
                } => {
                    let wake = Wake::Leave {
                        release,
                        node,
                        tombstone,
                    };
                    self.after(host, nanos(after), wake);
                }
                Step::Call { node, waiter } => {
                    if let Some(line) = self.line(host, Pipe::Grants, node) {
                        let ask = Ask::Publish {
                            channel: waiter.channel,
                            payload: Notice::next(&waiter.owner),
                        };
                        self.call(host, line, ask, Call::Tell);
                    }
                }
                Step::Decide(found) => {
                    let owner = self.hosts[host].releases[release].owner.to_hex();
                    self.note(|| format!("host {host}: release of {owner}: {found:?}"));
                    if std::mem::replace(&mut self.hosts[host].releases[release].decided, true) {
                        self.violated(format!("the release of {owner} was decided twice"));
                    }
                }
            }
        }
    }

    pub(super) fn leave(&mut self, host: usize, release: usize, node: Node, tombstone: bool) {
        let Some(line) = self.line(host, Pipe::Grants, node) else {
            return self.leave_failed(host, release, node, false);
        };
        let state = &self.hosts[host].releases[release];
        let keep = Duration::ZERO;
        let tombstone = if tombstone && !self.faults.no_tombstone {
            state.ttl * 2
        } else {
            Duration::ZERO
        };
        let ask = Ask::Script {
            script: Script::Leave,
            keys: script::keys(&self.names[state.name], state.owner).to_vec(),
            args: vec![
                state.owner.to_hex(),
                release.to_string(),
                keep.as_millis().to_string(),
                tombstone.as_millis().to_string(),
            ],
        };
        let call = self.call(host, line, ask, Call::Leave { release });
        self.after(host, self.scenario.patience, Wake::Over { call });
    }

    pub(super) fn leave_answered(
        &mut self,
        host: usize,
        release: usize,
        line: Line,
        value: redis::Value,
    ) {
        let left = match script::left(value) {
            Ok(left) => left,
            Err(error) => return self.violated(format!("a release failed: {error}")),
        };
        let owner = self.hosts[host].releases[release].owner.to_hex();
        // One that has crashed since may not remember.
        if self.nodes[usize::from(line.node)].run == line.run {
            self.ended.insert((line.node, owner));
        }
        let mut steps = Vec::new();
        if let Some(leaving) = &mut self.hosts[host].releases[release].leaving {
            leaving.answered(line.node, left, &mut steps);
        }
        self.leaving_steps(host, release, steps);
    }

    pub(super) fn leave_failed(&mut self, host: usize, release: usize, node: Node, may_land: bool) {
        let now = self.moment(host);
        let mut steps = Vec::new();
        if let Some(leaving) = &mut self.hosts[host].releases[release].leaving {
            leaving.failed(node, may_land, now, &mut steps);
        }
        self.leaving_steps(host, release, steps);
    }
}

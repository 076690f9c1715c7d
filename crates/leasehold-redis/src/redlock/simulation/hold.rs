//! A client's hold: what the core's keeper does around its plan, and the renewals on several nodes.

use std::time::Duration;

use leasehold_core::backend::Renewal;
use leasehold_core::clock::Moment;
use leasehold_core::plan::{HoldState, Plan, Step};
use leasehold_testkit::sim::{Due, MS, SECOND};
use redis::Value;

use super::super::hold::{Extended, Extension};
use super::super::nodes::{Node, Nodes};
use super::super::script;
use super::host::{Call, Pipe, Wake};
use super::world::{Ask, World, nanos};
use crate::renewer;
use crate::simulation::lua::Script;

#[derive(Debug)]
pub(super) struct Holding {
    plan: Plan,
    record: usize,
    renewing: Option<Renewing>,
    /// The number of the newest renewal.
    renewal: u64,
    /// It is going to be longer than it thought.
    extends: bool,
}

#[derive(Debug)]
struct Renewing {
    extension: Extension,
    /// Nodes without an answer.
    open: Nodes,
    since: Moment,
    ttl: Duration,
}

impl Holding {
    pub(super) fn new(plan: Plan, record: usize, extends: bool) -> Self {
        Self {
            plan,
            record,
            renewing: None,
            renewal: 0,
            extends,
        }
    }
}

impl World<'_> {
    /// The store told of trouble.
    pub(super) fn poked(&mut self, client: usize) {
        if let Some(hold) = &mut self.clients[client].hold {
            hold.plan.poke();
        }
        self.keep(client, self.clients[client].number);
    }

    /// Does what the hold's plan says.
    pub(super) fn keep(&mut self, client: usize, attempt: u64) {
        if self.clients[client].number != attempt {
            return;
        }
        let host = self.clients[client].habits.machine;
        let now = self.moment(host);
        self.observe(client);
        let Some(hold) = &mut self.clients[client].hold else {
            return;
        };
        match hold.plan.step(now) {
            Step::Sleep(at) => {
                // The clocks are compared every second.
                let at = at.min(now.boot + SECOND);
                self.timer(host, Due::Boot(at), Wake::Keep { client, attempt });
            }
            Step::Renew { ttl, timeout } => {
                if hold.renewing.is_none() {
                    hold.plan.sent(now);
                    self.renew(client, ttl, timeout);
                }
                let soon = now.boot + 10 * MS;
                self.timer(host, Due::Boot(soon), Wake::Keep { client, attempt });
            }
            Step::Lost | Step::Over => {
                let state = hold.plan.state();
                self.note(|| format!("client {client}: {state:?}"));
                self.end_hold(client);
            }
        }
        self.observe(client);
    }

    fn renew(&mut self, client: usize, ttl: Duration, timeout: Duration) {
        let habits = &self.clients[client].habits;
        let (host, name) = (habits.machine, habits.name);
        let (now, all, quorum) = (self.moment(host), self.all(), self.quorum);
        let state = &mut self.clients[client];
        let (Some(trying), Some(hold)) = (&state.trying, &mut state.hold) else {
            return;
        };
        hold.renewal += 1;
        let renewal = hold.renewal;
        hold.renewing = Some(Renewing {
            extension: Extension::new(quorum, trying.attempt.held(), ttl, now),
            open: all,
            since: now,
            ttl,
        });
        let [lock, counter, ..] = script::keys(&self.names[name], trying.owner);
        let args = vec![trying.owner.to_hex(), ttl.as_millis().to_string()];
        for node in all.iter() {
            let line = self.line(host, Pipe::Renewals, node);
            let lines = &self.hosts[host].lines[usize::from(node)];
            // One that doesn't count may say that it renewed what it never had.
            let Some(line) = line.filter(|line| lines.counts(Some(*line))) else {
                self.extended(client, renewal, node, Extended::Unknown);
                continue;
            };
            let ask = Ask::Script {
                script: Script::Renew,
                keys: vec![lock.clone(), counter.clone()],
                args: args.clone(),
            };
            self.call(host, line, ask, Call::Renew { client, renewal });
        }
        self.after(host, nanos(timeout), Wake::RenewalOver { client, renewal });
    }

    pub(super) fn renewal_answered(
        &mut self,
        client: usize,
        renewal: u64,
        node: Node,
        value: &Value,
    ) {
        let Value::Array(answers) = value else {
            return self.violated(format!("a renewal was answered {value:?}"));
        };
        let now = self.moment(self.clients[client].habits.machine);
        // A node's vote is the same whenever it was sent and for how long.
        let vote = |answer| renewer::renewal(answer, now, Duration::ZERO).into();
        let said = answers.first().map_or(Extended::Unknown, vote);
        self.extended(client, renewal, node, said);
    }

    pub(super) fn renewal_failed(&mut self, client: usize, renewal: u64, node: Node) {
        self.extended(client, renewal, node, Extended::Unknown);
    }

    /// A node has said what it says to a renewal.
    fn extended(&mut self, client: usize, renewal: u64, node: Node, said: Extended) {
        let Some(hold) = &mut self.clients[client].hold else {
            return;
        };
        if hold.renewal != renewal {
            return;
        }
        let Some(renewing) = &mut hold.renewing else {
            return;
        };
        renewing.open.remove(node);
        let Some(verdict) = renewing.extension.answered(node, said) else {
            return;
        };
        let (since, ttl) = (renewing.since, renewing.ttl);
        hold.renewing = None;
        let host = self.clients[client].habits.machine;
        let verdict = match verdict {
            None if self.faults.unanswered_extends => Some(Renewal::Renewed { since, ttl }),
            Some(Renewal::Renewed { ttl, .. }) if self.faults.from_the_answer => {
                let since = self.moment(host);
                Some(Renewal::Renewed { since, ttl })
            }
            verdict => verdict,
        };
        self.note(|| format!("client {client}: renewal {verdict:?}"));
        self.observe(client);
        let (now, jitter) = (self.moment(host), self.rng.unit());
        if let Some(hold) = &mut self.clients[client].hold {
            match verdict {
                Some(renewal) => hold.plan.answered(renewal, jitter),
                None => hold.plan.unanswered(now, jitter),
            }
        }
        self.keep(client, self.clients[client].number);
    }

    pub(super) fn renewal_over(&mut self, client: usize, renewal: u64) {
        let host = self.clients[client].habits.machine;
        let over: Vec<u64> = self.hosts[host]
            .calls
            .iter()
            .filter(|(_, (_, call))| {
                matches!(call, Call::Renew { client: of, renewal: number } if (*of, *number) == (client, renewal))
            })
            .map(|(call, _)| *call)
            .collect();
        for call in over {
            if let Some((line, _)) = self.hosts[host].calls.remove(&call) {
                self.hosts[host].give_up_line(line);
                self.renewal_failed(client, renewal, line.node);
            }
        }
    }

    pub(super) fn work_done(&mut self, client: usize, attempt: u64) {
        if self.clients[client].number != attempt {
            return;
        }
        let host = self.clients[client].habits.machine;
        let base = self.scenario.base;
        let longer = self.clients[client].habits.ttl * 2;
        let Some(hold) = &mut self.clients[client].hold else {
            return;
        };
        if std::mem::take(&mut hold.extends) && hold.renewing.is_none() {
            // It takes longer than it thought.
            self.renew(client, longer, longer / 6);
            return self.after(host, base / 10, Wake::Done { client, attempt });
        }
        self.observe(client);
        if let Some(hold) = &mut self.clients[client].hold {
            hold.plan.release();
        }
        self.end_hold(client);
    }

    /// The hold is over; what the nodes still have of it is given back.
    fn end_hold(&mut self, client: usize) {
        self.observe(client);
        self.clients[client].hold = None;
        self.let_go(client);
    }

    /// Puts down until when the client believes to hold.
    pub(super) fn observe(&mut self, client: usize) {
        let now = self.now();
        let host = self.clients[client].habits.machine;
        let Some(hold) = &self.clients[client].hold else {
            return;
        };
        let is_held = matches!(hold.plan.state(), HoldState::Held | HoldState::Uncertain);
        let rest = if self.faults.held_by_flag && is_held {
            3_600 * SECOND
        } else {
            nanos(hold.plan.remaining(self.moment(host)))
        };
        let believes = self.hosts[host].machine.believes(rest, now);
        self.records.believes(hold.record, now, believes);
    }

    pub(super) fn observe_host(&mut self, host: usize) {
        for client in 0..self.clients.len() {
            if self.clients[client].habits.machine == host {
                self.observe(client);
            }
        }
    }
}

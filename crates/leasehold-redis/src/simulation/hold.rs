//! A client's hold: what the core's keeper does around its plan.

use std::time::Duration;

use leasehold_core::plan::Step;
use leasehold_testkit::sim::{Due, MS, SECOND};
use redis::Value;

use super::host::{Call, Pipe, Wake};
use super::lua::Script;
use super::world::{Ask, World, nanos};
use crate::renewer::{millis, renewal};

impl World<'_> {
    /// The keeper looks at the hold because something happened.
    pub(super) fn touched(&mut self, client: usize) {
        if self.is_told(client)
            && let Some(hold) = &mut self.clients[client].hold
        {
            hold.plan.poke();
        }
        let attempt = self.clients[client].number;
        self.keep(client, attempt);
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
        let host = self.clients[client].habits.machine;
        let now = self.moment(host);
        let keys = self.keys[self.clients[client].habits.name].clone();
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        attempt.mailbox.clear();
        attempt.told = false;
        let ask = Ask::Script {
            script: Script::Renew,
            keys: vec![keys.lock, keys.counter],
            args: vec![attempt.owner.clone(), millis(ttl).to_string()],
        };
        if let Some(hold) = &mut self.clients[client].hold {
            hold.renewing = Some((now, ttl));
        }
        match self.call(host, Pipe::Renewals, ask, Call::Renew { client }) {
            Some(call) => {
                let wake = Wake::RenewalOver { client, call };
                self.after(host, nanos(timeout), wake);
            }
            None => self.renewal_failed(client),
        }
    }

    pub(super) fn renewal_answered(&mut self, client: usize, value: &Value) {
        let Value::Array(answers) = value else {
            return self.violated(format!("a renewal was answered {value:?}"));
        };
        let answer = answers[0].clone();
        let answered_at = self.moment(self.clients[client].habits.machine);
        let from_the_answer = self.faults.from_the_answer;
        let jitter = self.rng.unit();
        self.observe(client);
        if let Some(hold) = &mut self.clients[client].hold
            && let Some((since, ttl)) = hold.renewing.take()
        {
            let since = if from_the_answer { answered_at } else { since };
            hold.plan.answered(renewal(&answer, since, ttl), jitter);
            self.observe(client);
            let told = self.clients[client]
                .attempt
                .as_ref()
                .is_some_and(|a| a.told);
            if !told && self.is_told(client) {
                self.violated(format!("client {client} is told again what it knows"));
            }
            self.touched(client);
        }
    }

    pub(super) fn renewal_failed(&mut self, client: usize) {
        let now = self.moment(self.clients[client].habits.machine);
        let extends = self.faults.unanswered_extends;
        let jitter = self.rng.unit();
        self.observe(client);
        if let Some(hold) = &mut self.clients[client].hold
            && let Some((since, ttl)) = hold.renewing.take()
        {
            if extends {
                let answer = Value::Int(1);
                hold.plan.answered(renewal(&answer, since, ttl), jitter);
            } else {
                hold.plan.unanswered(now, jitter);
            }
            self.observe(client);
            self.touched(client);
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

    /// The hold is over; what the store still has of it is given back.
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
        let rest = nanos(hold.plan.remaining(self.moment(host)));
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

    /// The lock and the owner that this client believes to hold now.
    pub(super) fn believer(&self, client: usize) -> Option<(usize, String)> {
        let state = &self.clients[client];
        let host = state.habits.machine;
        let hold = state.hold.as_ref()?;
        let attempt = state.attempt.as_ref()?;
        let rest = nanos(hold.plan.remaining(self.moment(host)));
        let believes = self.hosts[host].machine.believes(rest, self.now());
        believes.map(|_| (state.habits.name, attempt.owner.clone()))
    }
}

//! A client's hold: what the core's keeper and [`crate::renewal`] do around its plan.

use std::time::Duration;

use leasehold_core::backend::{LossReason, Renewal};
use leasehold_core::clock::Moment;
use leasehold_core::plan::{Plan, Step};
use leasehold_testkit::sim::{Due, MS, SECOND};

use super::host::{Ask, Call, GRANTS, PATIENCE, Wake};
use super::session::nanos;
use super::world::World;
use crate::wire::{RangeRequest, RangeResponse};
use leasehold_core::session::Pulse;
use leasehold_core::session::end;

#[derive(Debug)]
pub(super) struct Holding {
    plan: Plan,
    record: usize,
    /// When its key was made, and what its holder takes for the token.
    pub(super) made: i64,
    pub(super) token: i64,
    key: Vec<u8>,
    /// The beat that it was renewed by last.
    since: Moment,
    renewing: Option<Renewing>,
    renewals: u64,
}

/// A renewal under way.
#[derive(Debug)]
struct Renewing {
    asked: Moment,
    ttl: Duration,
    shared: bool,
    failures: u64,
    /// The beat that counts, once there is one and the key was not among those it found.
    reading: Option<Pulse>,
}

impl Holding {
    pub(super) fn new(
        plan: Plan,
        record: usize,
        made: i64,
        token: i64,
        key: Vec<u8>,
        since: Moment,
    ) -> Self {
        Self {
            plan,
            record,
            made,
            token,
            key,
            since,
            renewing: None,
            renewals: 0,
        }
    }
}

impl World {
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
        let asked = self.moment(host);
        let told = self.with_place(client, |place| place.mailbox.clear());
        let shared = told == Some(false) && ttl == self.clients[client].habits.ttl;
        let seat = self.clients[client].attempt.as_ref().and_then(|a| a.seat);
        let failures = seat.map_or(0, |seat| self.hosts[host].sessions[seat].failures);
        let Some(hold) = &mut self.clients[client].hold else {
            return;
        };
        hold.renewals += 1;
        let renewal = hold.renewals;
        hold.renewing = Some(Renewing {
            asked,
            ttl,
            shared,
            failures,
            reading: None,
        });
        let wake = Wake::RenewalOver { client, renewal };
        self.after(host, nanos(timeout), wake);
        self.renewal_heard(client);
    }

    /// The session has changed: is there the beat that answers the renewal?
    pub(super) fn renewal_heard(&mut self, client: usize) {
        let host = self.clients[client].habits.machine;
        let state = &mut self.clients[client];
        let seat = state.attempt.as_ref().and_then(|attempt| attempt.seat);
        let (Some(seat), Some(hold)) = (seat, &mut state.hold) else {
            return;
        };
        let Some(renewing) = &mut hold.renewing else {
            return;
        };
        let session = &mut self.hosts[host].sessions[seat];
        if session.is_over() {
            return self.renewed(client, Renewal::Lost(LossReason::SessionLost));
        }
        if renewing.reading.is_some() {
            return;
        }
        let Renewing {
            asked, ttl, shared, ..
        } = *renewing;
        let since = hold.since;
        let fresh = |pulse: &Pulse| pulse.renews(asked, since, ttl, shared);
        if let Some(pulse) = session.pulse.clone().filter(fresh) {
            if pulse.keys.contains(&hold.key) {
                return self.confirmed(client, &pulse);
            }
            // A key that was made after the list is in no list.
            renewing.reading = Some(pulse);
            let what = Ask::Range(RangeRequest::one(&hold.key));
            return self.call(host, GRANTS, (what, 0, PATIENCE), Call::IsThere { client });
        }
        if session.has_failed_since(renewing.failures) {
            return self.renewal_failed(client);
        }
        if !std::mem::replace(&mut session.wanted, true) {
            self.heart(host, seat);
        }
    }

    pub(super) fn is_there(&mut self, client: usize, found: &RangeResponse) {
        let Some(hold) = &mut self.clients[client].hold else {
            return;
        };
        let renewing = hold.renewing.as_mut();
        let Some(pulse) = renewing.and_then(|renewing| renewing.reading.take()) else {
            return;
        };
        let is_there = found.kvs.first().map(|kv| kv.create_revision) == Some(hold.made);
        if is_there {
            self.confirmed(client, &pulse);
        } else {
            self.renewed(client, Renewal::Lost(LossReason::Broken));
        }
    }

    /// A beat counts, and the key was there.
    fn confirmed(&mut self, client: usize, pulse: &Pulse) {
        let now = self.moment(self.clients[client].habits.machine);
        let Some(hold) = &mut self.clients[client].hold else {
            return;
        };
        let ttl = hold.renewing.as_ref().map(|renewing| renewing.ttl);
        let ttl = ttl.unwrap_or_default().min(pulse.ttl);
        let since = pulse.since;
        hold.since = since;
        let lasts = self.with_place(client, |place| place.last(now.boot, end(since, ttl)));
        self.renewed(
            client,
            if lasts == Some(true) {
                Renewal::Renewed { since, ttl }
            } else {
                Renewal::Lost(LossReason::Expired)
            },
        );
    }

    fn renewed(&mut self, client: usize, renewal: Renewal) {
        let jitter = self.rng.unit();
        self.observe(client);
        if let Some(hold) = &mut self.clients[client].hold {
            hold.renewing = None;
            hold.plan.answered(renewal, jitter);
            self.observe(client);
            self.touched(client);
        }
    }

    pub(super) fn renewal_over(&mut self, client: usize, renewal: u64) {
        let hold = self.clients[client].hold.as_ref();
        if hold.is_some_and(|hold| hold.renewals == renewal) {
            self.renewal_failed(client);
        }
    }

    pub(super) fn renewal_failed(&mut self, client: usize) {
        let now = self.moment(self.clients[client].habits.machine);
        let jitter = self.rng.unit();
        self.observe(client);
        if let Some(hold) = &mut self.clients[client].hold
            && hold.renewing.take().is_some()
        {
            hold.plan.unanswered(now, jitter);
            self.observe(client);
            self.touched(client);
        }
    }

    pub(super) fn work_done(&mut self, client: usize, attempt: u64) {
        if self.clients[client].number != attempt || self.clients[client].hold.is_none() {
            return;
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
        self.think(client);
    }

    /// Puts down until when the client believes to hold.
    pub(super) fn observe(&mut self, client: usize) {
        let now = self.now();
        if let Some(hold) = &self.clients[client].hold {
            let (record, until) = (hold.record, self.believes(client));
            self.records.believes(record, now, until);
        }
    }

    pub(super) fn observe_host(&mut self, host: usize) {
        for client in 0..self.clients.len() {
            if self.clients[client].habits.machine == host {
                self.observe(client);
            }
        }
    }

    /// Until when in true time this client believes to hold.
    pub(super) fn believes(&self, client: usize) -> Option<u64> {
        let state = &self.clients[client];
        let host = state.habits.machine;
        let hold = state.hold.as_ref()?;
        let rest = nanos(hold.plan.remaining(self.moment(host)));
        self.hosts[host].machine.believes(rest, self.now())
    }
}

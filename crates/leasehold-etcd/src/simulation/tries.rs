//! The rounds of an attempt: what [`crate::contender`] does around its tries.

use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::backend::Grant;
use leasehold_core::clock::Moment;
use leasehold_core::plan::Plan;
use leasehold_core::{Drift, Token};
use leasehold_testkit::sim::SECOND;

use super::client::Phase;
use super::hold::Holding;
use super::host::{Answer, Ask, Call, GRANTS, PATIENCE, Wake};
use super::session::{Phase as Session, nanos};
use super::world::World;
use crate::attempt::{self, Outcome, Try};
use crate::keys::{self, FIRST};
use crate::note::Note;
use crate::session::{Lease, Made};
use crate::wire::TxnResponse;
use leasehold_core::session::Pulse;
use leasehold_core::session::end;

/// How long a waiter goes at most without asking.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// How long the wait loop waits for a try's end.
const TRY_MAX: u64 = 5 * SECOND;

impl World {
    /// A round of a try.
    pub(super) fn round(&mut self, client: usize) {
        let habits = &self.clients[client].habits;
        let (host, name, ttl) = (habits.machine, habits.name, habits.ttl);
        let Some(attempt) = &self.clients[client].attempt else {
            return;
        };
        let seat = attempt
            .seat
            .filter(|seat| !self.hosts[host].sessions[*seat].is_over());
        let seat = match seat {
            Some(seat) => seat,
            None => {
                self.unseat(client);
                let seat = self.seat(host, name, ttl);
                if let Some(attempt) = &mut self.clients[client].attempt {
                    attempt.seat = Some(seat);
                }
                seat
            }
        };
        let Session::Live(lease) = self.hosts[host].sessions[seat].phase.clone() else {
            return self.phase_for(client, Phase::Starting, TRY_MAX);
        };
        let place = &self.hosts[host].sessions[seat].places[&name];
        let (told, made) = (
            place.mailbox.clear(),
            place.made.as_ref().map(|made| made.at),
        );
        if let Some(attempt) = &mut self.clients[client].attempt {
            attempt.lease = Some(lease.clone());
        }
        match made {
            Some(made) if told && self.faults.no_reading => {
                self.take(client, Outcome::First(made));
            }
            Some(_) => self.look(client, &lease),
            None => self.send_try(client),
        }
    }

    /// A try goes out from the place; false where that was given up.
    pub(super) fn place_sends(&mut self, client: usize) -> bool {
        let ttl = self.clients[client].habits.ttl;
        let now = self.moment(self.clients[client].habits.machine);
        let sends = self.with_place(client, |place| place.send(end(now, ttl)));
        sends == Some(true)
    }

    pub(super) fn with_place<T>(
        &mut self,
        client: usize,
        change: impl FnOnce(&mut crate::session::Place) -> T,
    ) -> Option<T> {
        let client = &self.clients[client];
        let seat = client.attempt.as_ref()?.seat?;
        let session = &mut self.hosts[client.habits.machine].sessions[seat];
        Some(change(session.places.get_mut(&client.habits.name)?))
    }

    fn send_try(&mut self, client: usize) {
        if !self.place_sends(client) {
            self.unseat(client);
            return self.round(client);
        }
        let wall = Duration::from_nanos(self.moment(self.clients[client].habits.machine).real);
        let Some(request) = self.with_try(client, |attempt| attempt.request(), Some(wall)) else {
            return;
        };
        self.phase(client, Phase::Asking);
        let host = self.clients[client].habits.machine;
        let what = (Ask::Txn(request), 2, PATIENCE);
        self.call(host, GRANTS, what, Call::Try { client });
        self.place_changed(client);
    }

    /// The try of this client, as it went out.
    fn with_try<T>(
        &self,
        client: usize,
        of: impl FnOnce(&Try<'_>) -> T,
        wall: Option<Duration>,
    ) -> Option<T> {
        let name = &self.names[self.clients[client].habits.name];
        let attempt = self.clients[client].attempt.as_ref()?;
        let note = |since| Note::text(attempt.owner, &self.identity, since);
        Some(of(&Try {
            name,
            owner: attempt.owner,
            lease: attempt.lease.as_ref()?,
            notes: [note(wall.map(|wall| UNIX_EPOCH + wall)), note(None)],
            joins: attempt.joins,
        }))
    }

    fn look(&mut self, client: usize, lease: &Lease) {
        let habits = &self.clients[client].habits;
        let (host, ttl, name) = (habits.machine, habits.ttl, habits.name);
        let now = self.moment(host);
        if self.with_place(client, |place| place.last(now.boot, end(now, ttl))) != Some(true) {
            self.unseat(client);
            return self.round(client);
        }
        let name = &self.names[name];
        let look = attempt::look(name, &keys::place(name, lease.id), FIRST);
        self.phase(client, Phase::Asking);
        let what = (Ask::Txn(look), 2, PATIENCE);
        self.call(host, GRANTS, what, Call::Look { client });
    }

    pub(super) fn try_answered(&mut self, client: usize, answer: &Answer) {
        let outcome = match answer {
            Answer::Txn(answer) => {
                self.header(client, answer);
                self.with_try(client, |attempt| attempt.outcome(answer), None)
            }
            _ => Some(Some(Outcome::SessionOver)),
        };
        let Some(Some(outcome)) = outcome else {
            return self.violated(format!("client {client}: a try was answered {answer}"));
        };
        self.with_place(client, |place| {
            place.answered();
            if let Outcome::First(made) | Outcome::Behind(made, _) = &outcome {
                place.made = Some(Made::from(*made));
            }
        });
        self.take(client, outcome);
    }

    pub(super) fn looked(&mut self, client: usize, answer: &TxnResponse) {
        self.header(client, answer);
        let name = &self.names[self.clients[client].habits.name];
        let made = self.with_made(client);
        let outcome = made.and_then(|made| attempt::looked(name, made, answer));
        match outcome {
            Some(Outcome::Gone) => {
                self.with_place(client, |place| place.made = None);
                self.take(client, Outcome::Gone);
            }
            Some(outcome) => self.take(client, outcome),
            // The place was given up, or the session ended.
            None => self.take(client, Outcome::Gone),
        }
    }

    fn with_made(&self, client: usize) -> Option<i64> {
        let client = &self.clients[client];
        let seat = client.attempt.as_ref()?.seat?;
        let session = &self.hosts[client.habits.machine].sessions[seat];
        session
            .places
            .get(&client.habits.name)?
            .made
            .as_ref()
            .map(|made| made.at)
    }

    fn header(&mut self, client: usize, answer: &TxnResponse) {
        if let Some(attempt) = &mut self.clients[client].attempt {
            attempt.header = answer.header.unwrap_or_default().revision;
        }
    }

    /// Acts on what came of a try.
    fn take(&mut self, client: usize, outcome: Outcome) {
        self.note(|| format!("client {client}: {}", told(&outcome)));
        let host = self.clients[client].habits.machine;
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        attempt.answered = true;
        attempt.failures = 0;
        let (waits, seat) = (attempt.waits, attempt.seat);
        match (outcome, seat) {
            (Outcome::First(made), Some(seat)) => {
                let asked = self.moment(host);
                let failures = self.hosts[host].sessions[seat].failures;
                let phase = Phase::Beginning {
                    made,
                    asked,
                    failures,
                };
                self.phase_for(client, phase, TRY_MAX);
                self.beat_heard(client);
            }
            (Outcome::Behind(made, _), _) if waits => self.wait(client, made),
            (Outcome::Busy(_), _) if waits && !attempt.joins => {
                attempt.joins = true;
                self.round(client);
            }
            (Outcome::Behind(..) | Outcome::Busy(_), _) => {
                self.let_go(client);
                self.think(client);
            }
            (Outcome::Voided(written), Some(seat)) => {
                self.hosts[host].sessions[seat].written_at(written);
                self.round(client);
            }
            (Outcome::SessionOver, Some(seat)) => {
                self.phase(client, Phase::Pausing);
                self.end_session(host, seat);
                self.round(client);
            }
            (Outcome::Gone, _) => {
                self.leave_feed(client);
                self.round(client);
            }
            (Outcome::Taken, _) => {
                let until = end(self.moment(host), self.clients[client].habits.ttl);
                self.with_place(client, |place| place.block(until));
                self.unseat(client);
                self.round(client);
            }
            (outcome, _) => self.violated(format!("client {client}: {}", told(&outcome))),
        }
    }

    fn wait(&mut self, client: usize, made: i64) {
        let (name, ttl) = (
            self.clients[client].habits.name,
            self.clients[client].habits.ttl,
        );
        let look_in = (ttl / 3).min(LOOK_MAX).mul_f64(1.0 + 0.1 * self.rng.unit());
        self.phase_for(client, Phase::Waiting, nanos(look_in));
        let mailbox = self.with_place(client, |place| place.mailbox.clone());
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        if let (None, Some(mailbox)) = (attempt.told_of, mailbox) {
            attempt.told_of = Some(made);
            self.join_feed(client, name, made, mailbox);
        }
        if self.is_told(client) {
            self.round(client);
        }
    }

    /// The session of somebody who may wait for it has changed.
    pub(super) fn beat_heard(&mut self, client: usize) {
        match self.clients[client].phase {
            Phase::Starting => self.round(client),
            Phase::Beginning {
                made,
                asked,
                failures,
            } => self.begins(client, made, asked, failures),
            Phase::Holding => self.renewal_heard(client),
            _ => {}
        }
    }

    fn begins(&mut self, client: usize, made: i64, asked: Moment, failures: u64) {
        let host = self.clients[client].habits.machine;
        let Some(seat) = self.clients[client].attempt.as_ref().and_then(|a| a.seat) else {
            return;
        };
        let session = &mut self.hosts[host].sessions[seat];
        if session.is_over() {
            return self.round(client);
        }
        let pulse = session.pulse.clone().filter(|pulse| pulse.is_young(asked));
        if let Some(pulse) = pulse {
            return self.granted(client, made, &pulse);
        }
        if session.has_failed_since(failures) {
            return self.outage(client);
        }
        if !std::mem::replace(&mut session.wanted, true) {
            self.heart(host, seat);
        }
    }

    fn granted(&mut self, client: usize, made: i64, pulse: &Pulse) {
        let habits = self.clients[client].habits.clone();
        let ttl = habits.ttl.min(pulse.ttl);
        let now = self.moment(habits.machine);
        let lasts = self.with_place(client, |place| place.last(now.boot, end(pulse.since, ttl)));
        if lasts != Some(true) {
            self.unseat(client);
            return self.round(client);
        }
        self.place_changed(client);
        let Some(attempt) = &self.clients[client].attempt else {
            return;
        };
        let (owner, waits) = (attempt.owner, attempt.waits);
        let token = if self.faults.header_token {
            attempt.header
        } else {
            made
        };
        let grant = Grant {
            token: Token::new(token.unsigned_abs()).unwrap(),
            since: pulse.since,
            ttl,
        };
        let jitter = self.rng.unit();
        let plan = Plan::new(
            &grant,
            habits.ttl,
            habits.renews,
            None,
            Drift::default(),
            jitter,
        );
        let late = plan.remaining(now).is_zero();
        self.note(|| format!("client {client}: granted {token}, late: {late}"));
        let (called, at) = (self.clients[client].called, self.now());
        let record = self
            .records
            .granted(habits.name, owner, token.unsigned_abs(), called, at);
        if late {
            self.let_go(client);
            if waits {
                return self.begin(client, waits);
            }
            return self.think(client);
        }
        let key = self.clients[client].attempt.as_ref().and_then(|attempt| {
            let lease = attempt.lease.as_ref()?;
            Some(keys::place(&self.names[habits.name], lease.id))
        });
        let key = key.unwrap_or_default();
        self.clients[client].hold = Some(Holding::new(plan, record, made, token, key, pulse.since));
        self.phase(client, Phase::Holding);
        self.observe(client);
        let works = self.rng.within(0..habits.works);
        let attempt = self.clients[client].number;
        self.after(habits.machine, works, Wake::Done { client, attempt });
        self.touched(client);
    }
}

/// An outcome in a few words.
fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Behind(made, first) => format!("has {made}, behind {}", first.create_revision),
        Outcome::Busy(first) => format!("busy with {}", first.create_revision),
        outcome => format!("{outcome:?}"),
    }
}

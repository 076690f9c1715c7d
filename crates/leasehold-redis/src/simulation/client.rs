//! One client: it wants the lock, gets it, works, lets go, and begins anew. What decides is the shipped code:
//! [`Tries`] for the attempt, [`Mailbox`] for what it is told, [`Plan`] for the hold. This file does what the
//! core's wait loop and keeper do around them.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::Drift;
use leasehold_core::backend::{Attempt, Grant};
use leasehold_core::clock::Moment;
use leasehold_core::plan::Plan;
use leasehold_testkit::sim::{Habits, MS};
use redis::Value;

use super::host::{Call, Pipe, Releasing, Wake};
use super::lua::Script;
use super::world::{Ask, World, name_of, nanos};
use crate::attempt::Tries;
use crate::keys::Keys;
use crate::mailbox::Mailbox;
use crate::renewer::millis;
use crate::reply::{self, Message};

#[derive(Debug)]
pub(super) struct Client {
    pub(super) habits: Habits,
    pub(super) phase: Phase,
    /// Rises with each change of phase, so that old timers mean nothing.
    pub(super) epoch: u64,
    /// The number of the attempt.
    pub(super) number: u64,
    pub(super) attempt: Option<Trying>,
    pub(super) hold: Option<Holding>,
    /// When the acquisition was called, in true time.
    pub(super) called: u64,
    pub(super) done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Thinking,
    /// Waits for the process's subscription.
    Subscribing,
    Trying {
        number: u64,
        call: u64,
    },
    Waiting,
    /// Waits an outage out.
    Pausing,
    Holding,
}

#[derive(Debug)]
pub(super) struct Trying {
    pub(super) owner: String,
    pub(super) tries: Tries,
    pub(super) newest: u64,
    pub(super) mailbox: Mailbox,
    /// Something was put into the mailbox since the last request.
    pub(super) told: bool,
    pub(super) tombstone: Duration,
    /// Of its grant, or empty.
    pub(super) token: String,
    pub(super) answered: bool,
    pub(super) failures: u32,
}

#[derive(Debug)]
pub(super) struct Holding {
    pub(super) plan: Plan,
    pub(super) record: usize,
    /// The renewal under way: when it was sent and what it asks for.
    pub(super) renewing: Option<(Moment, Duration)>,
    pub(super) extends: bool,
}

impl Client {
    pub(super) fn new(habits: Habits) -> Self {
        Self {
            habits,
            phase: Phase::Thinking,
            epoch: 0,
            number: 0,
            attempt: None,
            hold: None,
            called: 0,
            done: false,
        }
    }

    pub(super) fn owner(&self) -> Option<&str> {
        self.attempt.as_ref().map(|attempt| attempt.owner.as_str())
    }
}

impl World<'_> {
    pub(super) fn is_done(&self, client: usize) -> bool {
        self.clients[client].done
            || self.hosts[self.clients[client].habits.machine]
                .machine
                .stops
                .dead()
    }

    pub(super) fn phase(&mut self, client: usize, phase: Phase) -> u64 {
        let client = &mut self.clients[client];
        client.phase = phase;
        client.epoch += 1;
        client.epoch
    }

    fn phase_for(&mut self, client: usize, phase: Phase, nanos: u64) {
        let epoch = self.phase(client, phase);
        let host = self.clients[client].habits.machine;
        self.after(host, nanos, Wake::Client { client, epoch });
    }

    /// Does something else for a while.
    pub(super) fn think(&mut self, client: usize) {
        let thinks = self.clients[client].habits.thinks;
        let pause = self.rng.within(0..thinks);
        self.clients[client].attempt = None;
        self.phase_for(client, Phase::Thinking, pause);
    }

    pub(super) fn client_timer(&mut self, client: usize, epoch: u64) {
        if self.clients[client].epoch != epoch {
            return;
        }
        match self.clients[client].phase {
            Phase::Thinking if self.now() >= self.scenario.quiet_at => {
                self.clients[client].done = true;
            }
            Phase::Thinking => {
                self.clients[client].called = self.now();
                let waits = self.clients[client].habits.waits;
                let waits = self.rng.chance(waits);
                self.begin(client, waits);
            }
            Phase::Waiting | Phase::Pausing => self.try_now(client),
            Phase::Trying { call, .. } => {
                let host = self.clients[client].habits.machine;
                if let Some((connection, _)) = self.hosts[host].calls.remove(&call) {
                    self.hosts[host].give_up_connection(connection);
                }
                self.try_failed(client);
            }
            Phase::Subscribing | Phase::Holding => {}
        }
    }

    /// An attempt with an owner of its own.
    fn begin(&mut self, client: usize, waits: bool) {
        let owner = format!("{:016x}{:016x}", self.rng.bits(), self.rng.bits());
        let habits = &self.clients[client].habits;
        let (host, ttl, gives_up) = (habits.machine, habits.ttl, habits.gives_up);
        self.note(|| format!("client {client}: begins as {owner}, waits: {waits}"));
        let state = &mut self.clients[client];
        state.number += 1;
        let attempt = state.number;
        state.attempt = Some(Trying {
            owner,
            tries: Tries::new(ttl, waits),
            newest: 0,
            mailbox: Mailbox::default(),
            told: false,
            tombstone: Duration::ZERO,
            token: String::new(),
            answered: false,
            failures: 0,
        });
        if waits && self.rng.chance(gives_up) {
            let longest = 3 * self.scenario.base;
            let patience = self.rng.within(0..longest);
            self.after(host, patience, Wake::GiveUp { client, attempt });
        }
        if waits && !self.hosts[host].listens() {
            self.phase(client, Phase::Subscribing);
            self.subscribe(host);
        } else {
            self.try_now(client);
        }
    }

    /// What a contender's `try_acquire` does.
    fn try_now(&mut self, client: usize) {
        let host = self.clients[client].habits.machine;
        let now = self.moment(host);
        let newest_sent = self.faults.newest_sent;
        let name = name_of(self.clients[client].habits.name);
        let keys = self.keys[self.clients[client].habits.name].clone();
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        if let Some(Message::Granted {
            token,
            number,
            alive,
            ..
        }) = attempt.mailbox.take_handed()
        {
            let number = if newest_sent { attempt.newest } else { number };
            if let Some(grant) = attempt.tries.handed(token, number, alive) {
                return self.granted(client, grant);
            }
        }
        let waits = attempt.tries.waits();
        if waits && !self.hosts[host].listens() {
            self.phase(client, Phase::Subscribing);
            return self.subscribe(host);
        }
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        attempt.mailbox.clear();
        attempt.told = false;
        let number = attempt.tries.send(now);
        attempt.newest = number;
        attempt.tombstone = attempt.tries.tombstone();
        let owner = attempt.owner.clone();
        let ask = Ask::Script {
            script: Script::Acquire,
            keys: vec![
                keys.lock,
                keys.counter,
                keys.queue,
                keys.waiters,
                Keys::tombstone(&name, owner.parse().expect("owners are hexadecimal")),
            ],
            args: vec![
                owner,
                number.to_string(),
                millis(attempt.tries.ttl()).to_string(),
                millis(attempt.tries.alive()).to_string(),
                if waits { "1" } else { "0" }.to_owned(),
                if waits {
                    self.hosts[host].channel.clone()
                } else {
                    "-".to_owned()
                },
                format!("{{\"pid\": {client}}}"),
            ],
        };
        match self.call(host, Pipe::Grants, ask, Call::Try { client }) {
            Some(call) => {
                let patience = self.scenario.patience;
                self.phase_for(client, Phase::Trying { number, call }, patience);
            }
            None => self.try_never_left(client, number),
        }
    }

    fn try_never_left(&mut self, client: usize, number: u64) {
        if let Some(attempt) = &mut self.clients[client].attempt {
            attempt.tries.void(number);
            attempt.tombstone = attempt.tries.tombstone();
        }
        self.try_failed(client);
    }

    pub(super) fn try_answered(&mut self, client: usize, value: Value) {
        let Phase::Trying { number, .. } = self.clients[client].phase else {
            return;
        };
        let host = self.clients[client].habits.machine;
        let answered_at = self.moment(host);
        let from_the_answer = self.faults.from_the_answer;
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        attempt.answered = true;
        attempt.failures = 0;
        let outcome =
            reply::try_reply(value).and_then(|reply| attempt.tries.answered(number, reply));
        attempt.tombstone = attempt.tries.tombstone();
        match outcome {
            Ok(Attempt::Granted(mut grant)) => {
                if from_the_answer {
                    grant.since = answered_at;
                }
                self.granted(client, grant);
            }
            Ok(Attempt::Busy(_)) if !attempt.tries.waits() => self.think(client),
            Ok(Attempt::Busy(busy)) => {
                let look_in = busy.retry_in.unwrap_or(Duration::from_secs(1));
                let look_in = look_in.mul_f64(1.0 + 0.1 * self.rng.unit());
                self.phase_for(client, Phase::Waiting, nanos(look_in));
                if self.is_told(client) {
                    self.try_now(client);
                }
            }
            Err(error) => self.violated(format!("client {client}: a try failed: {error}")),
        }
    }

    /// A try got no answer.
    pub(super) fn try_failed(&mut self, client: usize) {
        if !matches!(
            self.clients[client].phase,
            Phase::Trying { .. }
                | Phase::Waiting
                | Phase::Pausing
                | Phase::Thinking
                | Phase::Subscribing
        ) {
            return;
        }
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        if !attempt.tries.waits() || !attempt.answered {
            return self.let_go(client);
        }
        let pause = (50 * MS) << attempt.failures.min(5);
        attempt.failures += 1;
        let pause = (pause as f64 * (0.5 + self.rng.unit())) as u64;
        self.phase_for(client, Phase::Pausing, pause);
    }

    pub(super) fn give_up(&mut self, client: usize, attempt: u64) {
        let state = &self.clients[client];
        if state.number == attempt && state.hold.is_none() && state.attempt.is_some() {
            self.note(|| format!("client {client}: gives up"));
            self.let_go(client);
        }
    }

    /// Gives the attempt back without having it used.
    pub(super) fn let_go(&mut self, client: usize) {
        let Some(attempt) = self.clients[client].attempt.take() else {
            return;
        };
        let habits = &self.clients[client].habits;
        let host = habits.machine;
        let (name, ttl) = (habits.name, habits.ttl);
        // Dropped futures hear no answers.
        self.hosts[host].calls.retain(|_, (_, call)| {
            !matches!(call, Call::Try { client: of } | Call::Renew { client: of } if *of == client)
        });
        self.release(host, Releasing::of(name, attempt, ttl));
        self.think(client);
    }

    fn granted(&mut self, client: usize, grant: Grant) {
        let now = self.now();
        let host = self.clients[client].habits.machine;
        let habits = self.clients[client].habits.clone();
        let drift = if self.faults.no_margin {
            Drift {
                rate_ppm: 0,
                slack: Duration::ZERO,
            }
        } else {
            Drift::default()
        };
        let jitter = self.rng.unit();
        let plan = Plan::new(&grant, habits.ttl, habits.renews, None, drift, jitter);
        let late = plan.remaining(self.moment(host)).is_zero();
        self.note(|| format!("client {client}: granted {grant:?}, late: {late}"));
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        attempt.token = grant.token.to_string();
        let (owner, waits) = (attempt.owner.clone(), attempt.tries.waits());
        let called = self.clients[client].called;
        let record = self
            .records
            .granted(habits.name, &owner, grant.token.get(), called, now);
        if late {
            self.let_go(client);
            if waits {
                self.begin(client, waits);
            }
            return;
        }
        self.clients[client].hold = Some(Holding {
            plan,
            record,
            renewing: None,
            extends: self.rng.chance(0.1),
        });
        self.phase(client, Phase::Holding);
        self.observe(client);
        let works = self.rng.within(0..habits.works);
        let attempt = self.clients[client].number;
        self.after(host, works, Wake::Done { client, attempt });
        self.touched(client);
    }

    /// Something was told to this client, or might have been.
    pub(super) fn mail(&mut self, client: usize, message: Option<Message>) {
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        attempt.mailbox.put(message);
        attempt.told = true;
        match self.clients[client].phase {
            Phase::Waiting | Phase::Subscribing => self.try_now(client),
            Phase::Holding => self.touched(client),
            Phase::Thinking | Phase::Trying { .. } | Phase::Pausing => {}
        }
    }

    pub(super) fn is_told(&self, client: usize) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.clients[client]
            .attempt
            .as_ref()
            .is_some_and(|attempt| attempt.mailbox.poll_changed(&mut context) == Poll::Ready(()))
    }
}

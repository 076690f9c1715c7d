//! One client: it wants the lock, gets it, works, lets go, and begins anew. What decides is the shipped code; this file
//! does what the core's wait loop does around it.

use std::task::{Context, Poll, Waker};

use leasehold_core::Owner;
use leasehold_core::clock::Moment;
use leasehold_testkit::sim::{Habits, MS, SECOND};

use super::ends::Ending;
use super::hold::Holding;
use super::host::Wake;
use super::session::nanos;
use super::world::World;
use crate::session::Lease;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) habits: Habits,
    pub(super) phase: Phase,
    /// Rises with each change of phase, so that old timers mean nothing.
    epoch: u64,
    /// The number of the attempt.
    pub(super) number: u64,
    pub(super) attempt: Option<Trying>,
    pub(super) hold: Option<Holding>,
    /// When the acquisition was called, in true time.
    pub(super) called: u64,
    pub(super) done: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Thinking,
    /// Waits for its session's lease.
    Starting,
    /// Sent a try, or a look at its place.
    Asking,
    /// Is the first, and waits for a beat to count from.
    Beginning {
        made: i64,
        asked: Moment,
        failures: u64,
    },
    Waiting,
    /// Waits an outage out.
    Pausing,
    Holding,
}

#[derive(Debug)]
pub(super) struct Trying {
    pub(super) owner: Owner,
    pub(super) waits: bool,
    /// Takes a place behind others at once.
    pub(super) joins: bool,
    pub(super) seat: Option<usize>,
    /// The place that the feed tells of.
    pub(super) told_of: Option<i64>,
    /// As the last request went out.
    pub(super) lease: Option<Lease>,
    pub(super) answered: bool,
    pub(super) failures: u32,
    /// In the header of the last answer.
    pub(super) header: i64,
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
}

impl World {
    pub(super) fn is_done(&self, client: usize) -> bool {
        let host = self.clients[client].habits.machine;
        self.clients[client].done || self.hosts[host].machine.stops.dead()
    }

    pub(super) fn is_seated(&self, client: usize, host: usize, session: usize) -> bool {
        let client = &self.clients[client];
        let seat = client.attempt.as_ref().and_then(|attempt| attempt.seat);
        client.habits.machine == host && seat == Some(session)
    }

    pub(super) fn phase(&mut self, client: usize, phase: Phase) -> u64 {
        let client = &mut self.clients[client];
        client.phase = phase;
        client.epoch += 1;
        client.epoch
    }

    pub(super) fn phase_for(&mut self, client: usize, phase: Phase, nanos: u64) {
        let epoch = self.phase(client, phase);
        let host = self.clients[client].habits.machine;
        self.after(host, nanos, Wake::Client { client, epoch });
    }

    /// Does something else for a while.
    pub(super) fn think(&mut self, client: usize) {
        let thinks = self.clients[client].habits.thinks;
        let pause = self.rng.within(0..thinks);
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
            Phase::Waiting | Phase::Pausing => self.round(client),
            Phase::Starting | Phase::Beginning { .. } => self.outage(client),
            Phase::Asking | Phase::Holding => {}
        }
    }

    /// An attempt with an owner of its own.
    pub(super) fn begin(&mut self, client: usize, waits: bool) {
        let owner = format!("{:016x}{:016x}", self.rng.bits(), self.rng.bits());
        let joins = waits && self.rng.chance(0.5);
        self.note(|| format!("client {client}: begins, waits: {waits}, joins: {joins}"));
        let state = &mut self.clients[client];
        state.number += 1;
        let attempt = state.number;
        state.attempt = Some(Trying {
            owner: owner.parse().unwrap(),
            waits,
            joins,
            seat: None,
            told_of: None,
            lease: None,
            answered: false,
            failures: 0,
            header: 0,
        });
        let (host, gives_up) = (state.habits.machine, state.habits.gives_up);
        if waits && self.rng.chance(gives_up) {
            let patience = self.rng.within(0..3 * self.scenario.base);
            self.after(host, patience, Wake::GiveUp { client, attempt });
        }
        self.round(client);
    }

    /// A try got no answer.
    pub(super) fn outage(&mut self, client: usize) {
        let Some(attempt) = &mut self.clients[client].attempt else {
            return;
        };
        if !attempt.waits || !attempt.answered {
            self.let_go(client);
            return self.think(client);
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
            self.think(client);
        }
    }

    pub(super) fn leave_feed(&mut self, client: usize) {
        let habits = &self.clients[client].habits;
        let (host, name) = (habits.machine, habits.name);
        let attempt = self.clients[client].attempt.as_mut();
        if let Some(place) = attempt.and_then(|attempt| attempt.told_of.take()) {
            self.hosts[host].feed.leave(name, place);
        }
    }

    /// Leaves the place to its session.
    pub(super) fn unseat(&mut self, client: usize) {
        self.leave_feed(client);
        self.with_place(client, crate::session::Place::leave);
        let habits = &self.clients[client].habits;
        let (host, name) = (habits.machine, habits.name);
        let now = self.moment(host).boot;
        let attempt = self.clients[client].attempt.as_mut();
        if let Some(seat) = attempt.and_then(|attempt| attempt.seat.take()) {
            self.hosts[host].sessions[seat].tidy(name, now);
            self.heart(host, seat);
        }
    }

    /// Gives the attempt back, whatever became of it.
    pub(super) fn let_go(&mut self, client: usize) {
        self.leave_feed(client);
        let Some(attempt) = self.clients[client].attempt.take() else {
            return;
        };
        let habits = &self.clients[client].habits;
        let (host, name) = (habits.machine, habits.name);
        let most = 2 * nanos(habits.ttl) + SECOND;
        self.hosts[host].forget_calls_of(client);
        if let Some(session) = attempt.seat {
            let releases_until = Some(self.now() + most);
            let ending = Ending {
                session,
                name,
                releases_until,
            };
            self.end(host, ending);
            self.heart(host, session);
        }
    }

    /// The session's task sleeps until the first of all ends it knew of.
    pub(super) fn place_changed(&mut self, client: usize) {
        let host = self.clients[client].habits.machine;
        if let Some(seat) = self.clients[client].attempt.as_ref().and_then(|a| a.seat) {
            self.heart(host, seat);
        }
    }

    /// Something may have been put into this client's mailbox.
    pub(super) fn mail(&mut self, client: usize) {
        if !self.is_told(client) {
            return;
        }
        match self.clients[client].phase {
            Phase::Waiting => self.round(client),
            Phase::Holding => self.touched(client),
            _ => {}
        }
    }

    pub(super) fn is_told(&mut self, client: usize) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let poll = self.with_place(client, |place| place.mailbox.poll_changed(&mut context));
        poll == Some(Poll::Ready(()))
    }
}

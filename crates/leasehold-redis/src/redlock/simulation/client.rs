//! One client: it wants the lock, gets it, works, lets go, and begins anew. What decides is the shipped attempt; this
//! file does what its driver and the core's wait loop do around it.

use leasehold_core::backend::Grant;
use leasehold_core::clock::Moment;
use leasehold_core::lease::Lease;
use leasehold_core::plan::Plan;
use leasehold_core::{Drift, Owner, Token};
use leasehold_testkit::sim::{Habits, MS};

use super::super::attempt::Attempt;
use super::super::exchange::{Answer, Event, Outcome};
use super::hold::Holding;
use super::host::{Call, Wake};
use super::leaving::Releasing;
use super::world::{World, nanos};

#[derive(Debug)]
pub(super) struct Client {
    pub(super) habits: Habits,
    phase: Phase,
    /// Rises with each change of phase, so that old timers mean nothing.
    epoch: u64,
    /// The number of the attempt.
    pub(super) number: u64,
    pub(super) trying: Option<Trying>,
    pub(super) hold: Option<Holding>,
    /// When the acquisition was called, in true time.
    called: u64,
    pub(super) done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Thinking,
    Trying,
    Waiting,
    /// Waits an outage out.
    Pausing,
    Holding,
}

#[derive(Debug)]
pub(super) struct Trying {
    pub(super) owner: Owner,
    pub(super) attempt: Attempt,
    /// When the try under way was begun, and when it last asked for a lock.
    pub(super) begun: Option<Moment>,
    pub(super) asked: Option<Moment>,
    granted: bool,
    /// Something was sent.
    pub(super) asks: bool,
    answered: bool,
    failures: u32,
}

impl Client {
    pub(super) fn new(habits: Habits) -> Self {
        Self {
            habits,
            phase: Phase::Thinking,
            epoch: 0,
            number: 0,
            trying: None,
            hold: None,
            called: 0,
            done: false,
        }
    }

    pub(super) fn is_trying(&self) -> bool {
        self.phase == Phase::Trying
    }

    pub(super) fn owner(&self) -> Option<String> {
        self.trying.as_ref().map(|trying| trying.owner.to_hex())
    }
}

impl World<'_> {
    pub(super) fn is_done(&self, client: usize) -> bool {
        let state = &self.clients[client];
        state.done || self.hosts[state.habits.machine].machine.stops.dead()
    }

    fn phase(&mut self, client: usize, phase: Phase) -> u64 {
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
        let pause = self.rng.within(MS..thinks);
        self.phase_for(client, Phase::Thinking, pause);
    }

    pub(super) fn client_timer(&mut self, client: usize, epoch: u64) {
        if self.clients[client].epoch != epoch {
            return;
        }
        match self.clients[client].phase {
            Phase::Thinking if self.now() >= self.scenario.last_at => {
                self.clients[client].done = true;
            }
            Phase::Thinking => {
                self.clients[client].called = self.now();
                let waits = self.clients[client].habits.waits;
                let waits = self.rng.chance(waits);
                self.begin(client, waits);
            }
            Phase::Waiting | Phase::Pausing => self.try_now(client),
            Phase::Trying | Phase::Holding => {}
        }
    }

    /// An attempt with an owner of its own.
    fn begin(&mut self, client: usize, waits: bool) {
        let owner = if self.faults.one_owner {
            format!("{client:032x}")
        } else {
            format!("{:016x}{:016x}", self.rng.bits(), self.rng.bits())
        };
        let habits = &self.clients[client].habits;
        let (host, ttl, gives_up) = (habits.machine, habits.ttl, habits.gives_up);
        self.note(|| format!("client {client}: begins as {owner}, waits: {waits}"));
        let quorum = self.quorum;
        let state = &mut self.clients[client];
        state.number += 1;
        let attempt = state.number;
        state.trying = Some(Trying {
            owner: owner.parse().expect("owners are hexadecimal"),
            attempt: Attempt::new(quorum, ttl, waits),
            begun: None,
            asked: None,
            granted: false,
            asks: false,
            answered: false,
            failures: 0,
        });
        if self.rng.chance(gives_up) {
            // Half of them while their first requests are on their way.
            let longest = self.scenario.base * 3 / [1, 300][self.rng.below(2)];
            let patience = self.rng.within(0..longest);
            self.after(host, patience, Wake::GiveUp { client, attempt });
        }
        self.try_now(client);
    }

    /// What a contender's `try_acquire` does.
    fn try_now(&mut self, client: usize) {
        let host = self.clients[client].habits.machine;
        if self.hosts[host].misses_one() {
            self.judge(host);
        }
        let counted = self.hosts[host].counted();
        if !self.quorum.has(counted) || !self.hosts[host].judging.is_recorded() {
            return self.try_failed(client);
        }
        let now = self.moment(host);
        self.phase(client, Phase::Trying);
        let Some(trying) = &mut self.clients[client].trying else {
            return;
        };
        trying.begun = Some(now);
        let mut effects = Vec::new();
        trying.attempt.begin(counted, now, &mut effects);
        self.effects(client, effects);
    }

    /// Something happens to the attempt.
    pub(super) fn happened(&mut self, client: usize, event: Event) {
        let mut now = self.moment(self.clients[client].habits.machine);
        let Some(trying) = &mut self.clients[client].trying else {
            return;
        };
        if let (true, Some(begun)) = (self.faults.one_reading, trying.begun)
            && matches!(
                event,
                Event::Answered {
                    answer: Answer::Written,
                    ..
                }
            )
        {
            now = begun;
        }
        trying.answered |= matches!(event, Event::Answered { .. });
        let mut effects = Vec::new();
        trying.attempt.handle(event, now, &mut effects);
        self.effects(client, effects);
        self.look_if_told(client);
    }

    pub(super) fn paused(&mut self, client: usize, attempt: u64) {
        if self.clients[client].number == attempt {
            self.happened(client, Event::Paused);
        }
    }

    pub(super) fn decided(&mut self, client: usize, outcome: Outcome) {
        if self.clients[client].phase != Phase::Trying {
            // With a fault put in, it has been granted before.
            return;
        }
        self.note(|| format!("client {client}: {outcome:?}"));
        let waits = self.clients[client]
            .trying
            .as_ref()
            .is_some_and(|trying| trying.attempt.waits());
        match outcome {
            Outcome::Granted { token, since } => self.granted(client, token, since),
            Outcome::Busy { retry_in, .. } if waits => {
                let look_in = retry_in.mul_f64(1.0 + 0.1 * self.rng.unit());
                self.phase_for(client, Phase::Waiting, nanos(look_in).max(MS / 10));
                self.look_if_told(client);
            }
            Outcome::Busy { .. } => self.let_go(client),
            Outcome::NoMajority { .. } | Outcome::Late => self.try_failed(client),
        }
    }

    /// A try came to nothing.
    fn try_failed(&mut self, client: usize) {
        let Some(trying) = &mut self.clients[client].trying else {
            return;
        };
        if !trying.attempt.waits() || !trying.answered {
            return self.let_go(client);
        }
        let pause = (50 * MS) << trying.failures.min(5);
        trying.failures += 1;
        let pause = (pause as f64 * (0.5 + self.rng.unit())) as u64;
        self.phase_for(client, Phase::Pausing, pause);
    }

    /// One that waits tries again if it was told that its turn has come.
    fn look_if_told(&mut self, client: usize) {
        let state = &self.clients[client];
        let told = |trying: &Trying| trying.attempt.is_told();
        if state.phase == Phase::Waiting && state.trying.as_ref().is_some_and(told) {
            self.try_now(client);
        }
    }

    /// One that waits tries again: it may have missed something.
    pub(super) fn look(&mut self, client: usize) {
        if self.clients[client].phase == Phase::Waiting {
            self.try_now(client);
        }
    }

    pub(super) fn give_up(&mut self, client: usize, attempt: u64) {
        let state = &self.clients[client];
        if state.number == attempt && state.hold.is_none() && state.trying.is_some() {
            self.note(|| format!("client {client}: gives up"));
            self.let_go(client);
        }
    }

    /// Gives the attempt back, used or not.
    pub(super) fn let_go(&mut self, client: usize) {
        let now = self.now();
        let Some(trying) = self.clients[client].trying.take() else {
            return;
        };
        let habits = &self.clients[client].habits;
        let (host, name, ttl) = (habits.machine, habits.name, habits.ttl);
        // Dropped futures hear no answers.
        self.hosts[host].calls.retain(|_, (_, call)| {
            !matches!(call, Call::Ask { client: of, .. } | Call::Renew { client: of, .. } if *of == client)
        });
        self.let_go.insert(trying.owner.to_hex(), now);
        if trying.asks && (trying.granted || !self.faults.no_clean_up) {
            let loose = trying.attempt.loose();
            self.release(host, Releasing::new(name, trying.owner, ttl), loose);
        }
        self.think(client);
    }

    pub(super) fn granted(&mut self, client: usize, token: u64, since: Moment) {
        let now = self.now();
        let habits = self.clients[client].habits.clone();
        let read = self.moment(habits.machine);
        let called = self.clients[client].called;
        let Some(trying) = &mut self.clients[client].trying else {
            return;
        };
        trying.granted = true;
        let since = match self.faults {
            faults if faults.from_the_answer => read,
            faults if faults.newest_sent => trying.asked.unwrap_or(since),
            _ => since,
        };
        let (owner, waits) = (trying.owner.to_hex(), trying.attempt.waits());
        let Some(grant) = Token::new(token).map(|token| Grant {
            token,
            since,
            ttl: habits.ttl,
        }) else {
            return self.violated(format!("client {client}: the token is {token}"));
        };
        let drift = Drift::default();
        let plan = Plan::new(
            &grant,
            habits.ttl,
            habits.renews,
            None,
            drift,
            self.rng.unit(),
        );
        let late = plan.remaining(read).is_zero();
        let left = Lease::new(since, habits.ttl, drift).remaining_steady(read);
        if left < habits.ttl / 6 {
            self.violated(format!(
                "client {client}: handed out with {left:?} of {:?} left",
                habits.ttl
            ));
        }
        let lock = self.eras * self.names.len() + habits.name;
        let record = self.records.granted(lock, &owner, token, called, now);
        if late {
            self.let_go(client);
            if waits {
                self.begin(client, waits);
            }
            return;
        }
        let extends = self.rng.chance(0.1);
        self.clients[client].hold = Some(Holding::new(plan, record, extends));
        self.phase(client, Phase::Holding);
        self.observe(client);
        let works = self.rng.within(0..habits.works);
        let attempt = self.clients[client].number;
        self.after(habits.machine, works, Wake::Done { client, attempt });
        self.keep(client, attempt);
    }
}

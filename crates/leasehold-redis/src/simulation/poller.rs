//! A client of another make: it polls with `SET NX PX`, holds without renewing, and deletes what is its own.

use leasehold_core::Drift;
use leasehold_testkit::sim::MS;
use redis::Value;
use std::time::Duration;

use super::host::{Call, Pipe, Wake};
use super::world::{Ask, World, nanos};

#[derive(Debug)]
pub(super) struct Poller {
    host: usize,
    epoch: u64,
    /// What it set last.
    value: String,
    /// Its clock and true time when it sent that.
    sent: (u64, u64),
    /// Its hold's number in the records.
    held: Option<usize>,
    pub(super) grants: usize,
}

impl Poller {
    pub(super) fn new(host: usize) -> Self {
        Self {
            host,
            epoch: 0,
            value: String::new(),
            sent: (0, 0),
            held: None,
            grants: 0,
        }
    }
}

impl World<'_> {
    pub(super) fn poll_later(&mut self, poller: usize) {
        let pause = self.rng.within(MS..self.scenario.polls_within);
        self.poll_in(poller, pause);
    }

    fn poll_in(&mut self, poller: usize, pause: u64) {
        let state = &mut self.pollers[poller];
        state.epoch += 1;
        let (host, epoch) = (state.host, state.epoch);
        self.after(host, pause, Wake::Poll { poller, epoch });
    }

    pub(super) fn poll(&mut self, poller: usize, epoch: u64) {
        if self.pollers[poller].epoch != epoch {
            return;
        }
        let (host, key, now) = (
            self.pollers[poller].host,
            self.keys[0].lock.clone(),
            self.now(),
        );
        if let Some(record) = self.pollers[poller].held.take() {
            // The work is done.
            self.records.believes(record, now, None);
            let value = self.pollers[poller].value.clone();
            self.call(host, Pipe::Grants, Ask::Delete { key, value }, Call::Delete);
            return self.poll_later(poller);
        }
        if now >= self.scenario.quiet_at {
            return;
        }
        // An answer to an earlier one that still comes is not looked at.
        self.hosts[host].calls.clear();
        let value = format!("poller-{:x}", self.rng.bits());
        self.pollers[poller].value.clone_from(&value);
        self.pollers[poller].sent = (self.moment(host).boot, now);
        let px = self.scenario.base / MS;
        let ask = Ask::Set { key, value, px };
        if self
            .call(host, Pipe::Grants, ask, Call::Set { poller })
            .is_none()
        {
            return self.poll_later(poller);
        }
        // Without an answer it polls on.
        let patience = self.scenario.base / 2;
        self.poll_in(poller, patience);
    }

    pub(super) fn set_answered(&mut self, poller: usize, value: &Value) {
        let Value::Int(micros) = value else {
            return self.poll_later(poller);
        };
        let now = self.now();
        let (host, (boot, called)) = (self.pollers[poller].host, self.pollers[poller].sent);
        let ttl = Duration::from_millis(self.scenario.base / MS);
        let usable = nanos(Drift::default().usable(ttl));
        let rest = usable.saturating_sub(self.moment(host).boot - boot);
        let owner = self.pollers[poller].value.clone();
        let record = self.records.granted(0, &owner, *micros as u64, called, now);
        self.pollers[poller].grants += 1;
        let believes = (rest > 0).then(|| self.hosts[host].machine.clock.after(now, rest));
        self.records.believes(record, now, believes);
        self.pollers[poller].held = Some(record);
        let works = self.rng.within(0..self.scenario.base / 4);
        self.poll_in(poller, works);
    }
}

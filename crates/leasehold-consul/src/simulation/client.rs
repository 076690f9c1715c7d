//! A simulated client: one attempt or hold at a time, by what the driver decides.

use std::time::Duration;

use leasehold_core::backend::{Grant, LossReason, Renewal};
use leasehold_core::clock::Moment;
use leasehold_core::plan::{HoldState, Plan, Step};
use leasehold_core::{Drift, Identity, Owner, Token};
use leasehold_testkit::sim::{Clock, MS, Rng, SECOND};
use serde_json::Value;

use super::cluster::{Request, Response};
use super::{Fault, TTL};
use crate::attempt::{self, Free, Looked, Tried};
use crate::note::Note;
use crate::session::{Evidence, Verdict, verdict};
use crate::wire::{Entry, Op};

const KEY: &str = "x/.lock";
/// How long an answer is waited for.
const PATIENCE: u64 = 1500 * MS;
/// How long a session is looked after whose try had no answer.
const LOOKED_AFTER: u64 = 5 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Creating,
    Trying(Free),
    Looking,
    Holding,
    /// The renewal is sent, and then the read, with whether the renewal was answered well and by which turn.
    Renewing,
    Reading(bool, u64),
    Releasing,
    /// A try had no answer: looked after since then.
    Abandoned(u64),
    Deleting(u64),
    Destroying,
}

/// What a client does next.
pub(super) enum Act {
    /// Ask through this agent, and wait so long for the answer.
    Ask(usize, Request, u64),
    /// Nothing for so long.
    Sleep(u64),
}

pub(super) struct Client {
    clock: Clock,
    rng: Rng,
    fault: Fault,
    agent: usize,
    turn: u64,
    phase: Phase,
    owner: Owner,
    session: String,
    /// When the last renewal that counted was sent.
    pulse: Moment,
    /// When the request under way was sent.
    sent: Moment,
    /// A try had no answer.
    unanswered: bool,
    plan: Option<Plan>,
    index: u64,
    release_at: u64,
    pub(super) grants: Vec<u64>,
}

impl Client {
    pub(super) fn new(mut rng: Rng, fault: Fault) -> Self {
        let ppm = rng.within(0..4000) as i64 - 2000;
        let clock = Clock::new(1_700_000_000 * SECOND, ppm);
        Self {
            clock,
            fault,
            agent: rng.below(3),
            turn: 0,
            phase: Phase::Idle,
            owner: Owner::random().unwrap(),
            session: String::new(),
            pulse: clock.moment(0),
            sent: clock.moment(0),
            unanswered: false,
            plan: None,
            index: 0,
            release_at: 0,
            grants: Vec::new(),
            rng,
        }
    }

    /// Whether it takes the lock for its own.
    pub(super) fn believes(&self, now: u64) -> bool {
        let moment = self.clock.moment(now);
        self.plan.as_ref().is_some_and(|plan| {
            matches!(plan.state(), HoldState::Held | HoldState::Uncertain)
                && !plan.remaining(moment).is_zero()
        })
    }

    fn ask(&mut self, now: u64, request: Request) -> Act {
        self.sent = self.clock.moment(now);
        Act::Ask(self.agent, request, PATIENCE)
    }

    /// What to do now that nothing is under way.
    pub(super) fn act(&mut self, now: u64) -> Act {
        match self.phase {
            Phase::Idle => {
                self.owner = Owner::random().unwrap();
                self.unanswered = false;
                if self.is_young(now) {
                    self.phase = Phase::Trying(Free::Absent);
                    return self.act(now);
                }
                self.phase = Phase::Creating;
                self.ask(now, Request::Create)
            }
            Phase::Trying(free) => {
                let note = Note::new(
                    self.owner,
                    &Identity::of_this_process(),
                    std::time::UNIX_EPOCH,
                );
                let text = note.text();
                let ops = json(&attempt::request(KEY, free, &self.session, &text));
                self.ask(now, Request::Txn(ops))
            }
            Phase::Looking | Phase::Abandoned(_) => self.ask(now, Request::Get(KEY.into())),
            Phase::Holding => self.hold(now),
            Phase::Releasing | Phase::Deleting(_) => {
                let ops = [Op::unchanged(KEY, self.index), Op::delete(KEY, self.index)];
                self.ask(now, Request::Txn(json(&ops)))
            }
            Phase::Destroying => self.ask(now, Request::Destroy(self.session.clone())),
            Phase::Creating | Phase::Renewing | Phase::Reading(..) => unreachable!("under way"),
        }
    }

    fn is_young(&self, now: u64) -> bool {
        !self.session.is_empty() && self.clock.moment(now).since(self.pulse).any < TTL / 2
    }

    fn hold(&mut self, now: u64) -> Act {
        let moment = self.clock.moment(now);
        let Some(plan) = &mut self.plan else {
            return self.leave(now);
        };
        if now >= self.release_at {
            plan.release();
            self.phase = Phase::Releasing;
            return self.act(now);
        }
        match plan.step(moment) {
            Step::Renew { .. } => {
                plan.sent(moment);
                self.phase = Phase::Renewing;
                self.ask(now, Request::Renew(self.session.clone()))
            }
            Step::Sleep(at) => {
                let rest = at.saturating_sub(moment.boot).max(MS);
                Act::Sleep(rest.min(self.release_at - now))
            }
            Step::Lost | Step::Over => self.leave(now),
        }
    }

    /// What of this attempt may be in the store is looked after.
    fn leave(&mut self, now: u64) -> Act {
        self.plan = None;
        self.phase = Phase::Abandoned(now);
        Act::Sleep(20 * MS)
    }

    fn grant(&mut self, now: u64, token: u64, index: u64) -> Act {
        let grant = Grant {
            token: Token::new(token).unwrap(),
            since: self.pulse,
            ttl: if self.fault == Fault::TwoTtls {
                TTL * 2
            } else {
                TTL
            },
        };
        let plan = Plan::new(&grant, TTL, true, None, Drift::default(), self.rng.unit());
        self.index = index;
        if plan.remaining(self.clock.moment(now)).is_zero() {
            return self.leave(now);
        }
        self.plan = Some(plan);
        self.grants.push(token);
        self.release_at = now + self.rng.within(SECOND..60 * SECOND);
        self.phase = Phase::Holding;
        Act::Sleep(0)
    }

    /// Takes an answer in.
    pub(super) fn take(&mut self, now: u64, response: Response) -> Act {
        match (self.phase, response) {
            (Phase::Creating, Response::Created(id)) => {
                self.session = id;
                self.pulse = self.sent;
                self.phase = Phase::Trying(Free::Absent);
                Act::Sleep(0)
            }
            (Phase::Trying(_), Response::Txn(answer)) => match attempt::tried(&answer).unwrap() {
                Tried::Locked(index) => self.grant(now, index, index),
                Tried::SessionOver => {
                    self.session.clear();
                    self.pause(Phase::Idle)
                }
                _ => {
                    self.phase = Phase::Looking;
                    Act::Sleep(0)
                }
            },
            (Phase::Looking, Response::Entry(entry)) => self.looked(now, entry.as_ref()),
            (Phase::Renewing, Response::Renewed(renewed)) => {
                self.phase = Phase::Reading(renewed, self.turn);
                // The renewal's send is what counts.
                Act::Ask(self.agent, Request::Info(self.session.clone()), PATIENCE)
            }
            (Phase::Reading(renewed, turn), Response::IsThere(is_there)) => {
                let same_agent = turn == self.turn;
                self.read(
                    now,
                    Evidence {
                        renewed,
                        is_there,
                        same_agent,
                    },
                )
            }
            (Phase::Releasing, Response::Txn(_)) if self.unanswered => self.leave(now),
            (Phase::Releasing, Response::Txn(_)) => {
                self.plan = None;
                self.pause(Phase::Idle)
            }
            (Phase::Abandoned(since), Response::Entry(entry)) => self.look_after(now, since, entry),
            (Phase::Deleting(since), Response::Txn(_)) => self.pause(Phase::Abandoned(since)),
            (Phase::Destroying, Response::Destroyed) => {
                self.session.clear();
                self.pause(Phase::Idle)
            }
            (phase, response) => panic!("{response:?} in {phase:?}"),
        }
    }

    fn pause(&mut self, phase: Phase) -> Act {
        self.phase = phase;
        Act::Sleep(self.rng.within(10 * MS..SECOND))
    }

    fn looked(&mut self, now: u64, entry: Option<&Entry>) -> Act {
        match attempt::looked(entry, &self.session, self.owner).unwrap() {
            Looked::Ours { index, token } => {
                self.unanswered = false;
                self.grant(now, token, index)
            }
            Looked::Free(free) if self.is_young(now) => {
                self.phase = Phase::Trying(free);
                Act::Sleep(0)
            }
            _ if self.is_young(now) => self.pause(Phase::Looking),
            _ => self.leave(now),
        }
    }

    fn look_after(&mut self, now: u64, since: u64, entry: Option<Entry>) -> Act {
        if let Some(entry) = entry.filter(|entry| entry.session() == Some(&self.session)) {
            self.index = entry.modify_index;
            self.phase = Phase::Deleting(since);
            return Act::Sleep(0);
        }
        if now - since < LOOKED_AFTER {
            self.phase = Phase::Abandoned(since);
            return Act::Sleep(SECOND);
        }
        self.phase = Phase::Destroying;
        Act::Sleep(0)
    }

    fn renewed(&mut self, now: u64) -> Act {
        let since = match self.fault {
            Fault::SinceAnswer => self.clock.moment(now),
            _ => self.sent,
        };
        self.pulse = since;
        let ttl = if self.fault == Fault::TwoTtls {
            TTL * 2
        } else {
            TTL
        };
        if let Some(plan) = &mut self.plan {
            plan.answered(Renewal::Renewed { since, ttl }, self.rng.unit());
        }
        self.phase = Phase::Holding;
        Act::Sleep(0)
    }

    fn read(&mut self, now: u64, evidence: Evidence) -> Act {
        let moment = self.clock.moment(now);
        match verdict(evidence) {
            Verdict::Renewed => return self.renewed(now),
            Verdict::Gone => {
                if let Some(plan) = &mut self.plan {
                    plan.answered(Renewal::Lost(LossReason::SessionLost), 0.0);
                }
            }
            Verdict::Again => {
                if let Some(plan) = &mut self.plan {
                    plan.unanswered(moment, self.rng.unit());
                }
            }
        }
        self.phase = Phase::Holding;
        Act::Sleep(0)
    }

    /// There was no answer in time: another agent.
    pub(super) fn late(&mut self, now: u64) -> Act {
        self.agent = (self.agent + 1) % 3;
        self.turn += 1;
        match self.phase {
            Phase::Creating => self.pause(Phase::Idle),
            Phase::Trying(_) => {
                self.unanswered = true;
                self.phase = Phase::Looking;
                Act::Sleep(0)
            }
            Phase::Renewing | Phase::Reading(..) => {
                let moment = self.clock.moment(now);
                if let Some(plan) = &mut self.plan {
                    plan.unanswered(moment, self.rng.unit());
                }
                self.phase = Phase::Holding;
                Act::Sleep(0)
            }
            Phase::Releasing => self.leave(now),
            other => self.pause(other),
        }
    }
}

fn json(ops: &[Op<'_>]) -> Value {
    serde_json::to_value(ops).unwrap()
}

/// A duration in nanoseconds.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

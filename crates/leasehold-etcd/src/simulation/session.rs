//! Sessions: what [`leasehold_core::session`] does around the leases, the beats and the places.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_testkit::sim::{MS, SECOND};

use super::ends::Ending;
use super::host::{Answer, Ask, Call, KEEPER, Wake};
use super::world::World;
use crate::beat::{Evidence, Verdict, Witness, verdict};
use crate::keys;
use crate::session::{Lease, Place};
use crate::wire::{
    LeaseGrantResponse, LeaseKeepAliveResponse, LeaseTimeToLiveResponse, Op, RangeRequest,
    RangeResponse, TxnRequest,
};
use leasehold_core::session::Pulse;

/// How long a lease or its end may take to be answered.
pub(super) const PATIENCE_MAX: u64 = 2 * SECOND;
/// How often a beat is repeated at once because its answers proved nothing.
const ROUNDS: u32 = 4;

#[derive(Debug)]
pub(super) struct Session {
    /// In seconds.
    asked: i64,
    pub(super) phase: Phase,
    pub(super) places: BTreeMap<usize, Place>,
    pub(super) pulse: Option<Pulse>,
    /// Beats that failed, and whether the last one did.
    pub(super) failures: u64,
    failing: bool,
    pub(super) wanted: bool,
    beating: Option<Beating>,
    begun: Option<Moment>,
    /// No beat before this boot time.
    retry_at: u64,
    /// When its task wakes (monotonic time).
    pub(super) timer: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    Starting,
    Live(Lease),
    Over,
}

/// A beat under way.
#[derive(Debug)]
struct Beating {
    round: u32,
    since: Moment,
    before: Option<Witness>,
    renewed: Option<(Witness, i64)>,
    left: Option<LeaseTimeToLiveResponse>,
}

impl Session {
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    fn suits(&self, name: usize, asked: i64, now: Moment) -> bool {
        let fit = match self.phase {
            Phase::Starting => true,
            Phase::Live(_) => self.pulse.as_ref().is_some_and(|pulse| pulse.is_young(now)),
            Phase::Over => false,
        };
        fit && self.asked == asked && !self.places.contains_key(&name)
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        match &self.phase {
            Phase::Live(lease) => Some(lease.clone()),
            _ => None,
        }
    }

    pub(super) fn written_at(&mut self, revision: i64) {
        if let Phase::Live(lease) = &mut self.phase {
            lease.written = lease.written.max(revision);
        }
    }

    /// Whether a beat has failed since there were this many.
    pub(super) fn has_failed_since(&self, failures: u64) -> bool {
        self.failing && self.failures > failures
    }

    pub(super) fn tidy(&mut self, name: usize, now: u64) {
        if self
            .places
            .get(&name)
            .is_some_and(|place| place.is_over(now))
        {
            self.places.remove(&name);
        }
    }
}

impl World {
    /// A place of this name on a session that has none of it yet.
    pub(super) fn seat(&mut self, host: usize, name: usize, ttl: Duration) -> usize {
        let now = self.moment(host);
        let asked = i64::try_from(ttl.as_nanos().div_ceil(1_000_000_000)).unwrap();
        let sessions = &mut self.hosts[host].sessions;
        let ready = sessions
            .iter()
            .position(|session| session.suits(name, asked, now));
        let at = ready.unwrap_or(sessions.len());
        if ready.is_none() {
            sessions.push(Session {
                asked,
                phase: Phase::Starting,
                places: BTreeMap::new(),
                pulse: None,
                failures: 0,
                failing: false,
                wanted: false,
                beating: None,
                begun: Some(now),
                retry_at: 0,
                timer: None,
            });
            let what = (Ask::Grant { ttl: asked }, 2, PATIENCE_MAX);
            self.call(host, KEEPER, what, Call::Begin { session: at });
        }
        let places = &mut self.hosts[host].sessions[at].places;
        places.insert(name, Place::default());
        at
    }

    pub(super) fn lease_granted(&mut self, host: usize, session: usize, lease: LeaseGrantResponse) {
        let canary = keys::canary(lease.id);
        let write = TxnRequest {
            success: vec![Op::put(&canary, Vec::new(), lease.id), Op::get(&canary)],
            ..TxnRequest::default()
        };
        let call = Call::Canary { session, lease };
        self.call(host, KEEPER, (Ask::Txn(write), 2, PATIENCE_MAX), call);
    }

    pub(super) fn canary_written(
        &mut self,
        host: usize,
        session: usize,
        lease: &LeaseGrantResponse,
        answer: &Answer,
    ) {
        let Answer::Txn(answer) = answer else {
            return self.session_failed(host, session);
        };
        let state = &mut self.hosts[host].sessions[session];
        let written = answer.range(1).and_then(|range| range.kvs.first());
        let since = state.begun.take().unwrap();
        state.phase = Phase::Live(Lease {
            id: lease.id,
            canary: keys::canary(lease.id),
            written: written.unwrap().mod_revision,
        });
        state.pulse = Some(Pulse {
            since,
            ttl: Duration::from_secs(lease.ttl.unsigned_abs()),
            keys: Arc::default(),
        });
        self.session_changed(host, session);
    }

    /// It can't be started.
    pub(super) fn session_failed(&mut self, host: usize, session: usize) {
        self.end_session(host, session);
    }

    /// The lease has ended, and with it every key on it.
    pub(super) fn end_session(&mut self, host: usize, session: usize) {
        self.note(|| format!("host {host}: session {session} is over"));
        let state = &mut self.hosts[host].sessions[session];
        state.phase = Phase::Over;
        state.places.values_mut().for_each(Place::ended);
        self.tell_all(host, session);
        self.session_changed(host, session);
    }

    pub(super) fn tell_all(&mut self, host: usize, session: usize) {
        for place in self.hosts[host].sessions[session].places.values() {
            place.mailbox.put();
        }
        for client in 0..self.clients.len() {
            if self.is_seated(client, host, session) {
                self.mail(client);
            }
        }
    }

    /// Its lease or its beats are something else than before.
    fn session_changed(&mut self, host: usize, session: usize) {
        for client in 0..self.clients.len() {
            if self.is_seated(client, host, session) {
                self.beat_heard(client);
            }
        }
        self.heart(host, session);
    }

    /// What the session's task does when it wakes.
    pub(super) fn heart(&mut self, host: usize, session: usize) {
        let now = self.moment(host);
        let state = &mut self.hosts[host].sessions[session];
        let Phase::Live(_) = state.phase else {
            return;
        };
        if state.beating.is_some() {
            return;
        }
        state.places.retain(|_, place| !place.is_over(now.boot));
        let due = state.places.iter_mut();
        let due: Vec<usize> = due
            .filter_map(|(name, place)| place.give_up(now.boot).then_some(*name))
            .collect();
        for name in due {
            let releases_until = None;
            self.end(
                host,
                Ending {
                    session,
                    name,
                    releases_until,
                },
            );
        }
        let state = &mut self.hosts[host].sessions[session];
        if !matches!(state.phase, Phase::Live(_)) || state.beating.is_some() {
            return;
        }
        let beat = match &state.pulse {
            Some(pulse) if !state.wanted => pulse.since.boot + nanos(pulse.ttl / 4),
            _ => 0,
        };
        let beat = beat.max(state.retry_at);
        if now.boot >= beat {
            state.wanted = false;
            return self.beat(host, session, 0);
        }
        let end = state.places.values().filter_map(Place::due).min();
        let wake = now.monotonic + beat.min(end.unwrap_or(u64::MAX)).saturating_sub(now.boot);
        if state.timer.is_none_or(|timer| wake < timer) {
            state.timer = Some(wake);
            self.after(host, wake - now.monotonic, Wake::Heart { session });
        }
    }

    /// Keeps the lease alive and finds out whether that counted.
    fn beat(&mut self, host: usize, session: usize, round: u32) {
        let since = self.moment(host);
        let before = self.hosts[host].links[KEEPER].witness;
        let state = &mut self.hosts[host].sessions[session];
        let Some(lease) = state.lease() else {
            return;
        };
        state.beating = Some(Beating {
            round,
            since,
            before,
            renewed: None,
            left: None,
        });
        let what = (
            Ask::KeepAlive { id: lease.id },
            0,
            self.beat_patience(host, session),
        );
        self.call(host, KEEPER, what, Call::KeepAlive { session });
    }

    fn beat_patience(&self, host: usize, session: usize) -> u64 {
        let ttl = self.hosts[host].sessions[session].asked.unsigned_abs() * SECOND;
        (ttl / 10).clamp(200 * MS, PATIENCE_MAX)
    }

    pub(super) fn kept_alive(
        &mut self,
        host: usize,
        session: usize,
        answer: &LeaseKeepAliveResponse,
    ) {
        let state = &mut self.hosts[host].sessions[session];
        if let (Some(beating), Phase::Live(lease)) = (&mut state.beating, &state.phase) {
            let witness = Witness::of(&answer.header.unwrap_or_default());
            beating.renewed = Some((witness, answer.ttl));
            let what = (
                Ask::TimeToLive { id: lease.id },
                0,
                self.beat_patience(host, session),
            );
            self.call(host, KEEPER, what, Call::Left { session });
        }
    }

    pub(super) fn left(&mut self, host: usize, session: usize, answer: LeaseTimeToLiveResponse) {
        let state = &mut self.hosts[host].sessions[session];
        if let (Some(beating), Phase::Live(lease)) = (&mut state.beating, &state.phase) {
            if let Some((_, ttl)) = beating.renewed.filter(|_| self.faults.keep_alive_alone) {
                let since = beating.since;
                state.beating = None;
                return self.beaten(host, session, since, ttl, answer);
            }
            beating.left = Some(answer);
            let read = Ask::Range(RangeRequest::one(&lease.canary));
            let what = (read, 0, self.beat_patience(host, session));
            self.call(host, KEEPER, what, Call::Read { session });
        }
    }

    pub(super) fn canary_read(&mut self, host: usize, session: usize, answer: &RangeResponse) {
        let now = self.moment(host);
        let faults = self.faults;
        let state = &mut self.hosts[host].sessions[session];
        let Some(Beating {
            round,
            since,
            before,
            renewed: Some((renewed, ttl)),
            left: Some(left),
        }) = state.beating.take()
        else {
            return;
        };
        let evidence = Evidence {
            before,
            renewed,
            alive: ttl > 0 && left.ttl > 0,
            read: Witness::of(&answer.header.unwrap_or_default()),
            canary: !answer.kvs.is_empty(),
        };
        match verdict(evidence) {
            Verdict::Renewed => {
                let since = if faults.from_the_answer { now } else { since };
                self.beaten(host, session, since, ttl, left);
            }
            Verdict::Gone => self.end_session(host, session),
            Verdict::Again if round + 1 < ROUNDS => self.beat(host, session, round + 1),
            Verdict::Again => self.beat_failed(host, session),
        }
    }

    /// A beat counts.
    fn beaten(
        &mut self,
        host: usize,
        session: usize,
        since: Moment,
        ttl: i64,
        left: LeaseTimeToLiveResponse,
    ) {
        let state = &mut self.hosts[host].sessions[session];
        state.retry_at = 0;
        state.failing = false;
        state.pulse = Some(Pulse {
            since,
            ttl: Duration::from_secs(ttl.unsigned_abs()),
            keys: Arc::new(left.keys.into_iter().collect()),
        });
        self.session_changed(host, session);
    }

    pub(super) fn beat_failed(&mut self, host: usize, session: usize) {
        let now = self.moment(host);
        let state = &mut self.hosts[host].sessions[session];
        if !matches!(state.phase, Phase::Live(_)) {
            return;
        }
        state.beating = None;
        state.failures += 1;
        let first = !std::mem::replace(&mut state.failing, true);
        let ttl = state.asked.unsigned_abs() * SECOND;
        state.retry_at = now.boot + (ttl / 24).min(SECOND);
        if first {
            self.tell_all(host, session);
        }
        self.session_changed(host, session);
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

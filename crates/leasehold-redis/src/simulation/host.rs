//! A client process: its connections, its subscription, the calls that are under way, and the releases it
//! does in the background.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_testkit::sim::{Clock, Connection, MS, Machine, SECOND};
use redis::Value;

use super::client::Trying;
use super::lua::Script;
use super::world::{Ask, Event, Request, World, name_of, nanos};
use crate::keys::Keys;
use crate::renewer::millis;
use crate::reply::Message;

#[derive(Debug)]
pub(super) struct Host {
    pub(super) machine: Machine,
    pub(super) channel: String,
    grants: Option<Connection>,
    renewals: Option<Connection>,
    listening: Listening,
    /// The calls without an answer, with their connections.
    pub(super) calls: BTreeMap<u64, (Connection, Call)>,
    releases: Vec<Releasing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listening {
    Off,
    Connecting(Connection),
    On(Connection),
}

/// What a call was for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Try { client: usize },
    Renew { client: usize },
    Release { host: usize, release: usize },
    Set { poller: usize },
    Delete,
}

/// Which of a process's connections.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pipe {
    Grants,
    Renewals,
}

/// What a timer was set for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wake {
    /// The client's state is to be left, if it is still that one.
    Client {
        client: usize,
        epoch: u64,
    },
    /// The attempt is given up.
    GiveUp {
        client: usize,
        attempt: u64,
    },
    /// The hold is looked after.
    Keep {
        client: usize,
        attempt: u64,
    },
    /// The work is done.
    Done {
        client: usize,
        attempt: u64,
    },
    /// A renewal went unanswered.
    RenewalOver {
        client: usize,
        call: u64,
    },
    Release {
        host: usize,
        release: usize,
        call: u64,
    },
    Subscribe,
    Poll {
        poller: usize,
        epoch: u64,
    },
}

/// A release that goes on until its answer is definite.
#[derive(Clone, Debug)]
pub(super) struct Releasing {
    pub(super) name: usize,
    pub(super) owner: String,
    token: String,
    pub(super) tombstone: Duration,
    pub(super) ttl: Duration,
    pub(super) keep: Duration,
    /// Boot time when it is given up, because the store has ended it by itself.
    until: u64,
    /// The call under way, or the newest.
    call: u64,
    done: bool,
}

impl Releasing {
    pub(super) fn of(name: usize, attempt: Trying, ttl: Duration) -> Self {
        Self {
            name,
            owner: attempt.owner,
            token: attempt.token,
            tombstone: attempt.tombstone,
            ttl,
            keep: Duration::ZERO,
            until: 0,
            call: 0,
            done: false,
        }
    }
}

impl Host {
    pub(super) fn new(at: usize, clock: Clock) -> Self {
        Self {
            machine: Machine::new(clock),
            channel: format!("leasehold:c:{at}"),
            grants: None,
            renewals: None,
            listening: Listening::Off,
            calls: BTreeMap::new(),
            releases: Vec::new(),
        }
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        let listening = match self.listening {
            Listening::Off => None,
            Listening::Connecting(connection) | Listening::On(connection) => Some(connection),
        };
        [self.grants, self.renewals, listening]
            .into_iter()
            .flatten()
            .collect()
    }

    pub(super) fn listens(&self) -> bool {
        matches!(self.listening, Listening::On(_))
    }

    pub(super) fn listens_on(&self, connection: Connection) -> bool {
        self.listening == Listening::On(connection)
            || self.listening == Listening::Connecting(connection)
    }

    /// A call went unanswered: the next one gets another connection.
    pub(super) fn give_up_connection(&mut self, connection: Connection) {
        for pipe in [&mut self.grants, &mut self.renewals] {
            if *pipe == Some(connection) {
                *pipe = None;
            }
        }
    }
}

impl World<'_> {
    /// Sends a request; its number, or none where no connection could be had.
    pub(super) fn call(&mut self, host: usize, pipe: Pipe, ask: Ask, what: Call) -> Option<u64> {
        let connection = {
            let state = &mut self.hosts[host];
            let pipe = match pipe {
                Pipe::Grants => &mut state.grants,
                Pipe::Renewals => &mut state.renewals,
            };
            match *pipe {
                Some(connection) => connection,
                None if self.server.down_until > self.queue.now() => return None,
                None => *pipe.insert(self.network.connect()),
            }
        };
        self.calls += 1;
        let call = self.calls;
        self.hosts[host].calls.insert(call, (connection, what));
        // A stream carries nothing twice, and a client doesn't send a try again under its old number.
        let again = !matches!(
            &ask,
            Ask::Script {
                script: Script::Acquire,
                ..
            } | Ask::Set { .. }
        );
        self.send(host, connection, call, ask, again);
        Some(call)
    }

    fn send(&mut self, host: usize, connection: Connection, call: u64, ask: Ask, again: bool) {
        let now = self.now();
        let fate = self.network.send(&mut self.rng, now, connection, false);
        let request = Request {
            host,
            connection,
            call,
            ask,
        };
        let again = fate.again.filter(|_| again);
        for at in fate.arrives.into_iter().chain(again) {
            self.queue.push(at, Event::Serve(request.clone()));
        }
        if fate.broke {
            self.breaks(host, connection);
        }
    }

    pub(super) fn answered(&mut self, call: Call, value: Value) {
        match call {
            Call::Try { client } => self.try_answered(client, value),
            Call::Renew { client } => self.renewal_answered(client, &value),
            Call::Release { host, release } => self.release_answered(host, release, &value),
            Call::Set { poller } => self.set_answered(poller, &value),
            Call::Delete => {}
        }
    }

    pub(super) fn broken(&mut self, host: usize, connection: Connection) {
        self.hosts[host].give_up_connection(connection);
        if self.hosts[host].listens_on(connection) {
            self.hosts[host].listening = Listening::Off;
            self.after(host, 20 * MS, Wake::Subscribe);
        }
        let failed: Vec<u64> = self.hosts[host]
            .calls
            .iter()
            .filter(|(_, (of, _))| *of == connection)
            .map(|(call, _)| *call)
            .collect();
        for call in failed {
            let Some((_, what)) = self.hosts[host].calls.remove(&call) else {
                continue;
            };
            match what {
                Call::Try { client } => self.try_failed(client),
                Call::Renew { client } => self.renewal_failed(client),
                Call::Release { host, release } => self.release_failed(host, release),
                Call::Set { poller } => self.poll_later(poller),
                Call::Delete => {}
            }
        }
    }

    pub(super) fn wake(&mut self, host: usize, wake: Wake) {
        match wake {
            Wake::Client { client, epoch } => self.client_timer(client, epoch),
            Wake::GiveUp { client, attempt } => self.give_up(client, attempt),
            Wake::Keep { client, attempt } => self.keep(client, attempt),
            Wake::Done { client, attempt } => self.work_done(client, attempt),
            Wake::RenewalOver { client, call } => {
                if self.hosts[host].calls.remove(&call).is_some() {
                    self.renewal_failed(client);
                }
            }
            Wake::Release {
                host,
                release,
                call,
            } => self.release_timer(host, release, call),
            Wake::Subscribe => self.subscribe(host),
            Wake::Poll { poller, epoch } => self.poll(poller, epoch),
        }
    }

    /// Starts the subscription unless it stands or is under way.
    pub(super) fn subscribe(&mut self, host: usize) {
        if self.hosts[host].listening != Listening::Off {
            return;
        }
        if self.server.down_until > self.now() {
            return self.after(host, 50 * MS, Wake::Subscribe);
        }
        let connection = self.network.connect();
        self.hosts[host].listening = Listening::Connecting(connection);
        self.send(host, connection, 0, Ask::Subscribe, false);
        // A subscription that isn't confirmed is given up.
        if self.network.broken(connection) {
            self.breaks(host, connection);
        }
    }

    pub(super) fn subscribed(&mut self, host: usize, connection: Connection) {
        if self.hosts[host].listening != Listening::Connecting(connection) {
            return;
        }
        self.hosts[host].listening = Listening::On(connection);
        // What was published meanwhile is lost: everyone looks for himself.
        for client in 0..self.clients.len() {
            if self.clients[client].habits.machine == host {
                self.mail(client, None);
            }
        }
    }

    pub(super) fn told(&mut self, host: usize, connection: Connection, payload: &str) {
        if self.hosts[host].listening != Listening::On(connection) {
            return;
        }
        let Some(message) = Message::parse(payload) else {
            return self.violated(format!("the channel says {payload:?}"));
        };
        let owner = message.owner().to_hex();
        let of = |client: &super::client::Client| {
            client.habits.machine == host && client.owner() == Some(&owner)
        };
        if let Some(client) = self.clients.iter().position(of) {
            self.mail(client, Some(message));
        }
    }

    /// Releases in the background, as the core does for whoever let go of an attempt or a hold.
    pub(super) fn release(&mut self, host: usize, mut release: Releasing) {
        release.until = self.moment(host).boot + nanos(release.ttl) * 2 + SECOND;
        self.hosts[host].releases.push(release);
        self.release_now(host, self.hosts[host].releases.len() - 1);
    }

    fn release_now(&mut self, host: usize, at: usize) {
        let release = self.hosts[host].releases[at].clone();
        if release.done || self.moment(host).boot > release.until {
            return;
        }
        let owner = release.owner.parse().expect("owners are hexadecimal");
        let name = name_of(release.name);
        let keys = self.keys[release.name].clone();
        let ask = Ask::Script {
            script: Script::Release,
            keys: vec![
                keys.lock,
                keys.counter,
                keys.queue,
                keys.waiters,
                Keys::tombstone(&name, owner),
                Keys::broken(&name),
            ],
            args: vec![
                release.owner,
                millis(release.keep).to_string(),
                millis(release.tombstone).to_string(),
                u8::from(self.scenario.always_hand_over).to_string(),
                release.token,
            ],
        };
        let call = self.call(host, Pipe::Grants, ask, Call::Release { host, release: at });
        let call = call.unwrap_or(0);
        self.hosts[host].releases[at].call = call;
        let wait = if call == 0 {
            50 * MS
        } else {
            (nanos(release.ttl) / 3).max(self.scenario.base / 3)
        };
        let wake = Wake::Release {
            host,
            release: at,
            call,
        };
        self.after(host, wait, wake);
    }

    fn release_timer(&mut self, host: usize, at: usize, call: u64) {
        if self.hosts[host].releases[at].call != call {
            return;
        }
        if let Some((connection, _)) = self.hosts[host].calls.remove(&call) {
            self.hosts[host].give_up_connection(connection);
        }
        self.release_now(host, at);
    }

    fn release_failed(&mut self, host: usize, at: usize) {
        self.hosts[host].releases[at].call = 0;
        let wake = Wake::Release {
            host,
            release: at,
            call: 0,
        };
        self.after(host, 20 * MS, wake);
    }

    fn release_answered(&mut self, host: usize, at: usize, value: &Value) {
        let release = &mut self.hosts[host].releases[at];
        release.done = true;
        release.call = u64::MAX;
        let owner = release.owner.clone();
        match value {
            Value::BulkString(text)
                if matches!(
                    text.as_slice(),
                    b"freed" | b"expired" | b"another" | b"broken"
                ) => {}
            other => return self.violated(format!("a release was answered {other:?}")),
        }
        self.released.insert(owner);
    }
}

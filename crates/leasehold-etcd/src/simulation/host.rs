//! A client process: its links to the cluster, and the calls that are under way.

use std::collections::BTreeMap;
use std::fmt;

use leasehold_core::Name;
use leasehold_testkit::sim::{Clock, Connection, MS, Machine, Network};

use super::ends::Ending;
use super::feed::Feed;
use super::session::Session;
use super::world::{Request, World};
use crate::beat::Witness;
use crate::wire::{
    Answer as _, Header, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseTimeToLiveResponse,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};

/// Grants and releases go over one link, sessions and watches over the other.
pub(super) const GRANTS: usize = 0;
pub(super) const KEEPER: usize = 1;

/// How long one member may take to answer a try or a look.
pub(super) const PATIENCE: u64 = 1500 * MS;

#[derive(Clone, Debug)]
pub(super) enum Ask {
    Txn(TxnRequest),
    Range(RangeRequest),
    Grant { ttl: i64 },
    KeepAlive { id: i64 },
    TimeToLive { id: i64 },
    Watch { id: i64, name: Name },
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Txn(TxnResponse),
    Range(RangeResponse),
    Granted(LeaseGrantResponse),
    KeptAlive(LeaseKeepAliveResponse),
    Left(LeaseTimeToLiveResponse),
    LeaseGone,
}

/// Whose call it is.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Try {
        client: usize,
    },
    Look {
        client: usize,
    },
    IsThere {
        client: usize,
    },
    End(Ending),
    /// A session's lease, its canary, and the three parts of a beat.
    Begin {
        session: usize,
    },
    Canary {
        session: usize,
        lease: LeaseGrantResponse,
    },
    KeepAlive {
        session: usize,
    },
    Left {
        session: usize,
    },
    Read {
        session: usize,
    },
    /// A queue, for this watch.
    Queue {
        watch: i64,
    },
}

/// What a timer is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wake {
    Client { client: usize, epoch: u64 },
    GiveUp { client: usize, attempt: u64 },
    Keep { client: usize, attempt: u64 },
    Done { client: usize, attempt: u64 },
    RenewalOver { client: usize, renewal: u64 },
    Late { call: u64 },
    Heart { session: usize },
    Again { ending: Ending },
    Reopen,
    Reread { watch: i64 },
}

#[derive(Clone, Debug)]
struct Pending {
    link: usize,
    generation: u64,
    connection: Connection,
    patience: u64,
    /// How many members may still be turned to.
    left: u32,
    ask: Ask,
    call: Call,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) at: usize,
    connection: Connection,
    generation: u64,
    pub(super) witness: Option<Witness>,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) machine: Machine,
    pub(super) links: [Link; 2],
    calls: BTreeMap<u64, Pending>,
    pub(super) sessions: Vec<Session>,
    pub(super) feed: Feed,
}

impl Host {
    pub(super) fn new(clock: Clock, at: usize, network: &mut Network) -> Self {
        let mut link = || Link {
            at,
            connection: network.connect(),
            generation: 0,
            witness: None,
        };
        Self {
            machine: Machine::new(clock),
            links: [link(), link()],
            calls: BTreeMap::new(),
            sessions: Vec::new(),
            feed: Feed::default(),
        }
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        let links = self.links.iter().map(|link| link.connection);
        links.chain(self.feed.connection()).collect()
    }

    pub(super) fn connections_to(&self, member: usize) -> Vec<Connection> {
        let links = self.links.iter().filter(|link| link.at == member);
        let links = links.map(|link| link.connection);
        links.chain(self.feed.connection_to(member)).collect()
    }

    /// Nobody waits for a client's answers any more.
    pub(super) fn forget_calls_of(&mut self, client: usize) {
        self.calls.retain(|_, pending| match pending.call {
            Call::Try { client: of } | Call::Look { client: of } | Call::IsThere { client: of } => {
                of != client
            }
            _ => true,
        });
    }
}

impl World {
    /// Sends a request; without an answer it turns to `left` more members.
    pub(super) fn call(
        &mut self,
        host: usize,
        link: usize,
        (ask, left, patience): (Ask, u32, u64),
        call: Call,
    ) {
        self.calls += 1;
        let number = self.calls;
        let on = &self.hosts[host].links[link];
        let (member, connection, generation) = (on.at, on.connection, on.generation);
        let pending = Pending {
            link,
            generation,
            connection,
            patience,
            left,
            ask: ask.clone(),
            call,
        };
        self.hosts[host].calls.insert(number, pending);
        self.after(host, patience, Wake::Late { call: number });
        let sent = self.now();
        self.send(Request {
            host,
            member,
            connection,
            call: number,
            sent,
            ask,
        });
    }

    pub(super) fn call_answered(&mut self, host: usize, call: u64, answer: Answer) {
        let Some(pending) = self.hosts[host].calls.remove(&call) else {
            return;
        };
        if let Some(header) = answer.header() {
            self.hosts[host].links[pending.link].witness = Some(Witness::of(&header));
        }
        match (pending.call, answer) {
            (Call::Try { client }, answer) => self.try_answered(client, &answer),
            (Call::Look { client }, Answer::Txn(answer)) => self.looked(client, &answer),
            (Call::IsThere { client }, Answer::Range(found)) => self.is_there(client, &found),
            (Call::End(ending), answer) => self.end_answered(host, ending, &answer),
            (Call::Begin { session }, Answer::Granted(lease)) => {
                self.lease_granted(host, session, lease);
            }
            (Call::Canary { session, lease }, answer) => {
                self.canary_written(host, session, &lease, &answer);
            }
            (Call::KeepAlive { session }, Answer::KeptAlive(answer)) => {
                self.kept_alive(host, session, &answer);
            }
            (Call::Left { session }, Answer::Left(answer)) => {
                self.left(host, session, answer);
            }
            (Call::Read { session }, Answer::Range(answer)) => {
                self.canary_read(host, session, &answer);
            }
            (Call::Queue { watch }, Answer::Range(found)) => self.queue_read(host, watch, &found),
            (call, answer) => self.violated(format!("{call:?} was answered {answer}")),
        }
    }

    /// No answer came, or its connection ended.
    fn call_failed(&mut self, host: usize, call: u64) {
        let Some(mut pending) = self.hosts[host].calls.remove(&call) else {
            return;
        };
        self.turn_away(host, pending.link, Some(pending.generation));
        let goes_on = pending.left > 0
            && match pending.call {
                Call::Try { client } => self.place_sends(client),
                _ => true,
            };
        if goes_on {
            pending.left -= 1;
            let what = (pending.ask, pending.left, pending.patience);
            return self.call(host, pending.link, what, pending.call);
        }
        match pending.call {
            Call::Try { client } | Call::Look { client } => self.outage(client),
            Call::IsThere { client } => self.renewal_failed(client),
            Call::End(ending) => self.end_failed(host, ending),
            Call::Begin { session } | Call::Canary { session, .. } => {
                self.session_failed(host, session);
            }
            Call::KeepAlive { session } | Call::Left { session } | Call::Read { session } => {
                self.beat_failed(host, session);
            }
            Call::Queue { watch } => self.after(host, 50 * MS, Wake::Reread { watch }),
        }
    }

    /// The next member for what comes, with a new connection; none where one was chosen since.
    pub(super) fn turn_away(&mut self, host: usize, link: usize, generation: Option<u64>) {
        let members = self.cluster.members.len();
        let link = &mut self.hosts[host].links[link];
        if generation.is_none_or(|generation| generation == link.generation) {
            link.at = (link.at + 1) % members;
            link.generation += 1;
            link.connection = self.network.connect();
        }
    }

    pub(super) fn broken(&mut self, host: usize, connection: Connection) {
        if self.hosts[host].feed.is_on(connection) {
            return self.stream_broke(host);
        }
        let calls = self.hosts[host].calls.iter();
        let broken: Vec<u64> = calls
            .filter(|(_, pending)| pending.connection == connection)
            .map(|(call, _)| *call)
            .collect();
        for call in broken {
            self.call_failed(host, call);
        }
    }

    pub(super) fn wake(&mut self, host: usize, wake: Wake) {
        match wake {
            Wake::Client { client, epoch } => self.client_timer(client, epoch),
            Wake::GiveUp { client, attempt } => self.give_up(client, attempt),
            Wake::Keep { client, attempt } => self.keep(client, attempt),
            Wake::Done { client, attempt } => self.work_done(client, attempt),
            Wake::RenewalOver { client, renewal } => self.renewal_over(client, renewal),
            Wake::Late { call } => self.call_failed(host, call),
            Wake::Heart { session } => {
                self.hosts[host].sessions[session].timer = None;
                self.heart(host, session);
            }
            Wake::Again { ending } => self.end(host, ending),
            Wake::Reopen => self.open_stream(host),
            Wake::Reread { watch } => self.read_queue(host, watch),
        }
    }
}

impl Answer {
    pub(super) fn head(&mut self, header: Header) {
        match self {
            Self::Txn(answer) => answer.header = Some(header),
            Self::Range(answer) => answer.header = Some(header),
            Self::Granted(answer) => answer.header = Some(header),
            Self::KeptAlive(answer) => answer.header = Some(header),
            Self::Left(answer) => answer.header = Some(header),
            Self::LeaseGone => {}
        }
    }

    fn header(&self) -> Option<Header> {
        match self {
            Self::Txn(answer) => answer.header(),
            Self::Range(answer) => answer.header(),
            Self::Granted(answer) => answer.header(),
            Self::KeptAlive(answer) => answer.header(),
            Self::Left(answer) => answer.header(),
            Self::LeaseGone => None,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Txn(answer) => write!(f, "transaction, succeeded: {}", answer.succeeded),
            Self::Range(answer) => write!(f, "{} keys", answer.kvs.len()),
            Self::Granted(answer) => write!(f, "lease {:x}", answer.id),
            Self::KeptAlive(answer) => write!(f, "kept alive for {} s", answer.ttl),
            Self::Left(answer) => write!(f, "{} s left", answer.ttl),
            Self::LeaseGone => f.write_str("no such lease"),
        }
    }
}

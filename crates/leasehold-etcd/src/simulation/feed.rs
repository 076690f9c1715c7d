//! A process's watches: what [`crate::feed`] does around the queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_testkit::sim::{Connection, MS};

use super::host::{Ask, Call, KEEPER, Wake};
use super::world::{Request, World};
use crate::keys;
use crate::queue::Queue;
use crate::wire::{Event, RangeResponse};
use leasehold_core::session::Mailbox;

/// How long a queue may take to be read.
const PATIENCE: u64 = 3000 * MS;
const PAUSE: u64 = 50 * MS;

#[derive(Debug, Default)]
pub(super) struct Feed {
    /// The stream and the member it goes to.
    stream: Option<(Connection, usize)>,
    locks: BTreeMap<usize, Watched>,
    names: BTreeMap<i64, usize>,
    last: i64,
}

#[derive(Debug)]
struct Watched {
    watch: i64,
    queue: Queue,
    /// By place: the mailbox, and the client that it is the mailbox of.
    mailboxes: BTreeMap<i64, (Arc<Mailbox>, usize)>,
}

impl Feed {
    pub(super) fn is_on(&self, connection: Connection) -> bool {
        self.connection() == Some(connection)
    }

    pub(super) fn connection(&self) -> Option<Connection> {
        self.stream.map(|(connection, _)| connection)
    }

    pub(super) fn connection_to(&self, member: usize) -> Option<Connection> {
        let stream = self.stream.filter(|(_, to)| *to == member);
        stream.map(|(connection, _)| connection)
    }

    pub(super) fn leave(&mut self, name: usize, place: i64) {
        if let Some(watched) = self.locks.get_mut(&name) {
            watched.queue.leave(place);
            watched.mailboxes.remove(&place);
        }
    }
}

impl World {
    /// Has a client told of what becomes of its place.
    pub(super) fn join_feed(
        &mut self,
        client: usize,
        name: usize,
        place: i64,
        mailbox: Arc<Mailbox>,
    ) {
        let host = self.clients[client].habits.machine;
        let feed = &mut self.hosts[host].feed;
        let is_new = !feed.locks.contains_key(&name);
        let lock = self.names[name].clone();
        let watched = feed.locks.entry(name).or_insert_with(|| Watched {
            watch: 0,
            queue: Queue::new(lock),
            mailboxes: BTreeMap::new(),
        });
        if watched.queue.join(place) {
            mailbox.put();
        }
        watched.mailboxes.insert(place, (mailbox, client));
        if feed.stream.is_none() {
            self.open_stream(host);
        } else if is_new {
            self.watch(host, name);
        }
    }

    pub(super) fn open_stream(&mut self, host: usize) {
        if self.hosts[host].feed.stream.is_some() {
            return;
        }
        let member = self.hosts[host].links[KEEPER].at;
        let connection = self.network.connect();
        let feed = &mut self.hosts[host].feed;
        feed.stream = Some((connection, member));
        let names: Vec<usize> = feed.locks.keys().copied().collect();
        for name in names {
            self.watch(host, name);
        }
    }

    pub(super) fn stream_broke(&mut self, host: usize) {
        let feed = &mut self.hosts[host].feed;
        feed.stream = None;
        feed.names.clear();
        for watched in feed.locks.values_mut() {
            watched.queue.lose();
        }
        self.turn_away(host, KEEPER, None);
        self.after(host, PAUSE, Wake::Reopen);
        for session in 0..self.hosts[host].sessions.len() {
            self.hosts[host].sessions[session].wanted = true;
            self.tell_all(host, session);
            self.heart(host, session);
        }
    }

    fn watch(&mut self, host: usize, name: usize) {
        let feed = &mut self.hosts[host].feed;
        let (Some((connection, member)), Some(watched)) = (feed.stream, feed.locks.get_mut(&name))
        else {
            return;
        };
        feed.last += 1;
        watched.watch = feed.last;
        watched.queue.lose();
        feed.names.insert(feed.last, name);
        let ask = Ask::Watch {
            id: feed.last,
            name: self.names[name].clone(),
        };
        let sent = self.now();
        self.send(Request {
            host,
            member,
            connection,
            call: 0,
            sent,
            ask,
        });
    }

    /// A watch was created, or tells of events.
    pub(super) fn watched(&mut self, host: usize, id: i64, events: Option<Vec<Event>>) {
        let feed = &mut self.hosts[host].feed;
        let Some(name) = feed.names.get(&id) else {
            return;
        };
        let Some(events) = events else {
            return self.read_queue(host, id);
        };
        let Some(watched) = feed.locks.get_mut(name) else {
            return;
        };
        let mut tell = Vec::new();
        for event in events {
            tell.extend(watched.queue.event(event));
        }
        let told = watched.tell(&tell);
        self.mail_all(&told);
    }

    pub(super) fn read_queue(&mut self, host: usize, watch: i64) {
        let Some(name) = self.hosts[host].feed.names.get(&watch) else {
            return;
        };
        let ask = Ask::Range(keys::oldest(&self.names[*name], 0));
        self.call(host, KEEPER, (ask, 2, PATIENCE), Call::Queue { watch });
    }

    pub(super) fn queue_read(&mut self, host: usize, watch: i64, found: &RangeResponse) {
        let feed = &mut self.hosts[host].feed;
        let name = feed.names.get(&watch);
        if let Some(watched) = name.and_then(|name| feed.locks.get_mut(name))
            && watched.watch == watch
        {
            let revision = found.header.unwrap_or_default().revision;
            let tell = watched.queue.read(revision, &found.kvs);
            let told = watched.tell(&tell);
            self.mail_all(&told);
        }
    }

    fn mail_all(&mut self, clients: &[usize]) {
        for client in clients {
            self.mail(*client);
        }
    }
}

impl Watched {
    /// Tells places; answers whose they are.
    fn tell(&self, places: &[i64]) -> Vec<usize> {
        let found = places.iter().filter_map(|place| self.mailboxes.get(place));
        found
            .map(|(mailbox, client)| {
                mailbox.put();
                *client
            })
            .collect()
    }
}

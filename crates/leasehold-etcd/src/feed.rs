//! The process's one stream of watches: a watch for each lock that somebody here waits for.
//!
//! It runs on the keeper's thread, so that a caller that blocks its runtime still hears. A watch stays open for a
//! while after its last user: opening one costs two round trips. When the stream breaks, every session is told.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream;
use leasehold_core::session::Mailbox;
use leasehold_core::{Name, Result, background};
use tokio::sync::mpsc;
use tonic::Streaming;

use crate::keys::{self, FAMILY};
use crate::link::Link;
use crate::queue::Queue;
use crate::session::Pool;
use crate::wire::{
    KeyValue, RangeResponse, WatchCancelRequest, WatchCreateRequest, WatchOrder, WatchRequest,
    WatchResponse,
};

/// How long the server may take to open the stream or to read a queue.
const PATIENCE: Duration = Duration::from_secs(3);
/// The pause before the next try, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often watches that nobody uses are looked for; they stay open for one to two times as long.
const SWEEP: Duration = Duration::from_secs(10);

/// The watch that the stream begins with, because a server answers nothing before the first. Nothing ever happens to
/// its key.
const IDLE_WATCH: i64 = 1;

#[derive(Clone, Debug)]
pub(crate) struct Feed {
    orders: mpsc::UnboundedSender<Order>,
    watched: Names,
}

/// The names that have a watch.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<HashSet<Name>>>);

impl Names {
    fn lock(&self) -> MutexGuard<'_, HashSet<Name>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
enum Order {
    Join(Name, i64, Arc<Mailbox>),
    Leave(Name, i64),
}

impl Feed {
    /// Starts on the keeper's thread; ends with the last of its clones and registrations. When the stream breaks, the
    /// pool's sessions are disturbed.
    pub(crate) fn start(link: Arc<Link>, pool: Weak<Pool>) -> Result<Self> {
        let (orders, received) = mpsc::unbounded_channel();
        let watched = Names::default();
        background::spawn(run(link, received, pool, watched.clone()))?;
        Ok(Self { orders, watched })
    }

    /// Whether somebody of this process has waited for this lock a moment ago.
    pub(crate) fn watches(&self, name: &Name) -> bool {
        self.watched.lock().contains(name)
    }

    /// Has `mailbox` told of what becomes of the place made at this revision.
    pub(crate) fn join(&self, name: &Name, place: i64, mailbox: Arc<Mailbox>) -> Registration {
        // Without a feed there is no keeper, and nobody to be told.
        let _ = self.orders.send(Order::Join(name.clone(), place, mailbox));
        Registration {
            orders: self.orders.clone(),
            name: name.clone(),
            place,
        }
    }
}

/// Ends when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    orders: mpsc::UnboundedSender<Order>,
    name: Name,
    place: i64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = self
            .orders
            .send(Order::Leave(self.name.clone(), self.place));
    }
}

async fn run(
    link: Arc<Link>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    pool: Weak<Pool>,
    watched: Names,
) {
    let (read, mut reads) = mpsc::unbounded_channel();
    let mut desk = Desk::new(link.clone(), read, watched);
    let mut pause = PAUSE;
    loop {
        let (to_server, mut sent) = mpsc::unbounded_channel();
        let requests = stream::poll_fn(move |context| sent.poll_recv(context));
        let _ = to_server.send(create(
            IDLE_WATCH,
            format!("{FAMILY}idle").into(),
            Vec::new(),
        ));
        match link.watch(requests, PATIENCE).await {
            Err(failure) => tracing::debug!(?failure, "the watch can't be opened"),
            Ok(mut answers) => {
                pause = PAUSE;
                desk.open(to_server);
                if !serve(&mut desk, &mut answers, &mut orders, &mut reads).await {
                    return;
                }
                desk.lose();
                link.turn_away();
                if let Some(pool) = pool.upgrade() {
                    pool.disturb();
                }
            }
        }
        if orders.is_closed() && orders.is_empty() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Serves one stream until it breaks; false when nobody wants it any more.
async fn serve(
    desk: &mut Desk,
    answers: &mut Streaming<WatchResponse>,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    reads: &mut mpsc::UnboundedReceiver<Read>,
) -> bool {
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => desk.obey(order),
                None => return false,
            },
            answer = answers.message() => match answer {
                Ok(Some(answer)) => {
                    if let Err(failure) = desk.link.believe(answer.header) {
                        tracing::warn!(?failure, "the watch is given up");
                        return true;
                    }
                    desk.answer(answer);
                }
                Ok(None) => return true,
                Err(status) => {
                    tracing::debug!(%status, "the watch broke");
                    return true;
                }
            },
            Some(read) = reads.recv() => desk.read(read),
            _ = sweep.tick() => desk.sweep(),
        }
    }
}

/// A queue was read, for this watch.
struct Read {
    watch: i64,
    kvs: Vec<KeyValue>,
    revision: i64,
}

/// The watches there are.
struct Desk {
    link: Arc<Link>,
    to_server: Option<mpsc::UnboundedSender<WatchRequest>>,
    reader: mpsc::UnboundedSender<Read>,
    locks: HashMap<Name, Watched>,
    /// The names of `locks`, for whoever asks.
    watched: Names,
    names: HashMap<i64, Name>,
    last: i64,
}

struct Watched {
    watch: i64,
    queue: Queue,
    mailboxes: HashMap<i64, Arc<Mailbox>>,
    /// Unused at the last sweep too.
    idle: bool,
}

impl Desk {
    fn new(link: Arc<Link>, reader: mpsc::UnboundedSender<Read>, watched: Names) -> Self {
        Self {
            link,
            to_server: None,
            reader,
            locks: HashMap::new(),
            watched,
            names: HashMap::new(),
            last: IDLE_WATCH,
        }
    }

    fn open(&mut self, to_server: mpsc::UnboundedSender<WatchRequest>) {
        self.to_server = Some(to_server);
        let names: Vec<Name> = self.locks.keys().cloned().collect();
        for name in names {
            self.watch(&name);
        }
    }

    fn lose(&mut self) {
        self.to_server = None;
        self.names.clear();
        for watched in self.locks.values_mut() {
            watched.queue.lose();
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Join(name, place, mailbox) => {
                let is_new = !self.locks.contains_key(&name);
                let watched = self.locks.entry(name.clone()).or_insert_with(|| Watched {
                    watch: 0,
                    queue: Queue::new(name.clone()),
                    mailboxes: HashMap::new(),
                    idle: false,
                });
                watched.idle = false;
                if watched.queue.join(place) {
                    mailbox.put();
                }
                watched.mailboxes.insert(place, mailbox);
                if is_new {
                    self.watch(&name);
                    self.watched.lock().insert(name);
                }
            }
            Order::Leave(name, place) => {
                if let Some(watched) = self.locks.get_mut(&name) {
                    watched.queue.leave(place);
                    watched.mailboxes.remove(&place);
                }
            }
        }
    }

    /// Opens the watch of a lock, or opens it anew.
    fn watch(&mut self, name: &Name) {
        let (Some(to_server), Some(watched)) = (&self.to_server, self.locks.get_mut(name)) else {
            return;
        };
        self.last += 1;
        watched.watch = self.last;
        watched.queue.lose();
        self.names.insert(self.last, name.clone());
        let (from, to) = keys::under(name);
        // Fails where the stream has broken; then all are opened anew.
        let _ = to_server.send(create(self.last, from, to));
    }

    fn answer(&mut self, answer: WatchResponse) {
        let Some(name) = self.names.get(&answer.watch_id).cloned() else {
            return;
        };
        if answer.canceled {
            // Fell behind a compaction, or refused.
            tracing::debug!(%name, reason = answer.cancel_reason, compacted = answer.compact_revision, "watch cancelled");
            self.names.remove(&answer.watch_id);
            self.watch(&name);
            return;
        }
        if answer.created {
            self.start_reading(answer.watch_id, name);
            return;
        }
        if let Some(watched) = self.locks.get_mut(&name) {
            for event in answer.events {
                let tell = watched.queue.event(event);
                watched.tell(&tell);
            }
        }
    }

    /// Reads a queue whose watch is open.
    fn start_reading(&self, watch: i64, name: Name) {
        let (link, reader) = (self.link.clone(), self.reader.clone());
        tokio::spawn(async move {
            let mut pause = PAUSE;
            while !reader.is_closed() {
                match link.ask(keys::oldest(&name, 0), PATIENCE).await {
                    Ok(RangeResponse { header, kvs, .. }) => {
                        let revision = header.unwrap_or_default().revision;
                        let _ = reader.send(Read {
                            watch,
                            kvs,
                            revision,
                        });
                        return;
                    }
                    Err(failure) => {
                        tracing::debug!(?failure, %name, "the queue can't be read; again")
                    }
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        });
    }

    fn read(&mut self, read: Read) {
        let name = self.names.get(&read.watch);
        // A read for a watch that is no more says nothing about the one after it.
        if let Some(watched) = name.and_then(|name| self.locks.get_mut(name))
            && watched.watch == read.watch
        {
            let tell = watched.queue.read(read.revision, &read.kvs);
            watched.tell(&tell);
        }
    }

    /// Closes the watches that nobody has used since the last time.
    fn sweep(&mut self) {
        let to_server = &self.to_server;
        let names = &mut self.names;
        let mut known = self.watched.lock();
        self.locks.retain(|name, watched| {
            if !watched.queue.is_unused() {
                return true;
            }
            if !watched.idle {
                watched.idle = true;
                return true;
            }
            names.remove(&watched.watch);
            known.remove(name);
            if let Some(to_server) = to_server {
                let cancel = WatchCancelRequest {
                    watch_id: watched.watch,
                };
                let _ = to_server.send(WatchRequest {
                    order: Some(WatchOrder::Cancel(cancel)),
                });
            }
            false
        });
    }
}

impl Watched {
    fn tell(&self, places: &[i64]) {
        for place in places {
            if let Some(mailbox) = self.mailboxes.get(place) {
                mailbox.put();
            }
        }
    }
}

fn create(watch_id: i64, key: Vec<u8>, range_end: Vec<u8>) -> WatchRequest {
    let create = WatchCreateRequest {
        key,
        range_end,
        watch_id,
    };
    WatchRequest {
        order: Some(WatchOrder::Create(create)),
    }
}

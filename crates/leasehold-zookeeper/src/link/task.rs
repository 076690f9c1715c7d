//! What keeps a session's connection, and sends and receives on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::clock::{self, Moment};
use leasehold_core::session::Mailbox;
use tokio::sync::mpsc;

use super::connection::{self, Connection, Stream};
use super::{Facts, Order, Reply, lock, unreachable};
use crate::config::Config;
use crate::error::{self, Failure};
use crate::wire::{AUTH, Answer, Connect, Connected, PING, Request, WATCH_EVENT};

/// The pause after every server was tried, and the longest.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The session's task.
pub(super) struct Task {
    config: Arc<Config>,
    /// The server that is tried next.
    at: usize,
    orders: mpsc::UnboundedReceiver<Order>,
    facts: Arc<Mutex<Facts>>,
    /// What makes the next connection.
    connect: Connect,
    /// Requests that were sent, in that order.
    waiting: VecDeque<Waiting>,
    watches: HashMap<String, Vec<Weak<Mailbox>>>,
    disturbed: Box<dyn Fn() + Send>,
}

struct Waiting {
    number: i32,
    watch: Option<(String, Weak<Mailbox>)>,
    reply: Reply,
}

/// Why a connection is no more.
enum End {
    /// It broke, or another is wanted.
    Broke(String),
    /// The session is closed.
    Closed,
    /// Nobody wants the session any more.
    Dropped,
}

impl Task {
    /// A task without a connection yet.
    pub(super) fn new(
        config: Arc<Config>,
        timeout: Duration,
        orders: mpsc::UnboundedReceiver<Order>,
        facts: Arc<Mutex<Facts>>,
        disturbed: Box<dyn Fn() + Send>,
    ) -> Self {
        Self {
            at: first_host(config.hosts.len()),
            config,
            orders,
            facts,
            connect: Connect {
                timeout_ms: millis(timeout),
                session: 0,
                password: vec![0; 16],
            },
            waiting: VecDeque::new(),
            watches: HashMap::new(),
            disturbed,
        }
    }

    pub(super) async fn run(mut self, mut stream: Stream) {
        loop {
            match self.serve(stream).await {
                End::Broke(why) => tracing::debug!(why, "a connection to ZooKeeper ended"),
                End::Closed => return self.end(),
                End::Dropped => return,
            }
            self.lose();
            let mut pause = PAUSE;
            stream = loop {
                match self.reach_any().await {
                    Ok(stream) => break stream,
                    Err(error) if self.is_over() => {
                        tracing::debug!(%error, "a session is over");
                        return self.end();
                    }
                    Err(error) => tracing::debug!(%error, "no server of ZooKeeper's is reached"),
                }
                if self.orders.is_closed() && self.orders.is_empty() {
                    return;
                }
                clock::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            };
        }
    }

    fn is_over(&self) -> bool {
        lock(&self.facts).over
    }

    /// The session is over: says so to all who wait, and to those who come.
    fn end(mut self) {
        lock(&self.facts).over = true;
        self.lose();
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            if let Order::Call { reply, .. } = order {
                let _ = reply.send(Err(Failure::SessionOver));
            }
        }
    }

    /// What was sent has no answer any more, and no watch is left.
    fn lose(&mut self) {
        for waiting in self.waiting.drain(..) {
            let _ = waiting
                .reply
                .send(Err(error::unanswered("the connection ended")));
        }
        self.watches.clear();
        (self.disturbed)();
    }

    /// Connects to the first server that has the session, or begins it.
    pub(super) async fn reach_any(&mut self) -> Result<Stream> {
        let mut last = None;
        for _ in 0..self.config.hosts.len() {
            let host = &self.config.hosts[self.at];
            let since = clock::now();
            let reached = connection::reach(&self.config, host, &self.connect);
            let reached = clock::timeout(self.config.connect_max(), reached).await;
            match reached {
                Some(Ok((stream, connected))) => {
                    self.connected(&connected, since)?;
                    return Ok(stream);
                }
                Some(Err(error)) => last = Some(error),
                None => last = Some(unreachable(&format!("{host} gives no answer"))),
            }
            self.at = (self.at + 1) % self.config.hosts.len();
        }
        Err(last.unwrap_or_else(|| unreachable("there is none")))
    }

    fn connected(&mut self, connected: &Connected, since: Moment) -> Result<()> {
        let mut facts = lock(&self.facts);
        let Some(timeout) = u64::try_from(connected.timeout_ms)
            .ok()
            .filter(|ms| *ms > 0)
        else {
            facts.over = true;
            return Err(Failure::SessionOver.into());
        };
        facts.id = connected.session;
        facts.timeout = Duration::from_millis(timeout);
        facts.since = Some(since);
        facts.heard.connected(since);
        facts.generation += 1;
        self.connect.session = connected.session;
        self.connect.password.clone_from(&connected.password);
        Ok(())
    }

    /// Serves one connection until it ends.
    async fn serve(&mut self, stream: Stream) -> End {
        let mut connection = Connection::new(stream);
        if let Some(login) = &self.config.login {
            Request::digest(login).encode(AUTH, connection.out());
        }
        // The leader is told of the session once the server has heard of it: see `Heard`.
        Request::ping().encode(PING, connection.out());
        // A session that is used otherwise needs no pings.
        let quiet = lock(&self.facts).timeout / 3;
        let mut number = 0;
        loop {
            tokio::select! {
                // Orders that come together go out together.
                biased;
                order = self.orders.recv() => {
                    let Some(order) = order else {
                        connection.farewell().await;
                        return End::Dropped;
                    };
                    if let Some(end) = self.obey(order, &mut number, &mut connection).await {
                        return end;
                    }
                }
                moved = connection.work() => {
                    if let Err(error) = moved {
                        return End::Broke(error.to_string());
                    }
                    loop {
                        match connection.next() {
                            Ok(Some(answer)) => if let Some(end) = self.answered(answer) {
                                return end;
                            },
                            Ok(None) => break,
                            Err(error) => return End::Broke(error.to_string()),
                        }
                    }
                }
                () = clock::sleep(quiet) => Request::ping().encode(PING, connection.out()),
            }
        }
    }

    async fn obey(
        &mut self,
        order: Order,
        number: &mut i32,
        connection: &mut Connection,
    ) -> Option<End> {
        match order {
            Order::Call {
                request,
                watch,
                reply,
            } => {
                // Who asked for a watch alone waits for no reply.
                if reply.is_closed() && watch.is_none() {
                    return None;
                }
                *number = number.checked_add(1).unwrap_or(1);
                request.encode(*number, connection.out());
                self.waiting.push_back(Waiting {
                    number: *number,
                    watch,
                    reply,
                });
                None
            }
            Order::TurnAway(generation) => {
                // It was given up before this connection was made.
                if generation != lock(&self.facts).generation {
                    return None;
                }
                self.at = (self.at + 1) % self.config.hosts.len();
                Some(End::Broke("it gave no answer in time".into()))
            }
            Order::Close(done) => {
                connection.farewell().await;
                let _ = done.send(());
                Some(End::Closed)
            }
        }
    }

    /// Takes an answer in.
    fn answered(&mut self, answer: Answer) -> Option<End> {
        match answer.number {
            WATCH_EVENT => {
                let watchers = answer.watched().and_then(|path| self.watches.remove(&path));
                for mailbox in watchers.iter().flatten().filter_map(Weak::upgrade) {
                    mailbox.put();
                }
            }
            PING => {}
            AUTH => {
                if answer.code != 0 {
                    return Some(End::Broke("the server knows no users".into()));
                }
            }
            number => {
                let Some(waiting) = self.waiting.pop_front() else {
                    return Some(End::Broke("an answer to no request".into()));
                };
                if waiting.number != number {
                    return Some(End::Broke("an answer to another request".into()));
                }
                let outcome = match error::failure(answer.code) {
                    None => Ok(answer),
                    Some(failure) => Err(failure),
                };
                if let (Ok(_), Some((path, mailbox))) = (&outcome, waiting.watch) {
                    let watchers = self.watches.entry(path).or_default();
                    watchers.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&mailbox));
                    watchers.push(mailbox);
                }
                let _ = waiting.reply.send(outcome);
            }
        }
        None
    }
}

/// Sessions begin at different servers.
fn first_host(hosts: usize) -> usize {
    usize::try_from(clock::now().boot / 1000).unwrap_or(0) % hosts.max(1)
}

fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

//! Tells waiters that a lock is free.
//!
//! The waiters for one lock share one blocking query, whatever their number, and a lock that is free wakes one of them
//! and not all. Whoever is woken goes to the end of the row. If the lock stays free the next one is woken: the first
//! may have been given up, or its runtime may stand still.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::session::Mailbox;
use leasehold_core::{Name, Result, background};
use tokio::sync::{Notify, Semaphore};

use crate::attempt::Free;
use crate::keys;
use crate::link::Link;
use crate::session::follow;

/// How long a server keeps a question.
const WAIT: Duration = Duration::from_secs(30);
/// How long the one who was woken has before the next one is; each time twice as long, up to the most.
const TURN: Duration = Duration::from_millis(100);
const TURN_MAX: Duration = Duration::from_secs(2);
/// The pause after a broken connection.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many locks are watched at once: each takes a connection, and an agent takes 200 of one host unless it is set
/// otherwise. Those who wait for others look from time to time.
const WATCHES: usize = 64;
/// How much later than the others a client may wake its waiter, in milliseconds.
const JITTER: u64 = 8;

pub(crate) struct Feed {
    link: Arc<Link>,
    shared: Arc<Shared>,
}

struct Shared {
    rows: Mutex<Rows>,
    watches: Semaphore,
}

#[derive(Default)]
struct Rows {
    of: HashMap<Name, Row>,
    next: u64,
}

/// The waiters for one lock.
struct Row {
    /// Tells it from an earlier one of its name.
    id: u64,
    waiting: VecDeque<(u64, Arc<Mailbox>)>,
    free: Option<Free>,
    /// Nobody waits any more.
    over: Arc<Notify>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        let shared = Shared {
            rows: Mutex::default(),
            watches: Semaphore::new(WATCHES),
        };
        Self {
            link,
            shared: Arc::new(shared),
        }
    }

    /// Has this mailbox told when the lock may be free, until the registration is dropped.
    pub(crate) fn join(&self, name: &Name, mailbox: Arc<Mailbox>) -> Result<Registration> {
        let mut rows = self.shared.lock();
        rows.next += 2;
        let (row_id, id) = (rows.next, rows.next + 1);
        if !rows.of.contains_key(name) {
            let over = Arc::new(Notify::new());
            background::spawn(watch(
                self.link.clone(),
                self.shared.clone(),
                name.clone(),
                row_id,
                over.clone(),
            ))?;
            let row = Row {
                id: row_id,
                waiting: VecDeque::new(),
                free: None,
                over,
            };
            rows.of.insert(name.clone(), row);
        }
        if let Some(row) = rows.of.get_mut(name) {
            row.waiting.push_back((id, mailbox));
        }
        drop(rows);
        Ok(Registration {
            shared: self.shared.clone(),
            name: name.clone(),
            id,
        })
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("locks", &self.shared.lock().of.len())
            .finish_non_exhaustive()
    }
}

/// A waiter's entry.
pub(crate) struct Registration {
    shared: Arc<Shared>,
    name: Name,
    id: u64,
}

impl Registration {
    /// How the lock is free, as far as is known; none where it isn't.
    pub(crate) fn free(&self) -> Option<Free> {
        self.shared.lock().of.get(&self.name)?.free
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut rows = self.shared.lock();
        let Some(row) = rows.of.get_mut(&self.name) else {
            return;
        };
        row.waiting.retain(|(id, _)| *id != self.id);
        if row.waiting.is_empty() {
            row.over.notify_one();
            rows.of.remove(&self.name);
        }
    }
}

/// Watches one lock as long as anybody waits for it.
async fn watch(link: Arc<Link>, shared: Arc<Shared>, name: Name, row: u64, over: Arc<Notify>) {
    let watching = async {
        // It is never closed.
        let _permit = shared.watches.acquire().await;
        let key = keys::key(&name);
        let mut index = 0;
        let mut turn = TURN;
        let mut wait = WAIT;
        loop {
            let asked = match link.changed_entry(&key, index, wait).await {
                Ok(answer) => Ok(answer),
                Err(failure) => {
                    tracing::debug!(?failure, %name, "a blocking query broke");
                    index = 0;
                    tokio::time::sleep(PAUSE).await;
                    // Some names can't stand in a path, where blocking queries have them.
                    let entry = link.entry(&key, PATIENCE).await;
                    entry.map(|entry| (entry, 0))
                }
            };
            match asked {
                Ok((entry, next)) => {
                    let free = match &entry {
                        None => Some(Free::Absent),
                        Some(entry) if entry.session().is_none() => {
                            Some(Free::At(entry.modify_index))
                        }
                        Some(_) => None,
                    };
                    index = follow(index, next);
                    if free.is_some() {
                        tokio::time::sleep(jitter()).await;
                        wait = turn;
                        turn = (turn * 2).min(TURN_MAX);
                    } else {
                        (wait, turn) = (WAIT, TURN);
                    }
                    tell(&shared, &name, row, free);
                }
                Err(failure) => tracing::debug!(?failure, %name, "no answer to a waiter"),
            }
        }
    };
    tokio::select! {
        () = watching => {}
        () = over.notified() => {}
    }
}

/// Notes how the lock stands; of a free one the first of the row is told.
fn tell(shared: &Shared, name: &Name, id: u64, free: Option<Free>) {
    let mut rows = shared.lock();
    let Some(row) = rows.of.get_mut(name).filter(|row| row.id == id) else {
        return;
    };
    row.free = free;
    if free.is_some()
        && let Some(first) = row.waiting.pop_front()
    {
        first.1.put();
        row.waiting.push_back(first);
    }
}

/// So that the clients of many hosts don't ask at the same moment.
fn jitter() -> Duration {
    Duration::from_millis(RandomState::new().build_hasher().finish() % JITTER)
}

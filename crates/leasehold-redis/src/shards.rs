//! The process's subscriptions in a cluster: at the master of each slot that somebody waits in.
//!
//! A message reaches, and is counted for, those alone who listen at the node that publishes it. So for every such slot
//! there is a channel in that very slot (`SSUBSCRIBE`), heard at its master; a server that knows no such channels
//! (Redis 6.2) gets one plain channel at every such master. One task keeps to each slot's master, whatever becomes of
//! the nodes. It runs on the keeper's thread. A message that is missed costs a wait, never safety.

mod ear;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Owner, Result, background};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::dial::Node;
use crate::keys::FAMILY;
use crate::mailbox::{Boxes, Registration, lock};
use crate::slot;
use crate::slot_map::SlotMap;

/// The pause before listening again at a node that failed; it grows.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The subscriptions; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Shards {
    shared: Arc<Shared>,
    /// Kept while they run; dropping it ends them.
    running: Mutex<Option<oneshot::Sender<()>>>,
}

#[derive(Debug)]
struct Shared {
    map: Arc<SlotMap>,
    /// Tells this process's channels from others'.
    id: String,
    boxes: Boxes,
    slots: Mutex<HashMap<u16, State>>,
    /// A slot is new among them.
    wanted: Notify,
    /// A slot's state has changed.
    settled: watch::Sender<()>,
}

/// How it stands with the messages of one slot.
#[derive(Clone, Debug)]
enum State {
    /// Being subscribed to; `again` when messages may have been missed.
    Wanted { again: bool },
    /// Heard, on this channel.
    On(Arc<str>),
    /// The newest try failed; another is under way.
    Failed(ErrorKind, String),
}

impl Shards {
    pub(crate) fn new(map: Arc<SlotMap>, id: String) -> Self {
        Self {
            shared: Arc::new(Shared {
                map,
                id,
                boxes: Boxes::default(),
                slots: Mutex::default(),
                wanted: Notify::new(),
                settled: watch::Sender::default(),
            }),
            running: Mutex::new(None),
        }
    }

    /// A box for messages to this owner.
    pub(crate) fn register(&self, owner: Owner) -> Registration {
        self.shared.boxes.register(owner)
    }

    /// Waits until the messages of this key's slot are heard; answers the channel they come on.
    pub(crate) async fn ready(&self, key: &str) -> Result<Arc<str>> {
        let slot = slot::of(key);
        let mut settled = self.shared.settled.subscribe();
        self.start()?;
        loop {
            match lock(&self.shared.slots).get(&slot) {
                Some(State::On(channel)) => return Ok(channel.clone()),
                Some(State::Failed(kind, text)) => return Err(Error::new(*kind, text.clone())),
                Some(State::Wanted { .. }) => {}
                None => {}
            }
            if self.shared.want(slot) {
                self.shared.wanted.notify_one();
            }
            // It can't be closed while this is borrowed.
            let _ = settled.changed().await;
        }
    }

    fn start(&self) -> Result<()> {
        let mut running = lock(&self.running);
        if running.is_none() {
            let (sender, stopped) = oneshot::channel();
            background::spawn(run(self.shared.clone(), stopped))?;
            *running = Some(sender);
        }
        Ok(())
    }
}

impl Shared {
    /// Whether it is news that this slot is wanted.
    fn want(&self, slot: u16) -> bool {
        let mut slots = lock(&self.slots);
        let new = !slots.contains_key(&slot);
        slots.entry(slot).or_insert(State::Wanted { again: false });
        new
    }

    /// A slot is heard.
    fn on(&self, slot: u16, channel: String) {
        let before = lock(&self.slots).insert(slot, State::On(channel.into()));
        self.settled.send_replace(());
        if matches!(
            before,
            Some(State::Wanted { again: true } | State::Failed(..))
        ) {
            self.boxes.wake_everyone();
        }
    }

    /// These slots are heard no more; those that never were get to know why.
    fn off(&self, of: &HashSet<u16>, error: &Error) {
        let mut slots = lock(&self.slots);
        for slot in of {
            let state = match slots.get(slot) {
                Some(State::On(_) | State::Wanted { again: true }) => State::Wanted { again: true },
                _ => State::Failed(error.kind(), error.message().to_owned()),
            };
            slots.insert(*slot, state);
        }
        drop(slots);
        self.settled.send_replace(());
    }

    fn channel(&self, slot: u16) -> String {
        format!("{FAMILY}s:{{{}}}:{}", slot::tag(slot), self.id)
    }

    fn plain_channel(&self) -> String {
        format!("{FAMILY}c:{}", self.id)
    }
}

/// One node that is listened to. Dropping it ends that.
struct Ear {
    number: u64,
    slots: HashSet<u16>,
    orders: mpsc::UnboundedSender<u16>,
    task: AbortHandle,
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is known of all nodes that are listened to.
struct Ears {
    shared: Arc<Shared>,
    by_node: HashMap<Node, Ear>,
    /// How long a node that failed is left alone.
    pauses: HashMap<Node, Duration>,
    next: u64,
    ended: mpsc::UnboundedSender<(Node, u64, Error)>,
}

/// Keeps the subscriptions up until their owner is gone.
async fn run(shared: Arc<Shared>, mut stopped: oneshot::Receiver<()>) {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let mut ears = Ears {
        shared: shared.clone(),
        by_node: HashMap::new(),
        pauses: HashMap::new(),
        next: 0,
        ended,
    };
    let mut seen = shared.map.seen();
    loop {
        let unplaced = tokio::select! {
            _ = &mut stopped => return,
            unplaced = ears.place() => unplaced,
        };
        tokio::select! {
            _ = &mut stopped => return,
            () = shared.wanted.notified() => {}
            () = shared.map.changed(&mut seen) => ears.leave_what_moved(),
            Some((node, number, error)) = ends.recv() => ears.lost(&node, number, &error),
            () = tokio::time::sleep(PAUSE_MAX), if unplaced => {}
        }
    }
}

impl Ears {
    /// Has every wanted slot listened to at its master; whether one has none now.
    async fn place(&mut self) -> bool {
        if let Err(error) = self.shared.map.settle().await {
            let all = lock(&self.shared.slots).keys().copied().collect();
            self.shared.off(&all, &error);
            return true;
        }
        let placed: HashSet<u16> = self
            .by_node
            .values()
            .flat_map(|ear| ear.slots.iter().copied())
            .collect();
        let wanted: Vec<u16> = {
            let slots = lock(&self.shared.slots);
            let wanted = slots.keys().copied();
            wanted.filter(|slot| !placed.contains(slot)).collect()
        };
        let mut unplaced = HashSet::new();
        for slot in wanted {
            match self.shared.map.known_owner(slot) {
                Some(node) => self.listen_at(node, slot),
                None => {
                    unplaced.insert(slot);
                }
            }
        }
        if !unplaced.is_empty() {
            self.shared.map.doubt();
            let error = Error::new(
                ErrorKind::Unavailable,
                "the cluster has no master for this lock's slot",
            );
            self.shared.off(&unplaced, &error);
        }
        !unplaced.is_empty()
    }

    fn listen_at(&mut self, node: Node, slot: u16) {
        let ear = self.by_node.entry(node).or_insert_with_key(|node| {
            self.next += 1;
            let number = self.next;
            let (orders, taken) = mpsc::unbounded_channel();
            let pause = self.pauses.get(node).copied().unwrap_or_default();
            let (shared, node, ended) = (self.shared.clone(), node.clone(), self.ended.clone());
            let task = tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let error = ear::listen(&shared, &node, taken).await;
                // Nobody is left to be told where all of it ends.
                let _ = ended.send((node, number, error));
            });
            Ear {
                number,
                slots: HashSet::new(),
                orders,
                task: task.abort_handle(),
            }
        });
        ear.slots.insert(slot);
        // An ear that has just ended says so, and its slots are placed again.
        let _ = ear.orders.send(slot);
    }

    /// The map has changed: an ear whose slots aren't all its node's any more is given up.
    fn leave_what_moved(&mut self) {
        let map = self.shared.map.clone();
        let moved = |node: &Node, ear: &Ear| {
            let elsewhere = |slot: &u16| map.known_owner(*slot).as_ref() != Some(node);
            ear.slots.iter().any(elsewhere)
        };
        let left: Vec<Node> = self
            .by_node
            .iter()
            .filter(|(node, ear)| moved(node, ear))
            .map(|(node, _)| node.clone())
            .collect();
        for node in left {
            self.give_up(
                &node,
                &Error::new(ErrorKind::Unavailable, "the lock's slot was moved"),
            );
        }
    }

    fn lost(&mut self, node: &Node, number: u64, error: &Error) {
        if self
            .by_node
            .get(node)
            .is_none_or(|ear| ear.number != number)
        {
            return;
        }
        tracing::debug!(%node, %error, "messages from a node are interrupted");
        let was_on = {
            let slots = lock(&self.shared.slots);
            let ear = &self.by_node[node];
            let on = |slot: &u16| matches!(slots.get(slot), Some(State::On(_)));
            ear.slots.iter().any(on)
        };
        let pause = self.pauses.entry(node.clone()).or_default();
        *pause = if was_on {
            PAUSE_MIN
        } else {
            (*pause * 2).clamp(PAUSE_MIN, PAUSE_MAX)
        };
        self.give_up(node, error);
        self.shared.map.doubt();
    }

    fn give_up(&mut self, node: &Node, error: &Error) {
        if let Some(ear) = self.by_node.remove(node) {
            self.shared.off(&ear.slots, error);
        }
    }
}

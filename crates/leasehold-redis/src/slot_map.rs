//! Which node of a cluster has which slot.
//!
//! The map is asked for when it is first needed and when a request says that it is wrong or its node doesn't answer.
//! A node that is cut off from the others may know an old one. So as many are asked as make half of those known, and
//! of those that are part of a working cluster the one with the highest epoch counts. An answer that is old all the
//! same is corrected by the node it leads to.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{Error, ErrorKind, Result};
use redis::{AsyncConnectionConfig, Client, Value, cmd};
use tokio::sync::watch;

use crate::dial::{Dialer, Node};
use crate::error;
use crate::slot::SLOTS;

/// How long a node may take to tell its map.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most nodes that are asked at once; the next time it is others' turn.
const ASKED_MAX: usize = 6;

#[derive(Debug)]
pub(crate) struct SlotMap {
    dialer: Dialer,
    seeds: Vec<Node>,
    table: watch::Sender<Arc<Table>>,
    /// A request found it wrong, or hasn't had one yet.
    doubted: AtomicBool,
    /// Held while it is asked for: thousands of waiters that find it wrong together need one answer.
    asking: tokio::sync::Mutex<()>,
    turn: AtomicUsize,
}

/// The masters, and for every slot which of them has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    masters: Vec<Node>,
    /// Indices into the masters; one out of range where nobody has the slot.
    owners: Vec<u16>,
}

impl Table {
    fn owner(&self, slot: u16) -> Option<&Node> {
        let at = self.owners.get(usize::from(slot))?;
        self.masters.get(usize::from(*at))
    }

    fn set(&mut self, slots: std::ops::RangeInclusive<u16>, node: &Node) {
        self.owners.resize(usize::from(SLOTS), u16::MAX);
        let known = self.masters.iter().position(|master| master == node);
        let at = known.unwrap_or_else(|| {
            self.masters.push(node.clone());
            self.masters.len() - 1
        });
        for slot in slots {
            if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
                *owner = u16::try_from(at).unwrap_or(u16::MAX);
            }
        }
    }
}

/// The changes that somebody knows of.
pub(crate) struct Seen(watch::Receiver<Arc<Table>>);

impl SlotMap {
    pub(crate) fn new(dialer: Dialer, seeds: Vec<Node>) -> Self {
        Self {
            dialer,
            seeds,
            table: watch::Sender::default(),
            doubted: AtomicBool::new(true),
            asking: tokio::sync::Mutex::new(()),
            turn: AtomicUsize::new(0),
        }
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// The master that has the slot.
    ///
    /// # Errors
    /// When no node can be asked, or nobody has it.
    pub(crate) async fn owner(&self, slot: u16) -> Result<Node> {
        self.settle().await?;
        self.known_owner(slot).ok_or_else(|| {
            self.doubt();
            Error::new(
                ErrorKind::Unavailable,
                "the cluster has no master for this lock's slot; look at CLUSTER INFO",
            )
        })
    }

    /// The master that has the slot, as far as known.
    pub(crate) fn known_owner(&self, slot: u16) -> Option<Node> {
        self.table.borrow().owner(slot).cloned()
    }

    /// Every master there is now.
    ///
    /// # Errors
    /// When no node can be asked.
    pub(crate) async fn masters(&self) -> Result<Vec<Node>> {
        // No redirection would tell of one that is new.
        self.doubt();
        self.settle().await?;
        Ok(self.table.borrow().masters.clone())
    }

    /// Something is wrong with it: it is asked for before its next use.
    pub(crate) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    /// A node says who has this slot; the others' slots may have moved too.
    pub(crate) fn moved(&self, slot: u16, node: &Node) {
        self.table.send_if_modified(|table| {
            let changed = table.owner(slot) != Some(node);
            if changed {
                Arc::make_mut(table).set(slot..=slot, node);
            }
            changed
        });
        self.doubt();
    }

    /// Waits for the next change after those that were seen.
    pub(crate) async fn changed(&self, seen: &mut Seen) {
        // It can't be closed while this is borrowed.
        let _ = seen.0.changed().await;
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen(self.table.subscribe())
    }

    /// Asks for the map if it is in doubt. One that is there is used on where nobody answers.
    pub(crate) async fn settle(&self) -> Result<()> {
        if !self.doubted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let _asking = self.asking.lock().await;
        if !self.doubted.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match self.ask().await {
            Ok(table) => {
                self.table.send_if_modified(|known| {
                    let changed = **known != table;
                    *known = Arc::new(table);
                    changed
                });
                Ok(())
            }
            Err(error) => {
                self.doubt();
                let has_none = self.table.borrow().masters.is_empty();
                if has_none { Err(error) } else { Ok(()) }
            }
        }
    }

    async fn ask(&self) -> Result<Table> {
        let known: BTreeSet<Node> = {
            let table = self.table.borrow();
            table.masters.iter().chain(&self.seeds).cloned().collect()
        };
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let asked = known.len().min(ASKED_MAX);
        let begin = turn * ASKED_MAX % known.len().max(1);
        let mut answers: FuturesUnordered<_> = known
            .iter()
            .cycle()
            .skip(begin)
            .take(asked)
            .map(|node| self.ask_one(node))
            .collect();
        let mut newest: Option<(u64, Table)> = None;
        let mut answered = 0;
        let mut failure = None;
        while answered < asked.div_ceil(2)
            && let Some(answer) = answers.next().await
        {
            match answer {
                Ok((epoch, table)) => {
                    answered += 1;
                    if newest.as_ref().is_none_or(|(known, _)| *known < epoch) {
                        newest = Some((epoch, table));
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        match newest {
            Some((_, table)) => Ok(table),
            None => {
                Err(failure
                    .unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "no node answers")))
            }
        }
    }

    async fn ask_one(&self, node: &Node) -> Result<(u64, Table)> {
        let client: Client = self.dialer.node(node)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(error::connecting)?;
        let info = cmd("CLUSTER")
            .arg("INFO")
            .query_async(&mut connection)
            .await;
        let info: String = info.map_err(error::asking_cluster)?;
        let field = |name: &str| {
            let found = info
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            found.unwrap_or_default().trim().to_owned()
        };
        if field("cluster_state") != "ok" {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("{node} says that the cluster is down; look at CLUSTER INFO there"),
            ));
        }
        let slots = cmd("CLUSTER")
            .arg("SLOTS")
            .query_async(&mut connection)
            .await;
        let table = read(slots.map_err(error::asking_cluster)?, node)
            .ok_or_else(|| Error::new(ErrorKind::Bug, "CLUSTER SLOTS was answered strangely"))?;
        Ok((field("cluster_current_epoch").parse().unwrap_or(0), table))
    }
}

/// Reads the answer to `CLUSTER SLOTS`: ranges, each with its master first.
fn read(answer: Value, asked: &Node) -> Option<Table> {
    type Range = (u16, u16, Vec<Value>);
    let mut table = Table::default();
    let Value::Array(ranges) = answer else {
        return None;
    };
    for range in ranges {
        let Value::Array(mut parts) = range else {
            return None;
        };
        if parts.len() < 3 {
            return None;
        }
        parts.truncate(3);
        let (first, last, master): Range = redis::from_redis_value(Value::Array(parts)).ok()?;
        let mut master = master.into_iter();
        // One that doesn't know its own address is where it was asked.
        let host = match master.next()? {
            Value::BulkString(host) if !host.is_empty() && host != b"?" => {
                String::from_utf8(host).ok()?.into()
            }
            Value::SimpleString(host) => host.into(),
            _ => asked.host.clone(),
        };
        let port = redis::from_redis_value(master.next()?).ok()?;
        table.set(first..=last, &Node { host, port });
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Node {
        Node::parse(text, 1).unwrap()
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let master = Value::Array(vec![
            host,
            Value::Int(port),
            text("id"),
            Value::Array(vec![]),
        ]);
        let replica = Value::Array(vec![text("other"), Value::Int(9), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    #[test]
    fn the_masters_and_their_slots_are_read() {
        let answer = Value::Array(vec![
            range(0, 10, text("a"), 1),
            range(12, 16_383, text("b"), 2),
            range(11, 11, text(""), 3),
        ]);
        let table = read(answer, &node("asked:7")).unwrap();
        for (slot, owner) in [
            (0, "a:1"),
            (10, "a:1"),
            (11, "asked:3"),
            (12, "b:2"),
            (16_383, "b:2"),
        ] {
            assert_eq!(table.owner(slot), Some(&node(owner)), "{slot}");
        }
        let part = read(
            Value::Array(vec![range(0, 10, Value::Nil, 1)]),
            &node("asked:7"),
        )
        .unwrap();
        assert_eq!(part.owner(3), Some(&node("asked:1")));
        assert_eq!(part.owner(11), None);
        assert_eq!(read(text("strange"), &node("a")), None);
    }
}

//! The servers of the store, and which of them has a lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result};
use redis::{Cmd, Value};

use crate::dial::Node;
use crate::link::{Failure, Link, Server, Way};
use crate::script::Code;
use crate::slot;
use crate::slot_map::SlotMap;

/// How often a request may be sent elsewhere before it is given up.
const WAYS_MAX: u32 = 8;
/// The pause before a request that found its keys in part here and in part there; it grows.
const PAUSE: Duration = Duration::from_millis(10);

/// All servers, each with a connection for one purpose.
#[derive(Debug)]
pub(crate) enum Servers {
    /// One has every lock.
    One(Arc<Link>),
    /// Each master has the locks of its slots.
    Many(Cluster),
}

impl Servers {
    /// Calls a script at the server that has these keys, once.
    pub(crate) async fn call(
        &self,
        script: &Code,
        keys: &[&str],
        args: &[&str],
    ) -> Result<Value, Failure> {
        match self {
            Self::One(link) => link.call(script, keys, args).await,
            // In a box, so that the other way doesn't carry its size.
            Self::Many(cluster) => Box::pin(cluster.call(script, keys, args, true)).await,
        }
    }

    /// As [`call`](Self::call), for a script that may as well run twice: once more where the connection had gone
    /// stale.
    pub(crate) async fn ask(&self, script: &Code, keys: &[&str], args: &[&str]) -> Result<Value> {
        match self.call(script, keys, args).await {
            Err(Failure::Stale(_)) => Ok(self.call(script, keys, args).await?),
            answer => Ok(answer?),
        }
    }

    /// As [`ask`](Self::ask), for the keys of several locks in one slot. When that is on its way from one node to
    /// another and they are apart, the failure says [`Way::Again`]: each is to be asked for alone.
    pub(crate) async fn ask_together(
        &self,
        script: &Code,
        keys: &[&str],
        args: &[&str],
    ) -> Result<Value, Failure> {
        let cluster = match self {
            Self::One(_) => return self.ask(script, keys, args).await.map_err(Failure::Sent),
            Self::Many(cluster) => cluster,
        };
        match cluster.call(script, keys, args, false).await {
            Err(Failure::Stale(_)) => cluster.call(script, keys, args, false).await,
            answer => answer,
        }
    }

    /// As [`call`](Self::call), with a command right behind it on the same connection.
    pub(crate) async fn call_and_then(
        &self,
        script: &Code,
        keys: &[&str],
        args: &[&str],
        then: &Cmd,
    ) -> Result<(Value, Value), Failure> {
        match self {
            Self::One(link) => link.call_and_then(script, keys, args, then).await,
            Self::Many(cluster) => {
                let link = cluster.of(keys).await.map_err(Failure::Unsent)?;
                let answer = link.call_and_then(script, keys, args, then).await;
                // It is not sent elsewhere from here: that is rare, and who asked asks again.
                answer.map_err(|failure| {
                    cluster.map.doubt();
                    match failure {
                        Failure::Elsewhere(way, _) => Failure::Elsewhere(way, between()),
                        failure => failure,
                    }
                })
            }
        }
    }

    /// The value of a key.
    pub(crate) async fn get(&self, key: &str) -> Result<Value> {
        let mut get = redis::cmd("GET");
        get.arg(key);
        match self {
            Self::One(link) => link.command(&get).await,
            Self::Many(cluster) => cluster.of(&[key]).await?.command(&get).await,
        }
    }

    /// A link to every master.
    pub(crate) async fn masters(&self) -> Result<Vec<(String, Arc<Link>)>> {
        match self {
            Self::One(link) => Ok(vec![(String::new(), link.clone())]),
            Self::Many(cluster) => {
                let masters = cluster.map.masters().await?;
                let link = |node: &Node| Ok((node.to_string(), cluster.link(node)?));
                masters.iter().map(link).collect()
            }
        }
    }

    /// Lets go of the connections.
    pub(crate) fn close(&self) {
        match self {
            Self::One(link) => link.close(),
            Self::Many(cluster) => cluster.links().clear(),
        }
    }

    /// Parts what can't be in one request, by the name of its lock.
    pub(crate) fn apart<T>(&self, all: Vec<T>, name: impl Fn(&T) -> &str) -> Vec<Vec<T>> {
        if matches!(self, Self::One(_)) {
            return vec![all];
        }
        let mut parts: HashMap<u16, Vec<T>> = HashMap::new();
        for one in all {
            parts.entry(slot::of(name(&one))).or_default().push(one);
        }
        parts.into_values().collect()
    }
}

/// The masters of a cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    map: Arc<SlotMap>,
    patience: Duration,
    links: Mutex<HashMap<Node, Arc<Link>>>,
}

impl Cluster {
    /// Links that wait `patience` for each answer; they connect on first use.
    pub(crate) fn new(map: Arc<SlotMap>, patience: Duration) -> Self {
        Self {
            map,
            patience,
            links: Mutex::default(),
        }
    }

    async fn of(&self, keys: &[&str]) -> Result<Arc<Link>> {
        let owner = self
            .map
            .owner(slot::of(keys.first().copied().unwrap_or_default()));
        self.link(&owner.await?)
    }

    /// A node that sends a request elsewhere has done nothing of it, so it may be sent there. `waits`: also for keys
    /// that are apart to come together.
    async fn call(
        &self,
        script: &Code,
        keys: &[&str],
        args: &[&str],
        waits: bool,
    ) -> Result<Value, Failure> {
        let slot = slot::of(keys.first().copied().unwrap_or_default());
        let mut node = self.map.owner(slot).await.map_err(Failure::Unsent)?;
        let mut asking = false;
        let mut pause = PAUSE;
        for _ in 0..WAYS_MAX {
            let link = self.link(&node).map_err(Failure::Unsent)?;
            let answer = if asking {
                link.call_asking(script, keys, args).await
            } else {
                link.call(script, keys, args).await
            };
            asking = false;
            let (way, error) = match answer {
                Err(Failure::Elsewhere(way, error)) => (way, error),
                Err(failure) => {
                    // It may be gone, or a master no more.
                    self.map.doubt();
                    return Err(failure);
                }
                answer => return answer,
            };
            tracing::debug!(%node, ?way, "a request is sent elsewhere");
            match way {
                Way::Moved(to) => {
                    node = beside(to, &node);
                    self.map.moved(slot, &node);
                }
                Way::Ask(to) => {
                    node = beside(to, &node);
                    asking = true;
                }
                Way::Again if !waits => return Err(Failure::Elsewhere(way, between())),
                Way::Again => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                    // In the end the slot has gone over.
                    node = self.map.owner(slot).await.map_err(Failure::Unsent)?;
                }
                Way::Down => {
                    self.map.doubt();
                    return Err(Failure::Sent(error));
                }
            }
        }
        self.map.doubt();
        Err(Failure::Sent(between()))
    }

    fn link(&self, node: &Node) -> Result<Arc<Link>> {
        if let Some(link) = self.links().get(node) {
            return Ok(link.clone());
        }
        let server = Server::At(Arc::new(self.map.dialer().node(node)?));
        let link = Arc::new(Link::new(server, self.patience));
        Ok(self.links().entry(node.clone()).or_insert(link).clone())
    }

    fn links(&self) -> std::sync::MutexGuard<'_, HashMap<Node, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn between() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the lock's slot is on its way between two nodes, and its keys with it; it is served again once they are there",
    )
}

/// A node that was named by one that doesn't know the hosts has that one's.
fn beside(named: Node, by: &Node) -> Node {
    if named.host.is_empty() {
        Node {
            host: by.host.clone(),
            ..named
        }
    } else {
        named
    }
}

//! How the store's servers are arranged, and what connects to them.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Result, background};
use redis::Client;
use tokio::sync::oneshot;

use crate::config::Place;
use crate::keys::FAMILY;
use crate::link::{Link, Server};
use crate::mailbox::Boxes;
use crate::sentinel::Sentinels;
use crate::servers::{Cluster, Servers};
use crate::shards::Shards;
use crate::slot_map::SlotMap;
use crate::subscriber::{Subscriber, Subscription};

/// The arrangement; all connections of a client share what is known of it.
#[derive(Debug)]
pub(crate) enum Topology {
    /// One server.
    One(Arc<Client>),
    /// A master with replicas, one of which takes over when the sentinels say so.
    Sentinel(Arc<Sentinels>),
    /// Masters with a part of the slots each.
    Cluster(Arc<SlotMap>),
}

impl Topology {
    pub(crate) fn of(place: Place) -> Self {
        match place {
            Place::Server(client) => Self::One(client),
            Place::Sentinel(sentinels) => Self::Sentinel(sentinels),
            Place::Cluster(dialer, seeds) => Self::Cluster(Arc::new(SlotMap::new(dialer, seeds))),
        }
    }

    /// Connections to the servers that wait this long for each answer.
    pub(crate) fn servers(&self, patience: Duration) -> Servers {
        match self {
            Self::One(client) => {
                let server = Server::At(client.clone());
                Servers::One(Arc::new(Link::new(server, patience)))
            }
            Self::Sentinel(sentinels) => {
                let server = Server::Master(sentinels.clone());
                Servers::One(Arc::new(Link::new(server, patience)))
            }
            Self::Cluster(map) => Servers::Many(Cluster::new(map.clone(), patience)),
        }
    }

    /// Where the process of this id hears what it is told.
    pub(crate) fn subscriber(&self, id: String) -> Subscriber {
        let channel = || format!("{FAMILY}c:{id}").into();
        match self {
            Self::One(client) => {
                let server = Server::At(client.clone());
                Subscriber::One(Subscription::new(server, channel(), Boxes::default()))
            }
            Self::Sentinel(sentinels) => {
                let server = Server::Master(sentinels.clone());
                Subscriber::One(Subscription::new(server, channel(), Boxes::default()))
            }
            Self::Cluster(map) => Subscriber::Many(Shards::new(map.clone(), id)),
        }
    }

    /// Watches for another master, where sentinels tell of it, until what it returns is dropped.
    pub(crate) fn watch(&self) -> Result<Option<oneshot::Sender<()>>> {
        let Self::Sentinel(sentinels) = self else {
            return Ok(None);
        };
        let (watching, stopped) = oneshot::channel();
        background::spawn(sentinels.clone().watch(stopped))?;
        Ok(Some(watching))
    }
}

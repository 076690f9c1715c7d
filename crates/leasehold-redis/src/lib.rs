//! leasehold on Redis and Valkey: one server, the master under Sentinel, or Cluster.
//!
//! The lock is a plain string under its name (`SET name owner NX PX ttl`, as in the pattern of
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>), so that other libraries' clients
//! and leasehold exclude each other. Counter, queue and holder lie beside it. See the crate's README for what
//! that guarantees and what not.

mod attempt;
mod backend;
mod check;
mod config;
mod contender;
mod dial;
mod error;
mod keys;
mod link;
mod mailbox;
mod redlock;
mod renewer;
mod replicas;
mod reply;
mod script;
mod sentinel;
mod servers;
mod shards;
#[cfg(test)]
mod simulation;
mod slot;
mod slot_map;
mod subscriber;
mod tls;
mod topology;

use std::sync::Arc;

use leasehold_core::backend::{Backend, Finding};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Result};

/// Connects to the server at `url`: `redis://[user:password@]host[:6379][/database]`, or `redis+unix:///path`; to the
/// master that sentinels name: `redis+sentinel://host[:26379],…[/database]?master=NAME`; or to a cluster of which some
/// nodes are named: `redis+cluster://host[:6379],…`. `rediss` in place of `redis` is verified TLS.
///
/// Or to several independent servers that decide by majority: `redlock://host[:6379],…` (`redlocks://` for TLS), with
/// `?node-timeout=500ms` for each answer of one of them.
///
/// `?handover=always` lets the lock go from waiter to waiter without end, though clients of other makes that poll for it
/// starve. `?ca-file=`, `?client-cert-file=` and `?client-key-file=` name PEM files for TLS. `?sentinel-user=` and
/// `?sentinel-password-file=` are for the sentinels. `?min-replicas=N&replica-timeout=500ms` gives back at once what
/// N replicas don't have in time.
///
/// # Errors
/// `Invalid` for a URL that can't be right, `Unauthorized` when the server refuses the credentials,
/// `Unavailable` when it can't be reached.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn connect(url: StoreUrl) -> Result<Arc<dyn Backend>> {
    if is_redlock(&url) {
        let config = redlock::Config::of(url)?;
        return Ok(Arc::new(redlock::Redlock::connect(config).await?));
    }
    Ok(Arc::new(
        backend::Redis::connect(config::Config::of(url)?).await?,
    ))
}

/// Says, as an operator, that nothing relies any more on a lock that was granted before on the nodes of a `redlock://`
/// URL: all of them that answer count from now on, whatever they have forgotten. Needed where a majority lost its memory
/// at once, since nobody can tell then what was granted. Answers how the nodes stand.
///
/// # Errors
/// `Invalid` for a URL that can't be right or is of another store, and for nodes that are no set; `Unavailable` when no
/// majority answers.
///
/// # Cancel safety
/// Dropped before its end, some of the nodes may count and others not; ask again.
pub async fn rejoin(mut url: StoreUrl) -> Result<Vec<Finding>> {
    // For names, and this has none.
    url.take("prefix");
    if !is_redlock(&url) {
        return Err(Error::new(
            ErrorKind::Invalid,
            "only the nodes of redlock:// have to be told; one server needs nothing after a restart",
        ));
    }
    redlock::Redlock::rejoin(redlock::Config::of(url)?).await
}

/// A connection of the driver to the one server of a URL, for what isn't locking: the fence of a resource that is kept
/// there.
///
/// # Errors
/// As [`connect`]; `Unsupported` for a URL of several servers.
///
/// # Cancel safety
/// Safe.
pub async fn connection(mut url: StoreUrl) -> Result<redis::aio::MultiplexedConnection> {
    // For names, and this has none.
    url.take("prefix");
    let client = match is_redlock(&url) {
        true => None,
        false => match config::Config::of(url)?.place {
            config::Place::Server(client) => Some(client),
            config::Place::Sentinel(_) | config::Place::Cluster(..) => None,
        },
    };
    let client = client.ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            "it needs the URL of one server: redis://, rediss:// or redis+unix://",
        )
    })?;
    let connecting = client.get_multiplexed_async_connection();
    connecting.await.map_err(error::connecting)
}

fn is_redlock(url: &StoreUrl) -> bool {
    matches!(url.scheme(), "redlock" | "redlocks")
}

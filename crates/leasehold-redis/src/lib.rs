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
#[cfg_attr(not(test), expect(dead_code, reason = "what drives it is yet to come"))]
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

use leasehold_core::Result;
use leasehold_core::backend::Backend;
use leasehold_core::url::StoreUrl;

/// Connects to the server at `url`: `redis://[user:password@]host[:6379][/database]`, or `redis+unix:///path`; to the
/// master that sentinels name: `redis+sentinel://host[:26379],…[/database]?master=NAME`; or to a cluster of which some
/// nodes are named: `redis+cluster://host[:6379],…`. `rediss` in place of `redis` is verified TLS.
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
    Ok(Arc::new(
        backend::Redis::connect(config::Config::of(url)?).await?,
    ))
}

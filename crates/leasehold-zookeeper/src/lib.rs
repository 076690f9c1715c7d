//! leasehold on ZooKeeper.
//!
//! A lock is a queue of ephemeral sequential nodes under `/NAME`, as Curator's InterProcessMutex makes it, so that it
//! and leasehold exclude each other; with `?layout=kazoo`, as kazoo's Lock does. See the crate's README for what that
//! guarantees and what not.

mod backend;
mod check;
mod config;
mod contender;
mod ending;
mod error;
mod heard;
mod keys;
mod link;
mod look;
mod note;
mod renewal;
mod session;
#[cfg(test)]
mod simulation;
mod wire;

use std::sync::Arc;

use leasehold_core::Result;
use leasehold_core::backend::Backend;
use leasehold_core::url::StoreUrl;

/// Connects to the ensemble at `url`: `zookeeper://[user:password@]h1[:2181][,h2…][/chroot]`, or `zookeepers://…` for
/// verified TLS. Any server will do; with several, leasehold turns to the next when one fails. `?layout=kazoo` names
/// nodes as kazoo does. `?ca-file=`, `?client-cert-file=` and `?client-key-file=` name PEM files for TLS.
///
/// # Errors
/// `Invalid` for a URL that can't be right and a chroot that isn't there, `Unauthorized` when the server refuses the
/// user, `Unsupported` for a server before 3.6, `Unavailable` when no server can be reached or they have no leader.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn connect(url: StoreUrl) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(
        backend::ZooKeeper::connect(config::Config::of(url)?).await?,
    ))
}

//! leasehold on etcd.
//!
//! A lock is a queue of keys `NAME/LEASE`, as etcd's own Go client, `etcdctl lock` and the server's lock service make
//! it, so that they and leasehold exclude each other. See the crate's README for what that guarantees and what not.

mod attempt;
mod backend;
mod beat;
mod check;
mod config;
mod contender;
mod ending;
mod error;
mod feed;
mod keys;
mod link;
mod look;
mod note;
mod owner;
mod queue;
mod renewal;
mod resumed;
mod session;
#[cfg(test)]
mod simulation;
mod wire;

pub use owner::IsOwner;

use std::sync::Arc;

use leasehold_core::Result;
use leasehold_core::backend::Backend;
use leasehold_core::url::StoreUrl;

/// Connects to the cluster at `url`: `etcd://[user:password@]h1[:2379][,h2…]`, or `etcds://…` for verified TLS. Any
/// member will do; with several, leasehold turns to the next when one fails. `?ca-file=`, `?client-cert-file=` and
/// `?client-key-file=` name PEM files for TLS.
///
/// # Errors
/// `Invalid` for a URL that can't be right, `Unauthorized` when the server refuses the credentials, `Unavailable`
/// when no member can be reached or they have no leader.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn connect(url: StoreUrl) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(
        backend::Etcd::connect(config::Config::of(url)?).await?,
    ))
}

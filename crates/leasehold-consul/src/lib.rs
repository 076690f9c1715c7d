//! leasehold on Consul.
//!
//! A lock is the key `NAME/.lock`, locked by a session, as Consul's own Go client and `consul lock` make it, so that
//! they and leasehold exclude each other. See the crate's README for what that guarantees and what not.

mod api;
mod attempt;
mod backend;
mod check;
mod config;
mod contender;
mod ending;
mod error;
mod feed;
mod keys;
mod leaving;
mod link;
mod look;
mod note;
mod renewal;
mod resumed;
mod session;
#[cfg(test)]
mod simulation;
mod wire;

use std::sync::Arc;

use leasehold_core::Result;
use leasehold_core::backend::Backend;
use leasehold_core::url::StoreUrl;

/// Connects to the cluster behind `url`: `consul://[:token@]h1[:8500][,h2…]`, or `consuls://…` for verified TLS (port
/// 8501). Any agent will do; with several, leasehold turns to the next when one fails. `?lock-delay=15s` keeps the lock
/// of a holder whose session ended by itself from everybody for a while, and `?datacenter=dc2` has the locks in another
/// datacenter than the agent's. `?ca-file=`, `?client-cert-file=` and
/// `?client-key-file=` name PEM files for TLS.
///
/// # Errors
/// `Invalid` for a URL that can't be right, `Unauthorized` when the token is unknown, `Unavailable` when no agent can
/// be reached or the cluster has no leader.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn connect(url: StoreUrl) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(
        backend::Consul::connect(config::Config::of(url)?).await?,
    ))
}

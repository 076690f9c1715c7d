//! leasehold on Redis and Valkey: one server.
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
mod error;
mod keys;
mod link;
#[cfg_attr(not(test), expect(dead_code, reason = "what drives it is yet to come"))]
mod redlock;
mod renewer;
mod reply;
mod script;
#[cfg(test)]
mod simulation;
mod subscriber;
mod tls;

use std::sync::Arc;

use leasehold_core::Result;
use leasehold_core::backend::Backend;
use leasehold_core::url::StoreUrl;

/// Connects to the server at `url`: `redis://[user:password@]host[:6379][/database]`, `rediss://…` for verified
/// TLS, or `redis+unix:///path`. `?handover=always` lets the lock go from waiter to waiter without end, though
/// clients of other makes that poll for it starve. `?ca-file=`, `?client-cert-file=` and `?client-key-file=`
/// name PEM files for TLS.
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

//! leasehold on PostgreSQL.
//!
//! A lock is an advisory lock of a session, or inside the caller's own transaction ([`TransactionLocks`]), so that leasehold
//! and whoever else takes it by the same key exclude each other.
//! See the crate's README for what that guarantees and what not.

mod backend;
mod check;
mod config;
mod dial;
mod error;
mod keys;
mod link;
mod look;
mod note;
mod password;
mod probe;
mod session;
mod sql;
mod transaction;

pub use transaction::{ACQUIRE, Caller, TOKEN, TRY_ACQUIRE, TransactionLocks, TransactionToken};

use std::sync::Arc;

use leasehold_core::Result;
use leasehold_core::backend::Backend;
use leasehold_core::url::StoreUrl;

/// What the table is made by that the tokens are counted in. A role that may make it does so on first use; for others
/// somebody else runs this, and grants them the use of it.
pub const SCHEMA: &str = sql::SCHEMA;

/// Connects to the database behind `url`: `postgres://user[:password]@host[:5432]/database`, or
/// `postgres://user@/database?host=/run/postgresql` for a unix socket. Of several hosts the first is used that takes writes.
/// `?key=` says how a name becomes a key: `sha256`, `hashtext`, `with-advisory-lock`, `rails`, `raw:N` or `raw:N,M`.
/// `?sslmode=` is `verify-full` for other hosts than this one unless it says `disable`; `?ca-file=`, `?client-cert-file=` and
/// `?client-key-file=` name PEM files for TLS. `?lease=tcp` takes a server before PostgreSQL 14, too. A password that isn't in
/// the URL is taken from PGPASSWORD, or the file that PGPASSFILE names, or `~/.pgpass`.
///
/// # Errors
/// `Invalid` for a URL that can't be right or a database that isn't there, `Unauthorized` when the server refuses user and
/// password, `Unsupported` for an older server and for a pooler that gives each transaction another session, `Unavailable`
/// when the server can't be reached.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn connect(url: StoreUrl) -> Result<Arc<dyn Backend>> {
    let config = config::Config::of(url, |name| std::env::var_os(name))?;
    Ok(Arc::new(backend::Postgres::connect(config).await?))
}

/// A connection of the driver to the database behind a URL, for what isn't locking: the fence of a resource that is kept
/// there. No statement on it takes longer than three seconds.
///
/// # Errors
/// As [`connect`].
///
/// # Cancel safety
/// Safe.
pub async fn connection(url: StoreUrl) -> Result<tokio_postgres::Client> {
    let config = config::Config::of(url, |name| std::env::var_os(name))?;
    let link = link::Link::open(&config, link::Purpose::Look, || {}).await?;
    Ok(link.into_client())
}

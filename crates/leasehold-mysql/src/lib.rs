//! leasehold on MySQL and MariaDB.
//!
//! A lock is one that a session takes by `GET_LOCK`, so that leasehold and whoever else takes it by the same name exclude
//! each other. See the crate's README for what that guarantees and what not.

mod backend;
mod check;
mod config;
mod error;
mod keys;
mod link;
mod look;
mod note;
mod option_file;
mod reach;
mod server;
mod session;
mod sql;

use std::sync::Arc;

use leasehold_core::Result;
use leasehold_core::backend::Backend;
use leasehold_core::url::StoreUrl;

pub use sql::SCHEMA;

/// Connects to the server behind `url`: `mysql://user[:password]@host[:3306]` or `mariadb://…`, with or without a database
/// as its path, or `mysql://user@?socket=/run/mysqld/mysqld.sock` for a unix socket. Of several hosts the first is used
/// that takes writes. `?ssl-mode=` is `VERIFY_IDENTITY` for other hosts than this one unless it says `DISABLED`;
/// `?ca-file=`, `?client-cert-file=` and `?client-key-file=` name PEM files for TLS. User, password and host that aren't in
/// the URL are taken from `~/.my.cnf`, a password from MYSQL_PWD after that.
///
/// # Errors
/// `Invalid` for a URL that can't be right or a database that isn't there, `Unauthorized` when the server refuses user and
/// password, `Unsupported` for an older server, one that shares its writes with others, and a proxy that isn't the server
/// itself, `Unavailable` when the server can't be reached.
///
/// # Cancel safety
/// Safe: nothing is left behind.
pub async fn connect(url: StoreUrl) -> Result<Arc<dyn Backend>> {
    let config = config::Config::of(url, |name| std::env::var_os(name))?;
    Ok(Arc::new(backend::Mysql::connect(config).await?))
}

/// A connection of the driver to the server behind a URL, for what isn't locking: the fence of a resource that is kept
/// there. It is in the database that the URL names, or else in `leasehold`, where locks are counted, which is made if it
/// isn't there. It reads what is committed, and waits for nobody's row longer than three seconds.
///
/// # Errors
/// As [`connect`].
///
/// # Cancel safety
/// Safe.
pub async fn connection(url: StoreUrl) -> Result<mysql_async::Conn> {
    let config = config::Config::of(url, |name| std::env::var_os(name))?;
    let reached = reach::Reached::first(&config, link::Purpose::Look).await?;
    reached.into_conn(&config).await
}

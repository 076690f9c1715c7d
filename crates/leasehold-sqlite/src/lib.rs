//! The embedded store for one host: an SQLite file, with nothing to install.
//!
//! ```text
//!  Contender, Backend ──jobs──► database thread ──SQL──► locks.db
//!        ▲                        │   ▲    └─probes, bells─► locks.db.live/<id>   one file per process
//!        └───── signals ──────────┘   └── watch thread ◄──inotify──┘
//! ```
//!
//! - `database`: the thread that owns the connection; jobs in order, many to a transaction.
//! - `work`: what it works with: the open transaction, and whom its commit wakes.
//! - `table`: what the rows mean. `attempt`, `hold`, `look`: what is done with them.
//! - `liveness`: a locked file per process, by which others see that it lives.
//! - `watch`: how a waiter hears of a release or a death without polling.
//!
//! What it guarantees and when not: the crate's README.

mod attempt;
mod backend;
mod config;
mod contender;
mod database;
mod error;
mod hold;
mod host;
mod liveness;
mod look;
mod open;
mod signal;
mod table;
mod watch;
mod work;

use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::Result;
use leasehold_core::backend::Backend;
use leasehold_core::url::StoreUrl;

/// Connects to the file at `url`, `sqlite:///absolute/path`, which is made if it is not there. Its folder must
/// be. Beside the file there will be a folder of the same name with `.live` after it.
///
/// # Errors
/// `Invalid` when the URL or its path can't be right or the file is something else, `Unsupported` on a file
/// system that can't keep this store's promises and for a file of a newer version, `Unauthorized` when the
/// rights don't suffice, `Unavailable` when the file can't be used now.
///
/// # Cancel safety
/// Dropped before its end it leaves at most an empty store.
pub async fn connect(url: StoreUrl) -> Result<Arc<dyn Backend>> {
    let settings = config::Settings::from_url(&url)?;
    let store = settings.url.clone();
    match backend::SqliteBackend::connect(settings).await {
        Ok(backend) => Ok(Arc::new(backend)),
        Err(error) => Err(error.during("connect").on(&store)),
    }
}

/// The file that a URL names, which need not be there.
///
/// # Errors
/// `Invalid` when the URL or its path can't be right.
pub fn file(url: &StoreUrl) -> Result<PathBuf> {
    Ok(config::Settings::from_url(url)?.path)
}

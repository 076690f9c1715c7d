//! A store in a folder of its own, and other processes that use it.

mod agent;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Attempt, Backend, Contender, Grant};
use leasehold_core::clock::{self, Moment};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Claim, Client, Identity, Name, Owner, Result};

pub(crate) use agent::{Agent, agent};

pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A folder with a store's file in it; both go when this does.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    pub(crate) fn live(&self) -> PathBuf {
        self.folder.path().join("locks.db.live")
    }

    pub(crate) fn live_files(&self) -> usize {
        std::fs::read_dir(self.live()).unwrap().count()
    }

    pub(crate) fn url(&self) -> String {
        url_of(&self.file())
    }

    pub(crate) async fn backend(&self) -> Arc<dyn Backend> {
        connect(&self.file()).await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::new(self.backend().await, "").unwrap()
    }

    /// Runs SQL on the file as an operator might; the first column of the first row, if any.
    pub(crate) fn sql(&self, sql: &str) -> Option<String> {
        let connection = rusqlite::Connection::open(self.file()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let mut rows = statement.query([]).unwrap();
        let row = rows.next().unwrap()?;
        let value: rusqlite::types::Value = row.get(0).unwrap();
        Some(match value {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => format!("{other:?}"),
        })
    }
}

pub(crate) fn url_of(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

pub(crate) async fn connect(path: &Path) -> Result<Arc<dyn Backend>> {
    leasehold_sqlite::connect(StoreUrl::parse(&url_of(path)).unwrap()).await
}

pub(crate) fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

pub(crate) fn claim(lock: &str, ttl: Duration, waits: bool) -> Claim {
    Claim {
        name: name(lock),
        owner: Owner::random().unwrap(),
        ttl,
        waits,
        identity: Identity::of_this_process(),
    }
}

pub(crate) async fn contend(
    backend: &Arc<dyn Backend>,
    lock: &str,
    ttl: Duration,
    waits: bool,
) -> Box<dyn Contender> {
    backend.contend(claim(lock, ttl, waits)).await.unwrap()
}

/// A grant, or a panic that says who is in the way.
pub(crate) async fn granted(contender: &mut Box<dyn Contender>) -> Grant {
    match contender.try_acquire().await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Busy(busy) => panic!("{busy:?}"),
    }
}

/// The place in the queue, or a panic when it is granted.
pub(crate) async fn busy(contender: &mut Box<dyn Contender>) -> u32 {
    match contender.try_acquire().await.unwrap() {
        Attempt::Granted(grant) => panic!("{grant:?}"),
        Attempt::Busy(busy) => busy.position.unwrap(),
    }
}

/// The boot clock.
pub(crate) fn now() -> u64 {
    clock::now().boot
}

pub(crate) fn since(moment: Moment) -> Duration {
    clock::now().since(moment).steady
}

/// Tries until it is so; how long that took. Panics after `most`.
pub(crate) async fn until(most: Duration, mut so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = clock::now();
    while !so().await {
        let waited = since(begun);
        assert!(waited < most, "not so after {waited:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    since(begun)
}

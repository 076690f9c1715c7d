//! A PostgreSQL database as a store.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Backend, BackendInfo, Broken, Capabilities, Contender, Finding, Inspection, TokenGrade,
};
use leasehold_core::{Claim, Error, ErrorKind, Name, Owner, Result, Token, background};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::check;
use crate::config::Config;
use crate::contender::PostgresContender;
use crate::error::{Failure, unexpected};
use crate::keys::Key;
use crate::link::{Link, Purpose, get, within};
use crate::look;
use crate::probe;
use crate::session::{Pool, Sessions, Turns};
use crate::sql;

/// How long a question may take to be answered.
const PATIENCE: Duration = Duration::from_secs(3);
/// On how many sessions a client waits at once; what is beyond is tried now and then.
const WAITS_MAX: usize = 16;

/// What all contenders of a client share.
#[derive(Debug)]
pub(crate) struct Shared {
    config: Arc<Config>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) turns: Arc<Turns>,
    /// The sessions that may wait.
    pub(crate) waits: Arc<Semaphore>,
    /// The locks that may be held, and how many they are: with the server's table of locks full, nobody could log in.
    locks: Arc<Semaphore>,
    pub(crate) most: usize,
    /// A session that holds nothing, to look and to break through.
    desk: Mutex<Option<Arc<Link>>>,
}

impl Shared {
    /// The session to look through; begun on first use, and anew when it has ended.
    pub(crate) async fn desk(&self) -> Result<Arc<Link>> {
        let mut desk = self.desk.lock().await;
        if let Some(link) = desk.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let link = Arc::new(open(self.config.clone()).await?);
        *desk = Some(link.clone());
        Ok(link)
    }

    /// Asks one thing that may as well be asked twice: the session may have ended unseen.
    pub(crate) async fn ask(
        &self,
        text: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Failure> {
        let ask = async || {
            let desk = self.desk().await.map_err(Failure::Refused)?;
            within(PATIENCE, desk.rows(text, params)).await
        };
        match ask().await {
            Err(Failure::Closed(_)) => ask().await,
            answer => answer,
        }
    }

    /// Makes the table, if nobody has meanwhile.
    pub(crate) async fn make_table(&self) -> Result<(), Failure> {
        let desk = self.desk().await.map_err(Failure::Refused)?;
        let made = within(PATIENCE, desk.batch(sql::SCHEMA)).await;
        if made.is_err() {
            // Two who make it at once get in each other's way.
            let there = "SELECT 1 WHERE to_regclass('leasehold.locks') IS NOT NULL";
            if !self.ask(there, &[]).await?.is_empty() {
                return Ok(());
            }
        }
        made
    }

    /// A name's key.
    pub(crate) async fn key(&self, name: &Name) -> Result<Key> {
        let config = &self.config;
        if let Some(key) = config.scheme.key(name.as_str(), &config.database) {
            return Ok(key);
        }
        let rows = self.ask(sql::HASH, &[(&name.as_str(), Type::TEXT)]).await?;
        let row = rows.first().ok_or_else(|| unexpected("a name's hash"))?;
        Ok(Key::one(get(row, 0)?))
    }

    /// One of the locks that may be held.
    pub(crate) fn permit(&self) -> Result<OwnedSemaphorePermit> {
        self.locks.clone().try_acquire_owned().map_err(|_| {
            Error::new(
                ErrorKind::Unavailable,
                format!(
                    "this client holds {} locks, a quarter of the server's table; raise max_locks_per_transaction",
                    self.most
                ),
            )
        })
    }
}

/// Begins a session to look through, on the keeper's thread.
async fn open(config: Arc<Config>) -> Result<Link> {
    on_the_keeper(async move { Link::open(&config, Purpose::Look, || {}).await }).await
}

/// Runs something that begins connections where they are to live.
async fn on_the_keeper<T: Send + 'static>(
    task: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (done, outcome) = oneshot::channel();
    background::spawn(async move {
        let _ = done.send(task.await);
    })?;
    outcome
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the keeper is gone")))
}

#[derive(Debug)]
pub(crate) struct Postgres {
    info: BackendInfo,
    shared: Arc<Shared>,
}

impl Postgres {
    /// Connects, so that a wrong URL or password, or a pooler, shows at once.
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let config = Arc::new(config);
        let explain = |error: Error| error.during("connect").on(&config.shown);
        let probed = config.clone();
        on_the_keeper(async move { probe::probe(&probed).await })
            .await
            .map_err(explain)?;
        let desk = open(config.clone()).await.map_err(explain)?;
        let most = usize::try_from(desk.locks / 4).unwrap_or(0);
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        let shared = Shared {
            pool: Arc::new(Pool::new(Arc::new(Sessions(config.clone())))),
            turns: Arc::default(),
            waits: Arc::new(Semaphore::new(WAITS_MAX)),
            locks: Arc::new(Semaphore::new(most)),
            most,
            desk: Mutex::new(Some(Arc::new(desk))),
            config: config.clone(),
        };
        Ok(Self {
            info: BackendInfo {
                store: "postgres",
                url: config.shown.clone(),
                capabilities: Capabilities {
                    token: TokenGrade::Durable,
                    ordered: false,
                    push: true,
                    frees_dead_at_once: true,
                    detached: false,
                    extends: false,
                    list_scans: false,
                    ttl_min: Duration::from_secs(1),
                    ttl_max: Duration::from_secs(24 * 3600),
                },
            },
            shared: Arc::new(shared),
        })
    }
}

#[async_trait]
impl Backend for Postgres {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        let key = self.shared.key(&claim.name).await?;
        Ok(Box::new(PostgresContender::new(
            self.shared.clone(),
            claim,
            key,
        )?))
    }

    async fn resume(&self, _name: Name, _owner: Owner) -> Result<Box<dyn Contender>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "a hold on PostgreSQL ends with its session, so no other process can have it; use run",
        ))
    }

    async fn check(&self) -> Result<Vec<Finding>> {
        check::check(&self.shared).await
    }

    async fn inspect(&self, name: &Name) -> Result<Inspection> {
        look::inspect(&self.shared, name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Inspection>> {
        look::list(&self.shared, prefix).await
    }

    async fn break_hold(&self, name: &Name, token: Option<Token>) -> Result<Broken> {
        look::break_hold(&self.shared, name, token).await
    }

    fn inherit(&self) -> Option<OwnedFd> {
        None
    }

    async fn close(&self) {
        self.shared.pool.close().await;
        self.shared.desk.lock().await.take();
    }
}

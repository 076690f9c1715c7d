//! A PostgreSQL database as a store.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::advisory::{AdvisoryStore, Desk, Failure, Locks, Standing, within};
use leasehold_core::backend::{
    Backend, BackendInfo, Broken, Capabilities, Contender, Finding, Inspection, TokenGrade,
};
use leasehold_core::{Claim, Error, ErrorKind, Name, Owner, Result, Token, background};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::check;
use crate::config::Config;
use crate::error::unexpected;
use crate::keys::Key;
use crate::link::{Link, Purpose, get};
use crate::look;
use crate::probe;
use crate::sql;

/// How long a question may take to be answered.
const PATIENCE: Duration = Duration::from_secs(3);

/// The database, as everybody who locks there needs it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) config: Arc<Config>,
    /// The locks that may be held, and how many they are: with the server's table of locks full, nobody could log in.
    locks: Arc<Semaphore>,
    pub(crate) most: usize,
    desk: Desk<Link>,
}

impl Store {
    /// Asks one thing that may as well be asked twice: the session may have ended unseen.
    pub(crate) async fn ask(
        &self,
        text: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Failure> {
        let ask = async || {
            let desk = self.desk().await?;
            within(PATIENCE, desk.rows(text, params)).await
        };
        match ask().await {
            Err(Failure::Closed(_)) => ask().await,
            answer => answer,
        }
    }

    /// The lock of a name.
    pub(crate) async fn lock(&self, name: &Name) -> Result<Name> {
        let config = &self.config;
        if let Some(key) = config.scheme.key(name.as_str(), &config.database) {
            return key.lock();
        }
        let rows = self.ask(sql::HASH, &[(&name.as_str(), Type::TEXT)]).await?;
        let row = rows.first().ok_or_else(|| unexpected("a name's hash"))?;
        Key::one(get(row, 0)?).lock()
    }
}

#[async_trait]
impl AdvisoryStore for Store {
    type Link = Link;

    fn session_ttl(&self, ttl: Duration) -> Duration {
        ttl
    }

    fn permit(&self) -> Result<Option<OwnedSemaphorePermit>> {
        let permit = self.locks.clone().try_acquire_owned();
        permit.map(Some).map_err(|_| {
            Error::new(
                ErrorKind::Unavailable,
                format!(
                    "this client holds {} locks, a quarter of the server's table; raise max_locks_per_transaction",
                    self.most
                ),
            )
        })
    }

    async fn desk(&self) -> Result<Arc<Link>> {
        self.desk.link(open(self.config.clone())).await
    }

    async fn make_table(&self) -> Result<(), Failure> {
        let desk = self.desk().await?;
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

    async fn standing(&self, name: &Name, lock: &Name) -> Result<Standing> {
        Ok(look::stand(self, name, lock).await?.0)
    }

    async fn broken(&self, name: &Name) -> Result<Option<Token>> {
        look::broken(self, name).await
    }
}

/// Looks whether there is a pooler, and begins a session to look through on the connection that this took.
async fn first(config: Arc<Config>) -> Result<Link> {
    let own = probe::probe(&config).await?;
    match within(PATIENCE, Link::begin(&config, own, Purpose::Look)).await {
        Ok((link, _)) => Ok(link),
        // A standby, perhaps, and another one is the primary.
        Err(_) => open(config).await,
    }
}

/// Begins a session to look through.
async fn open(config: Arc<Config>) -> Result<Link> {
    Link::open(&config, Purpose::Look, || {}).await
}

#[derive(Debug)]
pub(crate) struct Postgres {
    info: BackendInfo,
    locks: Arc<Locks<Store>>,
}

impl Postgres {
    /// Connects, so that a wrong URL or password, or a pooler, shows at once.
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let config = Arc::new(config);
        let explain = |error: Error| error.during("connect").on(&config.shown);
        let desk = background::run(first(config.clone())).await;
        let desk = desk.map_err(explain)?;
        let most = usize::try_from(desk.locks / 4).unwrap_or(0);
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        let store = Store {
            locks: Arc::new(Semaphore::new(most)),
            most,
            desk: Desk::new(desk),
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
            locks: Locks::new(store),
        })
    }
}

#[async_trait]
impl Backend for Postgres {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        let lock = self.locks.store.lock(&claim.name).await?;
        Ok(self.locks.contend(claim, lock))
    }

    async fn resume(&self, _name: Name, _owner: Owner) -> Result<Box<dyn Contender>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "a hold on PostgreSQL ends with its session, so no other process can have it; use run",
        ))
    }

    async fn check(&self) -> Result<Vec<Finding>> {
        check::check(&self.locks.store).await
    }

    async fn inspect(&self, name: &Name) -> Result<Inspection> {
        look::inspect(&self.locks.store, name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Inspection>> {
        look::list(&self.locks.store, prefix).await
    }

    async fn break_hold(&self, name: &Name, token: Option<Token>) -> Result<Broken> {
        look::break_hold(&self.locks.store, name, token).await
    }

    fn inherit(&self) -> Option<OwnedFd> {
        None
    }

    async fn close(&self) {
        self.locks.close().await;
        self.locks.store.desk.close().await;
    }
}

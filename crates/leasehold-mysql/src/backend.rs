//! A MySQL or MariaDB server as a store.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::advisory::{AdvisoryStore, Desk, Failure, Locks, Standing, within};
use leasehold_core::backend::{
    Backend, BackendInfo, Broken, Capabilities, Contender, Finding, Inspection, TokenGrade,
};
use leasehold_core::{Claim, Error, ErrorKind, Name, Owner, Result, Token, background};
use mysql_async::Params;
use tokio::sync::OwnedSemaphorePermit;

use crate::check;
use crate::config::Config;
use crate::link::{Answer, Link, Purpose, whole};
use crate::look;
use crate::sql;

/// The longest TTL.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long a question may take to be answered.
const PATIENCE: Duration = Duration::from_secs(3);

/// The server, as everybody who locks there needs it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) config: Arc<Config>,
    desk: Desk<Link>,
}

impl Store {
    /// Asks one thing that may as well be asked twice: the session may have ended unseen. `params` is told when the
    /// server started.
    pub(crate) async fn ask(
        &self,
        text: &str,
        params: impl Fn(i64) -> Params,
    ) -> Result<Answer, Failure> {
        let ask = async || {
            let desk = self.desk().await?;
            within(PATIENCE, desk.ask(text.to_owned(), params(desk.start))).await
        };
        match ask().await {
            Err(Failure::Closed(_)) => ask().await,
            answer => answer,
        }
    }
}

#[async_trait]
impl AdvisoryStore for Store {
    type Link = Link;

    fn session_ttl(&self, ttl: Duration) -> Duration {
        whole(ttl)
    }

    fn permit(&self) -> Result<Option<OwnedSemaphorePermit>> {
        Ok(None)
    }

    async fn desk(&self) -> Result<Arc<Link>> {
        self.desk.link(open(self.config.clone())).await
    }

    async fn make_table(&self) -> Result<(), Failure> {
        let mut made = Ok(());
        for statement in sql::SCHEMA.lines() {
            made = self.ask(statement, |_| Params::Empty).await.map(drop);
            if made.is_err() {
                break;
            }
        }
        // A user who may not make it may find it made, and two who make it at once get in each other's way.
        match made {
            Err(failure) => match self.ask(sql::IS_THERE, |_| Params::Empty).await {
                Ok(_) => Ok(()),
                Err(_) => Err(failure),
            },
            Ok(()) => Ok(()),
        }
    }

    async fn standing(&self, name: &Name, _: &Name) -> Result<Standing> {
        look::standing(self, name).await
    }

    async fn broken(&self, name: &Name) -> Result<Option<Token>> {
        look::broken(self, name).await
    }
}

/// Begins a session to look through.
async fn open(config: Arc<Config>) -> Result<Link> {
    Link::open(&config, Purpose::Look, || {}).await
}

#[derive(Debug)]
pub(crate) struct Mysql {
    info: BackendInfo,
    locks: Arc<Locks<Store>>,
}

impl Mysql {
    /// Connects, so that a wrong URL or password, or a server that can't do it, shows at once.
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let config = Arc::new(config);
        let desk = background::run(open(config.clone())).await;
        let desk = desk.map_err(|error| error.during("connect").on(&config.shown))?;
        let store = Store {
            desk: Desk::new(desk),
            config: config.clone(),
        };
        Ok(Self {
            info: BackendInfo {
                store: "mysql",
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
                    ttl_max: TTL_MAX,
                },
            },
            locks: Locks::new(store),
        })
    }
}

#[async_trait]
impl Backend for Mysql {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        let lock = claim.name.clone();
        Ok(self.locks.contend(claim, lock))
    }

    async fn resume(&self, _name: Name, _owner: Owner) -> Result<Box<dyn Contender>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "a hold on MySQL ends with its session, so no other process can have it; use run",
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

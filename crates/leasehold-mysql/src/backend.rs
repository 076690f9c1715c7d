//! A MySQL or MariaDB server as a store.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Backend, BackendInfo, Broken, Capabilities, Contender, Finding, Inspection, TokenGrade,
};
use leasehold_core::{Claim, Error, ErrorKind, Name, Owner, Result, Token, background};
use mysql_async::Params;
use tokio::sync::{Mutex, Semaphore, oneshot};

use crate::check;
use crate::config::Config;
use crate::contender::MysqlContender;
use crate::error::Failure;
use crate::link::{Answer, Link, Purpose, within};
use crate::look;
use crate::session::{Pool, Sessions, Turns};
use crate::sql;

/// The longest TTL.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
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

    /// Asks one thing that may as well be asked twice: the session may have ended unseen. `params` is told when the
    /// server started.
    pub(crate) async fn ask(
        &self,
        text: &str,
        params: impl Fn(i64) -> Params,
    ) -> Result<Answer, Failure> {
        let ask = async || {
            let desk = self.desk().await.map_err(Failure::Refused)?;
            within(PATIENCE, desk.ask(text.to_owned(), params(desk.start))).await
        };
        match ask().await {
            Err(Failure::Closed(_)) => ask().await,
            answer => answer,
        }
    }

    /// Makes the table, if nobody has meanwhile.
    pub(crate) async fn make_table(&self) -> Result<(), Failure> {
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
}

/// Begins a session to look through, on the keeper's thread.
async fn open(config: Arc<Config>) -> Result<Link> {
    let (done, outcome) = oneshot::channel();
    background::spawn(async move {
        let _ = done.send(Link::open(&config, Purpose::Look, || {}).await);
    })?;
    outcome
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the keeper is gone")))
}

#[derive(Debug)]
pub(crate) struct Mysql {
    info: BackendInfo,
    shared: Arc<Shared>,
}

impl Mysql {
    /// Connects, so that a wrong URL or password, or a server that can't do it, shows at once.
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let config = Arc::new(config);
        let desk = open(config.clone()).await;
        let desk = desk.map_err(|error| error.during("connect").on(&config.shown))?;
        let shared = Shared {
            pool: Arc::new(Pool::new(Arc::new(Sessions(config.clone())))),
            turns: Arc::default(),
            waits: Arc::new(Semaphore::new(WAITS_MAX)),
            desk: Mutex::new(Some(Arc::new(desk))),
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
            shared: Arc::new(shared),
        })
    }
}

#[async_trait]
impl Backend for Mysql {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        Ok(Box::new(MysqlContender::new(self.shared.clone(), claim)))
    }

    async fn resume(&self, _name: Name, _owner: Owner) -> Result<Box<dyn Contender>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "a hold on MySQL ends with its session, so no other process can have it; use run",
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

//! A ZooKeeper ensemble as a store.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Backend, BackendInfo, Broken, Capabilities, Contender, Finding, Inspection, TokenGrade,
};
use leasehold_core::{Claim, Error, ErrorKind, Name, Owner, Result, Token, background};
use tokio::sync::Mutex;

use crate::check;
use crate::config::Config;
use crate::contender::{ZooKeeperContender, texts};
use crate::error::Failure;
use crate::keys;
use crate::link::Link;
use crate::look;
use crate::session::{Ensemble, PATIENCE, Pool};
use crate::wire::Request;

/// How long all servers together may take to answer a try: the wait loop gives up a little later.
const TRY: Duration = Duration::from_millis(4500);
/// How many servers a try turns to in that time.
const TURNS: u32 = 3;

/// What all contenders of a client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) pool: Arc<Pool>,
    /// A session without nodes, to look and to break through.
    desk: Mutex<Option<Arc<Link>>>,
}

impl Shared {
    /// How many servers a try turns to.
    pub(crate) fn turns(&self) -> u32 {
        let servers = u32::try_from(self.config.hosts.len()).unwrap_or(TURNS);
        servers.clamp(2, TURNS)
    }

    /// How long one server may take.
    pub(crate) fn patience(&self) -> Duration {
        TRY / self.turns()
    }

    /// The session to look through; begun on first use, and anew when it has ended.
    pub(crate) async fn desk(&self) -> Result<Arc<Link>> {
        let mut desk = self.desk.lock().await;
        if let Some(link) = desk.as_ref().filter(|link| !link.is_over()) {
            return Ok(link.clone());
        }
        let link = Arc::new(open(self.config.clone(), Duration::MAX).await?);
        *desk = Some(link.clone());
        Ok(link)
    }

    /// Asks one thing that may as well be asked twice.
    pub(crate) async fn ask<const N: usize>(
        &self,
        requests: [Request; N],
    ) -> Result<[Result<crate::wire::Answer, Failure>; N]> {
        let mut tried = 1;
        loop {
            let desk = self.desk().await?;
            let answers = desk.call(requests.clone(), self.patience()).await;
            let again = answers
                .iter()
                .any(|answer| matches!(answer, Err(Failure::Unanswered(_) | Failure::SessionOver)));
            if !again || tried >= self.turns() {
                return Ok(answers);
            }
            tried += 1;
        }
    }

    /// The places in a lock's queue, in their order.
    pub(crate) async fn queue(&self, name: &Name) -> Result<Vec<String>> {
        let lock = self.config.path(name);
        let [synced, children] = self
            .ask([Request::sync(&lock), Request::children(&lock)])
            .await?;
        match synced.and(children) {
            Ok(children) => Ok(keys::queue(texts(&children)?)),
            Err(Failure::NoNode) => Ok(Vec::new()),
            Err(failure) => Err(failure.into()),
        }
    }
}

/// Begins a session on the keeper's thread.
async fn open(config: Arc<Config>, timeout: Duration) -> Result<Link> {
    background::run(async move { Link::open(config, timeout, || {}).await }).await
}

#[derive(Debug)]
pub(crate) struct ZooKeeper {
    info: BackendInfo,
    shared: Arc<Shared>,
}

impl ZooKeeper {
    /// Connects, so that a wrong URL or password shows at once.
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let config = Arc::new(config);
        let shared = Shared {
            pool: Arc::new(Pool::new(Arc::new(Ensemble(config.clone())))),
            config: config.clone(),
            desk: Mutex::default(),
        };
        let explain = |error: Error| error.during("connect").on(&config.shown);
        let (shortest, longest) = probe(&shared).await.map_err(explain)?;
        Ok(Self {
            info: BackendInfo {
                store: "zookeeper",
                url: config.shown.clone(),
                capabilities: Capabilities {
                    token: TokenGrade::Quorum,
                    ordered: true,
                    push: true,
                    frees_dead_at_once: false,
                    detached: false,
                    extends: false,
                    list_scans: true,
                    ttl_min: shortest,
                    ttl_max: longest,
                },
            },
            shared: Arc::new(shared),
        })
    }
}

/// Finds out how long sessions can last, and whether chroot and server are what they are to be.
async fn probe(shared: &Shared) -> Result<(Duration, Duration)> {
    let root = shared.config.root();
    // A server before 3.6 doesn't know the first and ends the connection.
    let [own, found] = shared
        .ask([Request::own(root), Request::exists(root, false)])
        .await?;
    own?;
    match found {
        Ok(_) => {}
        Err(Failure::NoNode) => {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "there is no node {root} to be the root; make it with zkCli.sh, create {root}"
                ),
            ));
        }
        Err(failure) => return Err(failure.into()),
    }
    let longest = shared.desk().await?.timeout();
    // A session tells its bounds by what it is granted. It ends at once.
    let shortest = open(shared.config.clone(), Duration::ZERO).await?.timeout();
    Ok((shortest, longest))
}

#[async_trait]
impl Backend for ZooKeeper {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        keys::not_a_place(&claim.name)?;
        Ok(Box::new(ZooKeeperContender::new(
            self.shared.clone(),
            claim,
        )))
    }

    async fn resume(&self, _name: Name, _owner: Owner) -> Result<Box<dyn Contender>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "a hold on ZooKeeper ends with its session, so no other process can have it; use run",
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
        if let Some(desk) = self.shared.desk.lock().await.take() {
            desk.close(PATIENCE).await;
        }
    }
}

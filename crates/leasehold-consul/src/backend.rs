//! A Consul cluster as a store.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Backend, BackendInfo, Broken, Capabilities, Contender, Finding, Inspection, TokenGrade,
};
use leasehold_core::{Claim, Error, ErrorKind, Name, Owner, Result, Token, background};

use crate::check::{self, Agent};
use crate::config::Config;
use crate::contender::ConsulContender;
use crate::feed::Feed;
use crate::link::{Call, Link};
use crate::look;
use crate::resumed::Resumed;
use crate::session::{Pool, Renewals, Seat, whole};

/// How long all agents together may take to answer a try: the wait loop gives up a little later.
const PATIENCE: Duration = Duration::from_millis(4500);
/// How many agents a try turns to in that time.
const TURNS: u32 = 3;
/// The longest TTL that Consul takes.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);

/// What all contenders of a client share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Grants and releases: on the caller's runtime.
    grants: Link,
    /// Renewals, sessions and watches: on the keeper's runtime.
    renewals: Arc<Link>,
    pool: Arc<Pool>,
    pub(crate) feed: Feed,
    /// The shortest TTL that a session may have.
    pub(crate) ttl_min: Duration,
    /// The highest index that any lock's key was seen at.
    seen: AtomicU64,
}

impl Shared {
    /// What to ask through from here.
    pub(crate) fn link(&self) -> &Link {
        // A caller's runtime may stand still while the keeper gives back what the caller dropped.
        if background::is_here() {
            &self.renewals
        } else {
            &self.grants
        }
    }

    /// How many agents there are to turn to.
    pub(crate) fn agents(&self) -> usize {
        self.grants.agents()
    }

    /// How long one agent may take.
    pub(crate) fn patience(&self) -> Duration {
        let agents = u32::try_from(self.agents()).unwrap_or(TURNS);
        PATIENCE / agents.clamp(1, TURNS)
    }

    /// A place for an attempt on `name` on a session that lasts `ttl`.
    pub(crate) fn seat(&self, name: &Name, ttl: Duration) -> Result<Seat> {
        self.pool.seat(name, whole(ttl))
    }

    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    pub(crate) fn saw(&self, index: u64) {
        self.seen.fetch_max(index, Ordering::AcqRel);
    }
}

#[derive(Debug)]
pub(crate) struct Consul {
    info: BackendInfo,
    shared: Arc<Shared>,
    config: Config,
}

fn capabilities(ttl_min: Duration) -> Capabilities {
    Capabilities {
        token: TokenGrade::Quorum,
        ordered: false,
        push: true,
        frees_dead_at_once: false,
        detached: true,
        extends: true,
        list_scans: true,
        ttl_min,
        ttl_max: TTL_MAX,
    }
}

impl Consul {
    /// Connects, so that a wrong URL or token shows at once.
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let renewals = Arc::new(Link::new(&config)?);
        let store = Renewals {
            link: renewals.clone(),
            lock_delay: config.lock_delay,
        };
        let mut shared = Shared {
            grants: Link::new(&config)?,
            feed: Feed::new(renewals.clone()),
            renewals,
            pool: Arc::new(Pool::new(Arc::new(store))),
            ttl_min: Duration::ZERO,
            seen: AtomicU64::new(0),
        };
        let explain = |error: Error| error.during("connect").on(&config.shown);
        let patience = shared.patience();
        let agent = Agent::ask(&shared.grants, patience)
            .await
            .map_err(|failure| explain(failure.into()))?;
        shared.ttl_min = check::ttl_min(agent.as_ref());
        let leader = Call::get("/v1/status/leader".into());
        let leader = shared
            .grants
            .ask(&leader, patience)
            .await
            .map_err(|failure| explain(failure.into()))?;
        if leader.body.trim_ascii() == b"\"\"" {
            return Err(explain(Error::new(
                ErrorKind::Unavailable,
                "the cluster has no leader; are most of its servers up?",
            )));
        }
        Ok(Self {
            info: BackendInfo {
                store: "consul",
                url: config.shown.clone(),
                capabilities: capabilities(shared.ttl_min),
            },
            shared: Arc::new(shared),
            config,
        })
    }
}

#[async_trait]
impl Backend for Consul {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        Ok(Box::new(ConsulContender::new(self.shared.clone(), claim)))
    }

    async fn resume(&self, name: Name, owner: Owner) -> Result<Box<dyn Contender>> {
        Ok(Box::new(Resumed::new(self.shared.clone(), name, owner)))
    }

    async fn check(&self) -> Result<Vec<Finding>> {
        check::check(&self.config, &self.shared).await
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
    }
}

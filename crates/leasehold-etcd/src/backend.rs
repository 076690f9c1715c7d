//! An etcd cluster as a store.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Backend, BackendInfo, Broken, Capabilities, Contender, Finding, Inspection, TokenGrade,
};
use leasehold_core::{Claim, Name, Owner, Result, Token};

use crate::check::{self, Version};
use crate::config::Config;
use crate::contender::EtcdContender;
use crate::feed::Feed;
use crate::keys::{self, FAMILY};
use crate::link::{Common, Link};
use crate::look;
use crate::resumed::Resumed;
use crate::session::{Pool, Seat, whole};
use crate::wire::{RangeRequest, StatusRequest};

/// How long all members together may take to answer a try: the wait loop gives up a little later.
const PATIENCE: Duration = Duration::from_millis(4500);
/// How many members a try turns to in that time.
const TURNS: u32 = 3;

/// What all contenders of a client share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Grants and releases: on the caller's runtime.
    pub(crate) grants: Link,
    /// Renewals, sessions and watches: on the keeper's runtime.
    renewals: Arc<Link>,
    pool: Arc<Pool>,
    pub(crate) feed: Feed,
}

impl Shared {
    /// A place for an attempt on `name` on a session whose lease lasts `ttl`.
    pub(crate) fn seat(&self, name: &Name, ttl: Duration) -> Result<Seat> {
        self.pool.seat(name, whole(ttl))
    }

    /// How long one member may take.
    pub(crate) fn patience(&self) -> Duration {
        let members = u32::try_from(self.grants.members()).unwrap_or(TURNS);
        PATIENCE / members.clamp(1, TURNS)
    }
}

#[derive(Debug)]
pub(crate) struct Etcd {
    info: BackendInfo,
    shared: Arc<Shared>,
    config: Config,
}

pub(crate) fn capabilities(version: Version) -> Capabilities {
    Capabilities {
        token: if version.keeps_leases() {
            TokenGrade::Quorum
        } else {
            TokenGrade::Durable
        },
        ordered: true,
        push: true,
        frees_dead_at_once: false,
        detached: true,
        extends: true,
        list_scans: true,
        ttl_min: Duration::from_secs(2),
        ttl_max: Duration::from_secs(7 * 24 * 3600),
    }
}

impl Etcd {
    /// Connects, so that a wrong URL or password shows at once.
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let common = Arc::new(Common::default());
        let renewals = Arc::new(Link::new(&config, common.clone()));
        let pool = Arc::new(Pool::new(renewals.clone()));
        let shared = Shared {
            grants: Link::new(&config, common),
            feed: Feed::start(renewals.clone(), Arc::downgrade(&pool))?,
            renewals,
            pool,
        };
        let explain = |error: leasehold_core::Error| error.during("connect").on(&config.shown);
        let status = shared
            .grants
            .ask(StatusRequest {}, shared.patience())
            .await
            .map_err(|failure| explain(failure.into()))?;
        // Shows that there is a leader, and that the user may read what every session writes.
        let probe = RangeRequest {
            limit: 1,
            keys_only: true,
            range_end: keys::behind(FAMILY.as_bytes()),
            ..RangeRequest::one(FAMILY.as_bytes())
        };
        shared
            .grants
            .ask(probe, shared.patience())
            .await
            .map_err(|failure| explain(failure.into()))?;
        let version = Version::of(&status.version);
        check::warn_once(version, &config.shown);
        Ok(Self {
            info: BackendInfo {
                store: "etcd",
                url: config.shown.clone(),
                capabilities: capabilities(version),
            },
            shared: Arc::new(shared),
            config,
        })
    }
}

#[async_trait]
impl Backend for Etcd {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        keys::not_of_the_family(&claim.name)?;
        Ok(Box::new(EtcdContender::new(self.shared.clone(), claim)))
    }

    async fn resume(&self, name: Name, owner: Owner) -> Result<Box<dyn Contender>> {
        keys::not_of_the_family(&name)?;
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
        keys::not_of_the_family(name)?;
        look::break_hold(&self.shared, name, token).await
    }

    fn inherit(&self) -> Option<OwnedFd> {
        None
    }

    async fn close(&self) {
        self.shared.pool.close().await;
        self.shared.renewals.close();
        self.shared.grants.close();
    }
}

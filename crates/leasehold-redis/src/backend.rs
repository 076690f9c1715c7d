//! Redis as a store, whatever its topology.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Backend, BackendInfo, Broken, Capabilities, Contender, Finding, Inspection, TokenGrade,
};
use leasehold_core::{Claim, Error, ErrorKind, Identity, Name, Owner, Result, Token};
use redis::cmd;
use tokio::sync::oneshot;

use crate::check;
use crate::config::Config;
use crate::contender::RedisContender;
use crate::keys::{FAMILY, Family, Keys};
use crate::link::Link;
use crate::renewer::Renewer;
use crate::replicas::Replicas;
use crate::reply::{self, Fields};
use crate::script::{BREAK, INSPECT};
use crate::servers::Servers;
use crate::subscriber::Subscriber;
use crate::topology::Topology;

/// How long a grant or a release may go unanswered before the connection is given up.
const GRANT: Duration = Duration::from_secs(5);
/// How long a batch of renewals may: several must fit into a lease.
const RENEWAL: Duration = Duration::from_secs(2);

/// What all contenders of a client share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Grants and releases: on the caller's runtime.
    pub(crate) grants: Servers,
    /// Renewals: on the keeper's.
    pub(crate) renewer: Renewer,
    pub(crate) subscriber: Subscriber,
    pub(crate) always_hand_over: bool,
    /// Who must have a grant before it is one.
    pub(crate) replicas: Option<Replicas>,
    pub(crate) described: Descriptions,
}

/// The last identity that went out, with its text: nearly always the same one goes out again.
#[derive(Debug, Default)]
pub(crate) struct Descriptions(Mutex<Option<(Arc<Identity>, Arc<str>)>>);

impl Descriptions {
    /// What others are told of a holder: JSON.
    pub(crate) fn of(&self, identity: &Arc<Identity>) -> Arc<str> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, text)) = &*last
            && Arc::ptr_eq(of, identity)
        {
            return text.clone();
        }
        // Text and numbers always become JSON.
        let text: Arc<str> = serde_json::to_string(&**identity)
            .unwrap_or_default()
            .into();
        *last = Some((identity.clone(), text.clone()));
        text
    }
}

#[derive(Debug)]
pub(crate) struct Redis {
    info: BackendInfo,
    topology: Topology,
    /// Dropping it ends the watch for another master.
    _watching: Option<oneshot::Sender<()>>,
    shared: Arc<Shared>,
}

pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        token: TokenGrade::BestEffort,
        ordered: true,
        push: true,
        frees_dead_at_once: false,
        detached: true,
        extends: true,
        list_scans: true,
        ttl_min: Duration::from_millis(100),
        ttl_max: Duration::from_secs(7 * 24 * 3600),
    }
}

impl Redis {
    /// Connects, so that a wrong URL or password shows at once.
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let place = Topology::of(config.place);
        let grants = place.servers(GRANT);
        let found = check::greet(&grants, &place, &config.shown).await;
        found.map_err(|error| error.during("connect").on(&config.shown))?;
        let renewer = Renewer::start(Arc::new(place.servers(RENEWAL)), Family::Single)?;
        let id = Owner::random()?.to_hex();
        let replicas = config
            .replicas
            .map(|wanted| Replicas::new(wanted, || place.servers(GRANT)));
        Ok(Self {
            info: BackendInfo {
                store: "redis",
                url: config.shown,
                capabilities: capabilities(),
            },
            shared: Arc::new(Shared {
                grants,
                renewer,
                subscriber: place.subscriber(id),
                always_hand_over: config.always_hand_over,
                replicas,
                described: Descriptions::default(),
            }),
            _watching: place.watch()?,
            topology: place,
        })
    }

    async fn look(&self, name: &Name) -> Result<Inspection> {
        let keys = Keys::of(name);
        let keys = [
            keys.lock.as_str(),
            &keys.counter,
            &keys.queue,
            &keys.waiters,
        ];
        let answer = self.shared.grants.ask(&INSPECT, &keys, &[]).await?;
        let mut fields = Fields::of(answer)?;
        if fields.text()? == "type" {
            return Err(reply::not_a_lock(&fields.text()?));
        }
        let held = fields.int()? == 1;
        let ours = fields.int()? == 1;
        let mut holder = fields.holder()?;
        let mut inspection = Inspection::free(name.clone());
        inspection.last_token = holder.token;
        if !ours {
            holder.token = None;
        }
        inspection.holder = held.then_some(holder);
        inspection.waiters = fields
            .texts()?
            .iter()
            .map(|json| reply::identity(json))
            .collect();
        Ok(inspection)
    }
}

/// Gathers the names of locks that one server has, or had lately.
pub(crate) async fn scan(
    master: &Link,
    family: Family,
    prefix: &str,
    names: &mut BTreeSet<Name>,
) -> Result<()> {
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(&cursor)
            .arg("MATCH")
            .arg(family.counters(prefix))
            .arg("COUNT")
            .arg(1000);
        let (next, found): (String, Vec<String>) =
            redis::from_redis_value(master.command(&scan).await?)
                .map_err(|error| Error::new(ErrorKind::Bug, error.to_string()))?;
        let locks = found.iter().filter_map(|counter| family.lock_of(counter));
        names.extend(
            locks
                .filter(|lock| lock.starts_with(prefix))
                .filter_map(|lock| Name::new(lock).ok()),
        );
        if next == "0" {
            return Ok(());
        }
        cursor = next;
    }
}

/// Refuses the names of leasehold's own keys.
pub(crate) fn not_a_sibling(name: &Name) -> Result<()> {
    if !name.as_str().starts_with(FAMILY) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Invalid,
        format!(
            "names that begin with \"{FAMILY}\", by themselves or with the prefix, are leasehold's own keys; choose \
             another"
        ),
    ))
}

#[async_trait]
impl Backend for Redis {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        not_a_sibling(&claim.name)?;
        Ok(Box::new(RedisContender::new(self.shared.clone(), claim)))
    }

    async fn resume(&self, name: Name, owner: Owner) -> Result<Box<dyn Contender>> {
        not_a_sibling(&name)?;
        Ok(Box::new(RedisContender::resumed(
            self.shared.clone(),
            name,
            owner,
        )))
    }

    async fn check(&self) -> Result<Vec<Finding>> {
        check::check(
            &self.shared.grants,
            &self.topology,
            self.shared.replicas.as_ref(),
        )
        .await
    }

    async fn inspect(&self, name: &Name) -> Result<Inspection> {
        not_a_sibling(name)?;
        self.look(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Inspection>> {
        let mut names = BTreeSet::new();
        for (_, master) in self.shared.grants.masters().await? {
            scan(&master, Family::Single, prefix, &mut names).await?;
        }
        let mut held = Vec::new();
        for name in names {
            match self.look(&name).await {
                Ok(inspection) if inspection.holder.is_some() => held.push(inspection),
                // Its key is something else since: no lock of anybody's, and no reason to hide the others.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                looked => drop(looked?),
            }
        }
        Ok(held)
    }

    async fn break_hold(&self, name: &Name, token: Option<Token>) -> Result<Broken> {
        not_a_sibling(name)?;
        let keys = Keys::of(name);
        let keys = [
            keys.lock.as_str(),
            &keys.counter,
            &keys.queue,
            &keys.waiters,
            &Keys::broken(name),
        ];
        let token = token.map_or_else(String::new, |token| token.to_string());
        let answer = self.shared.grants.call(&BREAK, &keys, &[&token]).await?;
        let mut fields = Fields::of(answer)?;
        match fields.text()?.as_str() {
            "free" => Ok(Broken::Free),
            "ended" => {
                fields.int()?;
                Ok(Broken::Ended(fields.holder()?))
            }
            "other" => {
                fields.int()?;
                Ok(Broken::OtherToken(fields.holder()?))
            }
            "type" => Err(reply::not_a_lock(&fields.text()?)),
            other => Err(reply::unexpected(&other)),
        }
    }

    fn inherit(&self) -> Option<OwnedFd> {
        None
    }

    async fn close(&self) {
        self.shared.grants.close();
        if let Some(replicas) = &self.shared.replicas {
            replicas.close();
        }
    }
}

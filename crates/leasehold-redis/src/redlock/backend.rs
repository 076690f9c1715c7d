//! Several independent nodes as a store.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Backend, BackendInfo, Broken, Capabilities, Contender, Finding, Inspection, TokenGrade,
};
use leasehold_core::{Claim, Error, ErrorKind, Name, Owner, Result, Token};

use super::census;
use super::config::Config;
use super::contender::RedlockContender;
use super::findings;
use super::look::{self, Sight};
use super::members;
use super::panel::Panel;
use super::script;
use crate::backend::{not_a_sibling, scan};
use crate::keys::Family;

#[derive(Debug)]
pub(crate) struct Redlock {
    info: BackendInfo,
    panel: Arc<Panel>,
}

fn capabilities() -> Capabilities {
    Capabilities {
        token: TokenGrade::Quorum,
        ordered: true,
        push: true,
        frees_dead_at_once: false,
        detached: true,
        extends: true,
        list_scans: true,
        ttl_min: Duration::from_millis(100),
        // So long is a node out that lost its memory, once somebody has asked for it.
        ttl_max: Duration::from_secs(24 * 3600),
    }
}

impl Redlock {
    /// Connects, so that nodes which are no set, a wrong password or nodes that are all away show at once.
    pub(crate) async fn connect(config: Config) -> Result<Self> {
        let panel = Panel::connect(&config).await?;
        let census = panel.newest();
        let nobody = census.accounts.iter().all(Result::is_err);
        let error = census
            .unusable(&panel.members)
            .or_else(|| nobody.then(|| census.no_majority(&panel.members)));
        if let Some(error) = error {
            return Err(error.during("connect").on(&config.shown));
        }
        Ok(Self {
            info: BackendInfo {
                store: "redlock",
                url: config.shown,
                capabilities: capabilities(),
            },
            panel: Arc::new(panel),
        })
    }

    /// An operator says that no hold from before is relied on: all nodes that answer count from now on.
    pub(crate) async fn rejoin(config: Config) -> Result<Vec<Finding>> {
        let panel = Panel::connect(&config).await?;
        let census = census::take(&panel.members, members::rejoin).await;
        if let Some(error) = census.unusable(&panel.members) {
            return Err(error.during("rejoin").on(&config.shown));
        }
        panel.members.take_in(census);
        let counted = panel.counted().await;
        counted.map_err(|error| error.during("rejoin").on(&config.shown))?;
        Ok(findings::of(&panel.newest(), &panel.members))
    }

    async fn sight(&self, name: &Name) -> Result<Sight> {
        let counted = self.panel.counted().await?;
        let keys = script::look_keys(name);
        let views = self.panel.ask(counted, |site| site.look(&keys)).await?;
        look::sight(self.panel.quorum(), &views)
            .ok_or_else(|| Error::new(ErrorKind::Bug, "a majority shows no lock"))
    }

    async fn seen(&self, name: &Name) -> Result<Inspection> {
        let sight = self.sight(name).await?;
        let mut inspection = Inspection::free(name.clone());
        inspection.holder = sight.holder.map(|(_, holder)| holder);
        inspection.last_token = sight.last_token;
        inspection.waiters = sight.waiters;
        let others = self.panel.newest().others(&self.panel.members);
        inspection.remarks = others.lines().collect();
        Ok(inspection)
    }
}

#[async_trait]
impl Backend for Redlock {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        not_a_sibling(&claim.name)?;
        let contender = RedlockContender::new(self.panel.clone(), claim);
        Ok(Box::new(contender))
    }

    async fn resume(&self, name: Name, owner: Owner) -> Result<Box<dyn Contender>> {
        not_a_sibling(&name)?;
        let contender = RedlockContender::resumed(self.panel.clone(), name, owner);
        Ok(Box::new(contender))
    }

    async fn check(&self) -> Result<Vec<Finding>> {
        self.panel.census().await;
        Ok(findings::of(&self.panel.newest(), &self.panel.members))
    }

    async fn inspect(&self, name: &Name) -> Result<Inspection> {
        self.seen(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Inspection>> {
        // A lock is on a majority, so any majority shows them all.
        let counted = self.panel.counted().await?;
        let names = self.panel.ask(counted, |site| async move {
            let mut names = BTreeSet::new();
            scan(&site.grants, Family::Redlock, prefix, &mut names).await?;
            Ok(names)
        });
        let names = names.await?;
        let names: BTreeSet<Name> = names.into_iter().flatten().collect();
        let mut held = Vec::new();
        for name in names {
            match self.seen(&name).await {
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
        let Some((value, holder)) = self.sight(name).await?.holder else {
            return Ok(Broken::Free);
        };
        if token.is_some() && token != holder.token {
            return Ok(Broken::OtherToken(holder));
        }
        let keys = script::break_keys(name);
        let counted = self.panel.counted().await?;
        let broken = self
            .panel
            .ask(counted, |site| site.take_away(&keys, &value));
        match broken.await {
            Ok(_) => Ok(Broken::Ended(holder)),
            Err(error) if error.is_retryable() => Err(Error::new(
                ErrorKind::Ambiguous,
                format!("it may or may not be broken: {}", error.message()),
            )),
            Err(error) => Err(error),
        }
    }

    fn inherit(&self) -> Option<OwnedFd> {
        None
    }

    async fn close(&self) {
        self.panel.settled().await;
        self.panel.close();
    }
}

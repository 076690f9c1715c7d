//! The store, connected.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Backend, BackendInfo, Broken, Capabilities, Contender, Finding, TokenGrade,
};
use leasehold_core::{Claim, Identity, Inspection, Name, Owner, Result, Token};

use crate::config::Settings;
use crate::contender::SqliteContender;
use crate::database::{Abandoned, Database};

const CAPABILITIES: Capabilities = Capabilities {
    token: TokenGrade::Durable,
    ordered: true,
    push: true,
    frees_dead_at_once: true,
    detached: true,
    extends: true,
    list_scans: false,
    ttl_min: Duration::from_millis(100),
    ttl_max: Duration::from_secs(7 * 24 * 60 * 60),
};

#[derive(Debug)]
pub(crate) struct SqliteBackend {
    info: BackendInfo,
    database: Arc<Database>,
}

impl SqliteBackend {
    pub(crate) async fn connect(settings: Settings) -> Result<Self> {
        let info = BackendInfo {
            store: "sqlite",
            url: settings.url.clone(),
            capabilities: CAPABILITIES,
        };
        let database = Arc::new(Database::open(settings).await?);
        Ok(Self { info, database })
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        Ok(Box::new(SqliteContender::new(self.database.clone(), claim)))
    }

    async fn resume(&self, name: Name, owner: Owner) -> Result<Box<dyn Contender>> {
        let claim = Claim {
            name,
            owner,
            ttl: Duration::ZERO,
            waits: false,
            identity: Identity::of_this_process(),
        };
        Ok(Box::new(SqliteContender::new(self.database.clone(), claim)))
    }

    async fn check(&self) -> Result<Vec<Finding>> {
        self.database
            .submit(Abandoned::Skipped, |work| work.check())
            .answer()
            .await
    }

    async fn inspect(&self, name: &Name) -> Result<Inspection> {
        let name = name.clone();
        self.database
            .submit(Abandoned::Skipped, move |work| work.inspect(&name))
            .answer()
            .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Inspection>> {
        let prefix = prefix.to_owned();
        self.database
            .submit(Abandoned::Skipped, move |work| work.list(&prefix))
            .answer()
            .await
    }

    async fn break_hold(&self, name: &Name, token: Option<Token>) -> Result<Broken> {
        let name = name.clone();
        self.database
            .submit(Abandoned::Done, move |work| {
                work.break_hold(name.as_str(), token)
            })
            .answer()
            .await
    }

    /// The liveness file, locked as long as any process has it open. It closes on exec, as all descriptors do
    /// here: who hands it to a child clears that in the child alone.
    fn inherit(&self) -> Option<OwnedFd> {
        self.database.live.duplicate()
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

use leasehold::{Name, Result, StoreUrl};
use leasehold_fence::Pass;
use leasehold_once::postgres;
use leasehold_once::{Begun, Finished, Once, Record, Success};
use tokio_postgres::Client;

use super::{SWEPT, unwritten};

/// A PostgreSQL database.
pub(in super::super) struct Postgres(pub(in super::super) StoreUrl);

impl Postgres {
    pub(in super::super) async fn done(&self, once: &Once, lock: &Name) -> Result<Option<Success>> {
        postgres::done(&self.client().await?, once, lock).await
    }

    pub(in super::super) async fn begin(&self, once: &Once, pass: &Pass) -> Result<Begun> {
        let mut client = self.client().await?;
        postgres::prepare(&client).await?;
        let transaction = client.transaction().await.map_err(unwritten)?;
        let begun = postgres::begin(&transaction, once, pass).await?;
        transaction.commit().await.map_err(unwritten)?;
        Ok(begun)
    }

    pub(in super::super) async fn finish(
        &self,
        once: &Once,
        pass: &Pass,
        is_held: &dyn Fn() -> bool,
    ) -> Result<Option<Finished>> {
        let mut client = self.client().await?;
        let transaction = client.transaction().await.map_err(unwritten)?;
        let finished = postgres::finish(&transaction, once, pass, b"").await?;
        if !is_held() {
            return Ok(None);
        }
        transaction.commit().await.map_err(unwritten)?;
        let _ = postgres::sweep(&client, SWEPT).await;
        Ok(Some(finished))
    }

    pub(in super::super) async fn fail(&self, key: &Name, pass: &Pass) -> Result<bool> {
        postgres::fail(&self.client().await?, key, pass).await
    }

    pub(in super::super) async fn list(&self, prefix: &str) -> Result<Vec<Record>> {
        postgres::list(&self.client().await?, prefix).await
    }

    pub(in super::super) async fn forget(&self, key: &Name) -> Result<bool> {
        postgres::forget(&self.client().await?, key).await
    }

    async fn client(&self) -> Result<Client> {
        leasehold_postgres::connection(self.0.clone()).await
    }
}

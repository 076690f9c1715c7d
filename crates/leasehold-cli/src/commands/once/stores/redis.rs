use ::redis::aio::MultiplexedConnection;
use leasehold::{Name, Result, StoreUrl};
use leasehold_fence::Pass;
use leasehold_once::redis;
use leasehold_once::{Begun, Finished, Once, Record, Success};

/// A Redis or Valkey server, which has its records expire by itself.
pub(in super::super) struct Redis(pub(in super::super) StoreUrl);

impl Redis {
    pub(in super::super) async fn done(&self, once: &Once, lock: &Name) -> Result<Option<Success>> {
        redis::done(&mut self.connection().await?, once, lock).await
    }

    pub(in super::super) async fn begin(&self, once: &Once, pass: &Pass) -> Result<Begun> {
        redis::begin(&mut self.connection().await?, once, pass).await
    }

    pub(in super::super) async fn finish(
        &self,
        once: &Once,
        pass: &Pass,
        is_held: &dyn Fn() -> bool,
    ) -> Result<Option<Finished>> {
        let mut connection = self.connection().await?;
        if !is_held() {
            return Ok(None);
        }
        redis::finish(&mut connection, once, pass, b"")
            .await
            .map(Some)
    }

    pub(in super::super) async fn fail(&self, key: &Name, pass: &Pass) -> Result<bool> {
        redis::fail(&mut self.connection().await?, key, pass).await
    }

    pub(in super::super) async fn list(&self, prefix: &str) -> Result<Vec<Record>> {
        redis::list(&mut self.connection().await?, prefix).await
    }

    pub(in super::super) async fn forget(&self, key: &Name) -> Result<bool> {
        redis::forget(&mut self.connection().await?, key).await
    }

    async fn connection(&self) -> Result<MultiplexedConnection> {
        leasehold_redis::connection(self.0.clone()).await
    }
}

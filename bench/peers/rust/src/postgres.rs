//! distributed-lock on PostgreSQL.

use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_postgres::PostgresLockProvider;
use distributed_lock_postgres::handle::PostgresLockHandle;
use leasehold_bench_load::{Result, Subject, text};

pub(crate) struct DistributedLock(PostgresLockProvider);

impl DistributedLock {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self(PostgresLockProvider::new(url).await.map_err(text)?))
    }
}

impl Subject for DistributedLock {
    type Hold = PostgresLockHandle;

    async fn acquire(&self, name: &str) -> Result<PostgresLockHandle> {
        let acquired = self.0.create_lock(name).acquire(None).await;
        acquired.map_err(text)
    }

    async fn release(&self, hold: PostgresLockHandle) -> Result<()> {
        hold.release().await.map_err(text)
    }
}

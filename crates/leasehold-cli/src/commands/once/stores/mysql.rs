use leasehold::{Name, Result, StoreUrl};
use leasehold_fence::Pass;
use leasehold_once::mysql;
use leasehold_once::{Begun, Finished, Once, Record, Success};
use mysql_async::{Conn, TxOpts};

use super::{SWEPT, unwritten};

/// A MySQL or MariaDB database.
pub(in super::super) struct Mysql(pub(in super::super) StoreUrl);

impl Mysql {
    pub(in super::super) async fn done(&self, once: &Once, lock: &Name) -> Result<Option<Success>> {
        mysql::done(&mut self.conn().await?, once, lock).await
    }

    pub(in super::super) async fn begin(&self, once: &Once, pass: &Pass) -> Result<Begun> {
        let mut conn = self.conn().await?;
        mysql::prepare(&mut conn).await?;
        let begun = conn.start_transaction(TxOpts::default()).await;
        let mut transaction = begun.map_err(unwritten)?;
        let begun = mysql::begin(&mut transaction, once, pass).await?;
        transaction.commit().await.map_err(unwritten)?;
        Ok(begun)
    }

    pub(in super::super) async fn finish(
        &self,
        once: &Once,
        pass: &Pass,
        is_held: &dyn Fn() -> bool,
    ) -> Result<Option<Finished>> {
        let mut conn = self.conn().await?;
        let begun = conn.start_transaction(TxOpts::default()).await;
        let mut transaction = begun.map_err(unwritten)?;
        let finished = mysql::finish(&mut transaction, once, pass, b"").await?;
        if !is_held() {
            return Ok(None);
        }
        transaction.commit().await.map_err(unwritten)?;
        let _ = mysql::sweep(&mut conn, SWEPT).await;
        Ok(Some(finished))
    }

    pub(in super::super) async fn fail(&self, key: &Name, pass: &Pass) -> Result<bool> {
        mysql::fail(&mut self.conn().await?, key, pass).await
    }

    pub(in super::super) async fn list(&self, prefix: &str) -> Result<Vec<Record>> {
        mysql::list(&mut self.conn().await?, prefix).await
    }

    pub(in super::super) async fn forget(&self, key: &Name) -> Result<bool> {
        mysql::forget(&mut self.conn().await?, key).await
    }

    async fn conn(&self) -> Result<Conn> {
        leasehold_mysql::connection(self.0.clone()).await
    }
}

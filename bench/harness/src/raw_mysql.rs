//! What leasehold on MySQL is measured against: the least statements that a lock with a counter can be, on the same driver.

use leasehold_bench_load::{Result, Subject, text};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Statement};
use tokio::sync::Mutex;

const TABLE: [&str; 2] = [
    "CREATE DATABASE IF NOT EXISTS bench",
    "CREATE TABLE IF NOT EXISTS bench.counters (name VARBINARY(64) PRIMARY KEY, token BIGINT UNSIGNED NOT NULL)",
];
const TRY: &str = "\
INSERT INTO bench.counters (name, token) SELECT ?, LAST_INSERT_ID(1) FROM DUAL WHERE GET_LOCK(?, 0) = 1
ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(token + 1)";

/// A try that counts, and an unlock, both prepared.
pub(crate) struct RawMysql {
    /// It does one thing at a time.
    session: Mutex<Conn>,
    attempt: Statement,
    unlock: Statement,
}

impl RawMysql {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let options = Opts::from_url(url).map_err(text)?;
        let mut session = Conn::new(options).await.map_err(text)?;
        for made in TABLE {
            session.query_drop(made).await.map_err(text)?;
        }
        Ok(Self {
            attempt: session.prep(TRY).await.map_err(text)?,
            unlock: session.prep("SELECT RELEASE_LOCK(?)").await.map_err(text)?,
            session: Mutex::new(session),
        })
    }
}

impl Subject for RawMysql {
    type Hold = String;

    async fn acquire(&self, name: &str) -> Result<String> {
        let mut session = self.session.lock().await;
        let tried = session.exec_drop(&self.attempt, (name, name)).await;
        tried.map_err(text)?;
        if session.affected_rows() > 0 {
            Ok(name.to_owned())
        } else {
            Err(format!("{name} is held"))
        }
    }

    async fn release(&self, name: String) -> Result<()> {
        let mut session = self.session.lock().await;
        let freed = session.exec_first(&self.unlock, (name,)).await;
        match freed.map_err(text)? {
            Some(1) => Ok(()),
            _ => Err("it was not held".into()),
        }
    }
}

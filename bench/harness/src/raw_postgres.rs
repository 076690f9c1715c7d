//! What leasehold on PostgreSQL is measured against: the least statements that a lock with a counter can be, and a lock
//! inside a transaction, on the same driver.

use leasehold::postgres::TransactionLocks;
use leasehold_bench_load::{Result, Subject, text};
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Statement};

const TRY: &str = "\
WITH tried AS MATERIALIZED (SELECT pg_try_advisory_lock($1::int8) AS got)
INSERT INTO bench_counters AS c (name, token) SELECT $2::text, 1 FROM tried WHERE got
ON CONFLICT (name) DO UPDATE SET token = c.token + 1 RETURNING token";

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(text)?;
    tokio::spawn(connection);
    Ok(client)
}

/// The name's key, as cheap as one can be made.
fn key(name: &str) -> i64 {
    name.bytes()
        .fold(7, |key: i64, byte| key.wrapping_mul(31) + i64::from(byte))
}

/// A try that counts, and an unlock.
pub(crate) struct RawPostgres {
    client: Client,
    attempt: Statement,
    unlock: Statement,
}

impl RawPostgres {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        let table = "CREATE TABLE IF NOT EXISTS bench_counters (name text PRIMARY KEY, token bigint NOT NULL)";
        client.batch_execute(table).await.map_err(text)?;
        Ok(Self {
            attempt: client.prepare(TRY).await.map_err(text)?,
            unlock: client
                .prepare("SELECT pg_advisory_unlock($1::int8)")
                .await
                .map_err(text)?,
            client,
        })
    }
}

impl Subject for RawPostgres {
    type Hold = i64;

    async fn acquire(&self, name: &str) -> Result<i64> {
        let key = key(name);
        let counted = self.client.query_opt(&self.attempt, &[&key, &name]).await;
        match counted.map_err(text)? {
            Some(_) => Ok(key),
            None => Err(format!("{name} is held")),
        }
    }

    async fn release(&self, key: i64) -> Result<()> {
        let row = self.client.query_one(&self.unlock, &[&key]).await;
        if row.map_err(text)?.get(0) {
            Ok(())
        } else {
            Err("it was not held".into())
        }
    }
}

/// A transaction that takes a lock and ends: by the statement alone, which is prepared.
pub(crate) struct RawTransaction {
    client: Mutex<Client>,
    lock: Statement,
}

impl RawTransaction {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        let lock = "SELECT pg_advisory_xact_lock($1::int8)";
        Ok(Self {
            lock: client.prepare(lock).await.map_err(text)?,
            client: Mutex::new(client),
        })
    }
}

impl Subject for RawTransaction {
    type Hold = ();

    async fn acquire(&self, name: &str) -> Result<()> {
        let mut client = self.client.lock().await;
        let transaction = client.transaction().await.map_err(text)?;
        let locked = transaction.query_one(&self.lock, &[&key(name)]).await;
        locked.map_err(text)?;
        transaction.commit().await.map_err(text)
    }

    async fn release(&self, (): ()) -> Result<()> {
        Ok(())
    }
}

/// The same by leasehold.
pub(crate) struct InTransaction {
    client: Mutex<Client>,
    locks: TransactionLocks,
}

impl InTransaction {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self {
            client: Mutex::new(connect(url).await?),
            locks: TransactionLocks::new(),
        })
    }
}

impl Subject for InTransaction {
    type Hold = ();

    async fn acquire(&self, name: &str) -> Result<()> {
        let mut client = self.client.lock().await;
        let transaction = client.transaction().await.map_err(text)?;
        let locked = self.locks.acquire(&transaction, name).await;
        locked.map_err(text)?;
        transaction.commit().await.map_err(text)
    }

    async fn release(&self, (): ()) -> Result<()> {
        Ok(())
    }
}

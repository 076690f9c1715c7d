use leasehold_core::{Name, Result};
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once, Record, Success, postgres};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use super::{Database, LOG, WORKED, runtime};

pub(super) struct Postgres(Runtime, Client);

impl Postgres {
    pub(super) fn open(url: &str) -> Self {
        let runtime = runtime();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        Self(runtime, client)
    }
}

impl Database for Postgres {
    fn prepare(&mut self) {
        let log = "CREATE TABLE IF NOT EXISTS log (what TEXT)";
        let none = "DELETE FROM log; DELETE FROM leasehold_once";
        let Self(runtime, client) = self;
        runtime.block_on(async {
            client.batch_execute(log).await.unwrap();
            postgres::prepare(client).await.unwrap();
            client.batch_execute(none).await.unwrap();
        });
    }

    fn begin(&mut self, once: &Once, pass: &Pass) -> Result<Begun> {
        let Self(runtime, client) = self;
        runtime.block_on(async {
            let transaction = client.transaction().await.unwrap();
            let begun = postgres::begin(&transaction, once, pass).await?;
            transaction.commit().await.unwrap();
            Ok(begun)
        })
    }

    fn finish(&mut self, once: &Once, pass: &Pass, result: &[u8]) -> Result<Finished> {
        let Self(runtime, client) = self;
        runtime.block_on(async {
            let transaction = client.transaction().await.unwrap();
            let finished = postgres::finish(&transaction, once, pass, result).await?;
            transaction.commit().await.unwrap();
            Ok(finished)
        })
    }

    fn fail(&mut self, once: &Once, pass: &Pass) -> Result<bool> {
        let Self(runtime, client) = self;
        runtime.block_on(postgres::fail(client, once.key(), pass))
    }

    fn done(&mut self, once: &Once, lock: &Name) -> Result<Option<Success>> {
        let Self(runtime, client) = self;
        runtime.block_on(postgres::done(client, once, lock))
    }

    fn list(&mut self, prefix: &str) -> Vec<Record> {
        let Self(runtime, client) = self;
        runtime.block_on(postgres::list(client, prefix)).unwrap()
    }

    fn forget(&mut self, once: &Once) -> bool {
        let Self(runtime, client) = self;
        let forget = postgres::forget(client, once.key());
        runtime.block_on(forget).unwrap()
    }

    fn age(&mut self, by: i64) {
        let Self(runtime, client) = self;
        let older = "UPDATE leasehold_once SET started = started - $1, ended = ended - $1, expires = expires - $1";
        runtime.block_on(client.execute(older, &[&by])).unwrap();
    }

    fn whole(&mut self, once: &Once, pass: &Pass, between: &dyn Fn()) -> Begun {
        let Self(runtime, client) = self;
        runtime.block_on(async {
            let transaction = client.transaction().await.unwrap();
            let begun = postgres::begin(&transaction, once, pass).await.unwrap();
            if begun == Begun::First {
                transaction.execute(LOG, &[]).await.unwrap();
                between();
                let result = pass.mark().to_string();
                let finished = postgres::finish(&transaction, once, pass, result.as_bytes()).await;
                assert_eq!(finished.unwrap(), Finished::Recorded);
                transaction.commit().await.unwrap();
            }
            begun
        })
    }

    fn worked(&mut self) -> i64 {
        let Self(runtime, client) = self;
        let row = runtime.block_on(client.query_one(WORKED, &[])).unwrap();
        row.get(0)
    }
}

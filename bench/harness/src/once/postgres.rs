//! Rows of a PostgreSQL database.

use leasehold_bench_load::{Result, text};
use leasehold_once::postgres::{self, Prepared};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Statement};

use super::{Keys, RESULT, first, recorded};
use crate::ways::{self, Way};

const TABLES: &str = "CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, count bigint);
    CREATE TABLE IF NOT EXISTS done (what text PRIMARY KEY, result bytea);
    INSERT INTO stock VALUES ('tea', 0) ON CONFLICT DO NOTHING";

pub(super) fn ways(url: &str) -> Result<Vec<Way>> {
    let (mut plain, mut once, mut prepared) = (
        Database::open(url)?,
        Database::open(url)?,
        Database::open(url)?,
    );
    Ok(vec![
        Way::new("a row with a unique key", move || plain.unique()),
        Way::new("`postgres::begin` and `finish`", move || once.once()),
        Way::new("`postgres::Prepared`'s", move || prepared.prepared()),
    ])
}

struct Database {
    runtime: Runtime,
    client: Client,
    insert: Statement,
    update: Statement,
    prepared: Prepared,
    keys: Keys,
}

impl Database {
    fn open(url: &str) -> Result<Self> {
        let runtime = ways::runtime()?;
        let (client, insert, update, prepared) = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(text)?;
            tokio::spawn(connection);
            client.batch_execute(TABLES).await.map_err(text)?;
            let prepared = Prepared::on(&client).await.map_err(text)?;
            let insert = client.prepare("INSERT INTO done VALUES ($1, $2)").await;
            let update = "UPDATE stock SET count = count + 1 WHERE item = 'tea'";
            let update = client.prepare(update).await.map_err(text)?;
            Ok::<_, String>((client, insert.map_err(text)?, update, prepared))
        })?;
        let keys = Keys::new()?;
        Ok(Self {
            runtime,
            client,
            insert,
            update,
            prepared,
            keys,
        })
    }

    fn unique(&mut self) -> Result<()> {
        let once = self.keys.next()?;
        self.runtime.block_on(async {
            let transaction = self.client.transaction().await.map_err(text)?;
            let key = once.key().as_str();
            let inserted = transaction.execute(&self.insert, &[&key, &RESULT]).await;
            inserted.map_err(text)?;
            transaction.execute(&self.update, &[]).await.map_err(text)?;
            transaction.commit().await.map_err(text)
        })
    }

    fn once(&mut self) -> Result<()> {
        let once = self.keys.next()?;
        let pass = &self.keys.pass;
        self.runtime.block_on(async {
            let transaction = self.client.transaction().await.map_err(text)?;
            let begun = postgres::begin(&transaction, &once, pass).await;
            first(&begun.map_err(text)?)?;
            transaction.execute(&self.update, &[]).await.map_err(text)?;
            let finished = postgres::finish(&transaction, &once, pass, RESULT).await;
            recorded(finished.map_err(text)?)?;
            transaction.commit().await.map_err(text)
        })
    }

    fn prepared(&mut self) -> Result<()> {
        let once = self.keys.next()?;
        let (pass, prepared) = (&self.keys.pass, &self.prepared);
        self.runtime.block_on(async {
            let transaction = self.client.transaction().await.map_err(text)?;
            let begun = prepared.begin(&transaction, &once, pass).await;
            first(&begun.map_err(text)?)?;
            transaction.execute(&self.update, &[]).await.map_err(text)?;
            let finished = prepared.finish(&transaction, &once, pass, RESULT).await;
            recorded(finished.map_err(text)?)?;
            transaction.commit().await.map_err(text)
        })
    }
}

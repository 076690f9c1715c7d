//! A row of a PostgreSQL database.

use leasehold_bench_load::{Result, text};
use leasehold_core::Name;
use leasehold_fence::Mark;
use leasehold_fence::postgres::{self, Prepared};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Statement};

use super::{accepted, mark};
use crate::ways::{self, Way};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, count bigint);
    INSERT INTO stock VALUES ('tea', 0) ON CONFLICT DO NOTHING";

struct Database {
    runtime: Runtime,
    client: Client,
    update: Statement,
    prepared: Prepared,
    stock: Name,
    mark: Mark,
}

pub(super) fn ways(url: &str) -> Result<Vec<Way>> {
    let (mut plain, mut before, mut beside) = (open(url)?, open(url)?, open(url)?);
    let mut prepared = open(url)?;
    Ok(vec![
        Way::new("unguarded", move || plain.unguarded()),
        Way::new("`postgres::check` before it", move || before.guarded()),
        Way::new("`postgres::check` sent together with it", move || {
            beside.together()
        }),
        Way::new("`postgres::Prepared::check` before it", move || {
            prepared.prepared()
        }),
    ])
}

fn open(url: &str) -> Result<Database> {
    let runtime = ways::runtime()?;
    let (client, update, prepared) = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(text)?;
        tokio::spawn(connection);
        client.batch_execute(TABLE).await.map_err(text)?;
        let prepared = Prepared::on(&client).await.map_err(text)?;
        let update = "UPDATE stock SET count = count + 1 WHERE item = 'tea'";
        let update = client.prepare(update).await.map_err(text)?;
        Ok::<_, String>((client, update, prepared))
    })?;
    Ok(Database {
        runtime,
        client,
        update,
        prepared,
        stock: "stock".parse().map_err(text)?,
        mark: mark()?,
    })
}

impl Database {
    fn unguarded(&mut self) -> Result<()> {
        self.runtime.block_on(async {
            let transaction = self.client.transaction().await.map_err(text)?;
            let written = transaction.execute(&self.update, &[]).await;
            written.map_err(text)?;
            transaction.commit().await.map_err(text)
        })
    }

    fn guarded(&mut self) -> Result<()> {
        self.runtime.block_on(async {
            let transaction = self.client.transaction().await.map_err(text)?;
            let checked = postgres::check(&transaction, &self.stock, self.mark).await;
            accepted(checked.map_err(text)?)?;
            let written = transaction.execute(&self.update, &[]).await;
            written.map_err(text)?;
            transaction.commit().await.map_err(text)
        })
    }

    fn prepared(&mut self) -> Result<()> {
        self.runtime.block_on(async {
            let transaction = self.client.transaction().await.map_err(text)?;
            let checked = self
                .prepared
                .check(&transaction, &self.stock, self.mark)
                .await;
            accepted(checked.map_err(text)?)?;
            let written = transaction.execute(&self.update, &[]).await;
            written.map_err(text)?;
            transaction.commit().await.map_err(text)
        })
    }

    fn together(&mut self) -> Result<()> {
        self.runtime.block_on(async {
            let transaction = self.client.transaction().await.map_err(text)?;
            let (checked, written) = tokio::join!(
                postgres::check(&transaction, &self.stock, self.mark),
                transaction.execute(&self.update, &[]),
            );
            accepted(checked.map_err(text)?)?;
            written.map_err(text)?;
            transaction.commit().await.map_err(text)
        })
    }
}

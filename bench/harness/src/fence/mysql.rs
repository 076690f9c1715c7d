//! A row of a MySQL or MariaDB database.

use leasehold_bench_load::{Result, text};
use leasehold_core::Name;
use leasehold_fence::{Mark, mysql};
use leasehold_testkit::servers::{Mysql, MysqlEdition};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, TxOpts};
use tokio::runtime::Runtime;

use super::{accepted, mark};
use crate::ways::{self, Place, Way};

const TABLES: &str = "CREATE DATABASE app;
    CREATE TABLE app.stock (item VARCHAR(9) PRIMARY KEY, count BIGINT) ENGINE=InnoDB;
    INSERT INTO app.stock VALUES ('tea', 0)";

struct Database {
    runtime: Runtime,
    conn: Conn,
}

pub(super) fn place(name: &'static str, edition: MysqlEdition) -> Result<Place> {
    let server = Mysql::start(edition).map_err(text)?;
    server.query(TABLES).map_err(text)?;
    let (stock, mark): (Name, Mark) = ("stock".parse().map_err(text)?, mark()?);
    let (mut plain, mut fenced) = (open(&server)?, open(&server)?);
    let ways = vec![
        Way::new("unguarded", move || plain.write(None)),
        Way::new("`mysql::check` before it", move || {
            fenced.write(Some((&stock, mark)))
        }),
    ];
    Ok(Place::new(name, ways, server))
}

fn open(server: &Mysql) -> Result<Database> {
    let (runtime, mut conn) = ways::mysql(server)?;
    let prepared = runtime.block_on(mysql::prepare(&mut conn));
    prepared.map_err(text)?;
    Ok(Database { runtime, conn })
}

impl Database {
    fn write(&mut self, fence: Option<(&Name, Mark)>) -> Result<()> {
        self.runtime.block_on(async {
            let begun = self.conn.start_transaction(TxOpts::default()).await;
            let mut transaction = begun.map_err(text)?;
            if let Some((stock, mark)) = fence {
                let checked = mysql::check(&mut transaction, stock, mark).await;
                accepted(checked.map_err(text)?)?;
            }
            let update = "UPDATE stock SET count = count + 1 WHERE item = 'tea'";
            let written = transaction.exec_drop(update, ()).await;
            written.map_err(text)?;
            transaction.commit().await.map_err(text)
        })
    }
}

//! Rows of a MySQL or MariaDB database.

use leasehold_bench_load::{Result, text};
use leasehold_once::mysql;
use leasehold_testkit::servers::{Mysql, MysqlEdition};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, TxOpts};
use tokio::runtime::Runtime;

use super::{Keys, RESULT, first, recorded};
use crate::ways::{self, Place, Way};

const TABLES: &str = "CREATE DATABASE app;
    CREATE TABLE app.stock (item VARCHAR(9) PRIMARY KEY, count BIGINT) ENGINE=InnoDB;
    CREATE TABLE app.done (what VARCHAR(512) CHARACTER SET ascii PRIMARY KEY, result BLOB) ENGINE=InnoDB;
    INSERT INTO app.stock VALUES ('tea', 0)";
const UPDATE: &str = "UPDATE stock SET count = count + 1 WHERE item = 'tea'";

pub(super) fn place(name: &'static str, edition: MysqlEdition) -> Result<Place> {
    let server = Mysql::start(edition).map_err(text)?;
    server.query(TABLES).map_err(text)?;
    let (mut plain, mut once) = (Database::open(&server)?, Database::open(&server)?);
    let ways = vec![
        Way::new("a row with a unique key", move || plain.unique()),
        Way::new("`mysql::begin` and `finish`", move || once.once()),
    ];
    Ok(Place::new(name, ways, server))
}

struct Database {
    runtime: Runtime,
    conn: Conn,
    keys: Keys,
}

impl Database {
    fn open(server: &Mysql) -> Result<Self> {
        let (runtime, mut conn) = ways::mysql(server)?;
        let prepared = runtime.block_on(mysql::prepare(&mut conn));
        prepared.map_err(text)?;
        let keys = Keys::new()?;
        Ok(Self {
            runtime,
            conn,
            keys,
        })
    }

    fn unique(&mut self) -> Result<()> {
        let once = self.keys.next()?;
        self.runtime.block_on(async {
            let begun = self.conn.start_transaction(TxOpts::default()).await;
            let mut transaction = begun.map_err(text)?;
            let row = (once.key().as_str(), RESULT);
            let inserted = transaction.exec_drop("INSERT INTO done VALUES (?, ?)", row);
            inserted.await.map_err(text)?;
            transaction.exec_drop(UPDATE, ()).await.map_err(text)?;
            transaction.commit().await.map_err(text)
        })
    }

    fn once(&mut self) -> Result<()> {
        let once = self.keys.next()?;
        let pass = &self.keys.pass;
        self.runtime.block_on(async {
            let begun = self.conn.start_transaction(TxOpts::default()).await;
            let mut transaction = begun.map_err(text)?;
            let begun = mysql::begin(&mut transaction, &once, pass).await;
            first(&begun.map_err(text)?)?;
            transaction.exec_drop(UPDATE, ()).await.map_err(text)?;
            let finished = mysql::finish(&mut transaction, &once, pass, RESULT).await;
            recorded(finished.map_err(text)?)?;
            transaction.commit().await.map_err(text)
        })
    }
}

//! Rows of an SQLite database.

use leasehold_bench_load::{Result, text};
use leasehold_once::sqlite;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{Keys, RESULT, first, recorded};
use crate::ways::Way;

const TABLES: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, count INTEGER);
    CREATE TABLE IF NOT EXISTS done (what TEXT PRIMARY KEY, result BLOB);
    INSERT OR IGNORE INTO stock VALUES ('tea', 0);";

pub(super) fn ways(url: &str) -> Result<Vec<Way>> {
    let path = url.trim_start_matches("sqlite://");
    let (mut plain, mut once) = (Database::open(path)?, Database::open(path)?);
    Ok(vec![
        Way::new("a row with a unique key", move || plain.unique()),
        Way::new("`sqlite::begin` and `finish`", move || once.once()),
    ])
}

struct Database {
    connection: Connection,
    keys: Keys,
}

impl Database {
    fn open(path: &str) -> Result<Self> {
        let connection = Connection::open(path).map_err(text)?;
        connection.execute_batch(TABLES).map_err(text)?;
        sqlite::prepare(&connection).map_err(text)?;
        let keys = Keys::new()?;
        Ok(Self { connection, keys })
    }

    fn unique(&mut self) -> Result<()> {
        let once = self.keys.next()?;
        let transaction = begin(&mut self.connection)?;
        let insert = transaction.prepare_cached("INSERT INTO done VALUES (?1, ?2)");
        let inserted = insert.map_err(text)?.execute((once.key().as_str(), RESULT));
        inserted.map_err(text)?;
        work(&transaction)?;
        transaction.commit().map_err(text)
    }

    fn once(&mut self) -> Result<()> {
        let once = self.keys.next()?;
        let transaction = begin(&mut self.connection)?;
        let pass = &self.keys.pass;
        first(&sqlite::begin(&transaction, &once, pass).map_err(text)?)?;
        work(&transaction)?;
        recorded(sqlite::finish(&transaction, &once, pass, RESULT).map_err(text)?)?;
        transaction.commit().map_err(text)
    }
}

fn begin(connection: &mut Connection) -> Result<Transaction<'_>> {
    let immediate = TransactionBehavior::Immediate;
    connection
        .transaction_with_behavior(immediate)
        .map_err(text)
}

fn work(transaction: &Transaction<'_>) -> Result<()> {
    let update = "UPDATE stock SET count = count + 1 WHERE item = 'tea'";
    let mut update = transaction.prepare_cached(update).map_err(text)?;
    update.execute([]).map(drop).map_err(text)
}

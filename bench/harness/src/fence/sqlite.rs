//! A row of an SQLite database.

use leasehold_bench_load::{Result, text};
use leasehold_core::Name;
use leasehold_fence::{Mark, sqlite};
use rusqlite::{Connection, TransactionBehavior};

use super::{accepted, mark};
use crate::ways::Way;

const TABLE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, count INTEGER);
    INSERT OR IGNORE INTO stock VALUES ('tea', 0);";

struct Database(Connection);

pub(super) fn ways(url: &str) -> Result<Vec<Way>> {
    let path = url.trim_start_matches("sqlite://");
    let open = || -> Result<Database> {
        let connection = Connection::open(path).map_err(text)?;
        connection.execute_batch(TABLE).map_err(text)?;
        sqlite::prepare(&connection).map_err(text)?;
        Ok(Database(connection))
    };
    let (stock, mark): (Name, Mark) = ("stock".parse().map_err(text)?, mark()?);
    let (mut plain, mut fenced) = (open()?, open()?);
    Ok(vec![
        Way::new("unguarded", move || plain.write(None)),
        Way::new("`sqlite::check` before it", move || {
            fenced.write(Some((&stock, mark)))
        }),
    ])
}

impl Database {
    fn write(&mut self, fence: Option<(&Name, Mark)>) -> Result<()> {
        let immediate = TransactionBehavior::Immediate;
        let transaction = self.0.transaction_with_behavior(immediate);
        let transaction = transaction.map_err(text)?;
        if let Some((stock, mark)) = fence {
            accepted(sqlite::check(&transaction, stock, mark).map_err(text)?)?;
        }
        let update = "UPDATE stock SET count = count + 1 WHERE item = 'tea'";
        let mut update = transaction.prepare_cached(update).map_err(text)?;
        update.execute([]).map_err(text)?;
        drop(update);
        transaction.commit().map_err(text)
    }
}

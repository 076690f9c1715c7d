use std::time::Duration;

use leasehold_core::{Name, Result};
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once, Record, Success, sqlite};
use rusqlite::Connection;

use super::{AGE, Database, LOG, WORKED};

pub(super) struct Sqlite(Connection);

impl Sqlite {
    pub(super) fn open(path: &str) -> Self {
        let database = Connection::open(path).unwrap();
        database.busy_timeout(Duration::from_secs(60)).unwrap();
        Self(database)
    }
}

impl Database for Sqlite {
    fn prepare(&mut self) {
        let log = "CREATE TABLE IF NOT EXISTS log (what TEXT)";
        self.0.execute_batch(log).unwrap();
        sqlite::prepare(&self.0).unwrap();
        let none = "DELETE FROM log; DELETE FROM leasehold_once";
        self.0.execute_batch(none).unwrap();
    }

    fn begin(&mut self, once: &Once, pass: &Pass) -> Result<Begun> {
        let transaction = self.0.transaction().unwrap();
        let begun = sqlite::begin(&transaction, once, pass)?;
        transaction.commit().unwrap();
        Ok(begun)
    }

    fn finish(&mut self, once: &Once, pass: &Pass, result: &[u8]) -> Result<Finished> {
        let transaction = self.0.transaction().unwrap();
        let finished = sqlite::finish(&transaction, once, pass, result)?;
        transaction.commit().unwrap();
        Ok(finished)
    }

    fn fail(&mut self, once: &Once, pass: &Pass) -> Result<bool> {
        sqlite::fail(&self.0, once.key(), pass)
    }

    fn done(&mut self, once: &Once, lock: &Name) -> Result<Option<Success>> {
        sqlite::done(&self.0, once, lock)
    }

    fn list(&mut self, prefix: &str) -> Vec<Record> {
        sqlite::list(&self.0, prefix).unwrap()
    }

    fn forget(&mut self, once: &Once) -> bool {
        sqlite::forget(&self.0, once.key()).unwrap()
    }

    fn age(&mut self, by: i64) {
        self.0.execute(AGE, [by; 3]).unwrap();
    }

    fn whole(&mut self, once: &Once, pass: &Pass, between: &dyn Fn()) -> Begun {
        let transaction = self.0.transaction().unwrap();
        let begun = sqlite::begin(&transaction, once, pass).unwrap();
        if begun == Begun::First {
            transaction.execute(LOG, []).unwrap();
            between();
            let result = pass.mark().to_string();
            let finished = sqlite::finish(&transaction, once, pass, result.as_bytes());
            assert_eq!(finished.unwrap(), Finished::Recorded);
            transaction.commit().unwrap();
        }
        begun
    }

    fn worked(&mut self) -> i64 {
        self.0.query_row(WORKED, [], |row| row.get(0)).unwrap()
    }
}

use leasehold::{Name, Result};
use leasehold_fence::Pass;
use leasehold_once::sqlite;
use leasehold_once::{Begun, Finished, Once, Record, Success};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{SWEPT, unwritten};

/// An open file. It has no connection that could break.
pub(in super::super) struct Sqlite(pub(in super::super) Connection);

impl Sqlite {
    pub(in super::super) fn done(&self, once: &Once, lock: &Name) -> Result<Option<Success>> {
        sqlite::done(&self.0, once, lock)
    }

    pub(in super::super) fn begin(&self, once: &Once, pass: &Pass) -> Result<Begun> {
        let transaction = self.open()?;
        sqlite::prepare(&transaction)?;
        let begun = sqlite::begin(&transaction, once, pass)?;
        transaction.commit().map_err(unwritten)?;
        Ok(begun)
    }

    pub(in super::super) fn finish(
        &self,
        once: &Once,
        pass: &Pass,
        is_held: &dyn Fn() -> bool,
    ) -> Result<Option<Finished>> {
        let transaction = self.open()?;
        let finished = sqlite::finish(&transaction, once, pass, b"")?;
        if !is_held() {
            return Ok(None);
        }
        transaction.commit().map_err(unwritten)?;
        let _ = sqlite::sweep(&self.0, SWEPT);
        Ok(Some(finished))
    }

    pub(in super::super) fn fail(&self, key: &Name, pass: &Pass) -> Result<bool> {
        sqlite::fail(&self.0, key, pass)
    }

    pub(in super::super) fn list(&self, prefix: &str) -> Result<Vec<Record>> {
        sqlite::list(&self.0, prefix)
    }

    pub(in super::super) fn forget(&self, key: &Name) -> Result<bool> {
        sqlite::forget(&self.0, key)
    }

    fn open(&self) -> Result<Transaction<'_>> {
        Transaction::new_unchecked(&self.0, TransactionBehavior::Immediate).map_err(unwritten)
    }
}

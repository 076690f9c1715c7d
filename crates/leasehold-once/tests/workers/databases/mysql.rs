use leasehold_core::{Name, Result};
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once, Record, Success, mysql};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, TxOpts};
use tokio::runtime::Runtime;

use super::{AGE, Database, LOG, WORKED, runtime};

pub(super) struct Mysql(Runtime, Conn);

impl Mysql {
    pub(super) fn open(url: &str) -> Self {
        let runtime = runtime();
        let (_, server) = url.split_once("://").unwrap();
        let url = format!("mysql://{server}?prefer_socket=false");
        let conn = runtime.block_on(async {
            let mut conn = Conn::from_url(url).await.unwrap();
            for setting in ["CREATE DATABASE IF NOT EXISTS app", "USE app"] {
                conn.query_drop(setting).await.unwrap();
            }
            conn
        });
        Self(runtime, conn)
    }
}

impl Database for Mysql {
    fn prepare(&mut self) {
        let log = "CREATE TABLE IF NOT EXISTS log (what TEXT) ENGINE=InnoDB";
        let Self(runtime, conn) = self;
        runtime.block_on(async {
            conn.query_drop(log).await.unwrap();
            mysql::prepare(conn).await.unwrap();
            for none in ["DELETE FROM log", "DELETE FROM leasehold_once"] {
                conn.query_drop(none).await.unwrap();
            }
        });
    }

    fn begin(&mut self, once: &Once, pass: &Pass) -> Result<Begun> {
        let Self(runtime, conn) = self;
        runtime.block_on(async {
            let mut transaction = conn.start_transaction(TxOpts::default()).await.unwrap();
            let begun = mysql::begin(&mut transaction, once, pass).await;
            match begun {
                Ok(Begun::First) => transaction.commit().await.unwrap(),
                _ => transaction.rollback().await.unwrap(),
            }
            begun
        })
    }

    fn finish(&mut self, once: &Once, pass: &Pass, result: &[u8]) -> Result<Finished> {
        let Self(runtime, conn) = self;
        runtime.block_on(async {
            let mut transaction = conn.start_transaction(TxOpts::default()).await.unwrap();
            let finished = mysql::finish(&mut transaction, once, pass, result).await;
            transaction.commit().await.unwrap();
            finished
        })
    }

    fn fail(&mut self, once: &Once, pass: &Pass) -> Result<bool> {
        let Self(runtime, conn) = self;
        runtime.block_on(mysql::fail(conn, once.key(), pass))
    }

    fn done(&mut self, once: &Once, lock: &Name) -> Result<Option<Success>> {
        let Self(runtime, conn) = self;
        runtime.block_on(mysql::done(conn, once, lock))
    }

    fn list(&mut self, prefix: &str) -> Vec<Record> {
        let Self(runtime, conn) = self;
        runtime.block_on(mysql::list(conn, prefix)).unwrap()
    }

    fn forget(&mut self, once: &Once) -> bool {
        let Self(runtime, conn) = self;
        runtime.block_on(mysql::forget(conn, once.key())).unwrap()
    }

    fn age(&mut self, by: i64) {
        let Self(runtime, conn) = self;
        runtime.block_on(conn.exec_drop(AGE, (by, by, by))).unwrap();
    }

    fn whole(&mut self, once: &Once, pass: &Pass, between: &dyn Fn()) -> Begun {
        let Self(runtime, conn) = self;
        runtime.block_on(async {
            let mut transaction = conn.start_transaction(TxOpts::default()).await.unwrap();
            let begun = mysql::begin(&mut transaction, once, pass).await.unwrap();
            if begun != Begun::First {
                transaction.rollback().await.unwrap();
                return begun;
            }
            transaction.query_drop(LOG).await.unwrap();
            between();
            let result = pass.mark().to_string();
            let finished = mysql::finish(&mut transaction, once, pass, result.as_bytes()).await;
            assert_eq!(finished.unwrap(), Finished::Recorded);
            transaction.commit().await.unwrap();
            begun
        })
    }

    fn worked(&mut self) -> i64 {
        let Self(runtime, conn) = self;
        let count: Option<i64> = runtime.block_on(conn.query_first(WORKED)).unwrap();
        count.unwrap()
    }
}

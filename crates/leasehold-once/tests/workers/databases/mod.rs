//! The databases that records are kept in, each with what the work writes, a log.

mod mysql;
mod postgres;
mod redis;
mod sqlite;

use leasehold_core::{Name, Result};
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once, Record, Success};

/// A database. Where it has transactions, each call is one.
pub(crate) trait Database {
    /// Makes what is needed, and takes away what earlier tests left.
    fn prepare(&mut self);
    fn begin(&mut self, once: &Once, pass: &Pass) -> Result<Begun>;
    fn finish(&mut self, once: &Once, pass: &Pass, result: &[u8]) -> Result<Finished>;
    fn fail(&mut self, once: &Once, pass: &Pass) -> Result<bool>;
    fn done(&mut self, once: &Once, lock: &Name) -> Result<Option<Success>>;
    fn list(&mut self, prefix: &str) -> Vec<Record>;
    fn forget(&mut self, once: &Once) -> bool;
    /// Lets all that is recorded be so many milliseconds older.
    fn age(&mut self, by: i64);
    /// Begins, works and finishes, in one transaction where there are any. `between` is after the work.
    fn whole(&mut self, once: &Once, pass: &Pass, between: &dyn Fn()) -> Begun;
    /// How often the work was done.
    fn worked(&mut self) -> i64;
}

/// Opens `sqlite:PATH`, `mysql:URL`, `mariadb:URL`, `postgres:URL` or `redis:URL`.
pub(crate) fn open(place: &str) -> Box<dyn Database> {
    match place.split_once(':').unwrap() {
        ("sqlite", path) => Box::new(sqlite::Sqlite::open(path)),
        ("mysql" | "mariadb", url) => Box::new(mysql::Mysql::open(url)),
        ("postgres", url) => Box::new(postgres::Postgres::open(url)),
        ("redis", url) => Box::new(redis::Redis::open(url)),
        other => panic!("no place {other:?}"),
    }
}

/// Makes everything in the table older, in milliseconds.
const AGE: &str =
    "UPDATE leasehold_once SET started = started - ?, ended = ended - ?, expires = expires - ?";
const LOG: &str = "INSERT INTO log VALUES ('worked')";
const WORKED: &str = "SELECT count(*) FROM log";

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

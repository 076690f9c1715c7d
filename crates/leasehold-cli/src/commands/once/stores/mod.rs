//! The stores that keep records, each asked by a connection of its own for each question: a job takes hours, and a
//! connection that is idle that long may be gone.

mod mysql;
mod postgres;
mod redis;
mod sqlite;

use leasehold::{Error, ErrorKind};

pub(super) use self::mysql::Mysql;
pub(super) use self::postgres::Postgres;
pub(super) use self::redis::Redis;
pub(super) use self::sqlite::Sqlite;

/// How many records whose time is over go with one that is written.
const SWEPT: u32 = 100;

fn unwritten(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, "the record can't be written").because(error)
}

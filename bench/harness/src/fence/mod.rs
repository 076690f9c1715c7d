//! What a write costs that is refused to older holders, beside the same write without a fence.

mod etcd;
mod file;
mod mysql;
mod postgres;
mod redis;
mod sqlite;

use leasehold_bench_load::{Result, text};
use leasehold_fence::{Checked, Mark};
use leasehold_testkit::servers::MysqlEdition;

use crate::server::{Server, Store};
use crate::ways::{Open, Place};

pub(crate) const PLACES: [Open; 7] = [
    |plan| {
        let folder = Server::start(Store::Sqlite, &plan.target)?;
        let Server::Sqlite(path) = &folder else {
            return Err("a folder is no server".into());
        };
        Ok(Place::new("a file", file::ways(path.path())?, folder))
    },
    |plan| {
        let folder = Server::start(Store::Sqlite, &plan.target)?;
        Ok(Place::new("SQLite", sqlite::ways(&folder.url())?, folder))
    },
    |plan| {
        let server = Server::start(Store::Postgres, &plan.target)?;
        Ok(Place::new(
            "PostgreSQL",
            postgres::ways(&server.url())?,
            server,
        ))
    },
    |_| mysql::place("MariaDB", MysqlEdition::MariaDb),
    |_| mysql::place("MySQL", MysqlEdition::MySql),
    |plan| {
        let server = Server::start(Store::Redis, &plan.target)?;
        Ok(Place::new("Redis", redis::ways(&server.url())?, server))
    },
    |plan| {
        let server = Server::start(Store::Etcd, &plan.target)?;
        Ok(Place::new("etcd", etcd::ways(&server.url())?, server))
    },
];

/// The holder that writes all the time: one, as most often.
fn mark() -> Result<Mark> {
    "41".parse().map_err(text)
}

/// Nobody newer has been there.
fn accepted(checked: Checked) -> Result<()> {
    match checked {
        Checked::Accepted => Ok(()),
        Checked::Stale(stale) => Err(stale.to_string()),
    }
}

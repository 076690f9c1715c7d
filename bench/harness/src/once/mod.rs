//! What it costs to begin work once and to store its result, beside a plain row with a unique key.
//!
//! On both sides the work is the same, in the same transaction where there is one, and each time has a key that is new.

mod mysql;
mod postgres;
mod redis;
mod sqlite;

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_bench_load::{Result, text};
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once};
use leasehold_testkit::servers::MysqlEdition;

use crate::server::{Server, Store};
use crate::ways::{Open, Place};

/// What both sides store.
const RESULT: &[u8] = b"receipt 4711";

pub(crate) const PLACES: [Open; 5] = [
    |plan| {
        let folder = Server::start(Store::Sqlite, &plan.target)?;
        Ok(Place::new("SQLite", sqlite::ways(&folder.url())?, folder))
    },
    |plan| {
        let server = Server::start(Store::Postgres, &plan.target)?;
        let ways = postgres::ways(&server.url())?;
        Ok(Place::new("PostgreSQL", ways, server))
    },
    |_| mysql::place("MariaDB", MysqlEdition::MariaDb),
    |_| mysql::place("MySQL", MysqlEdition::MySql),
    |plan| {
        let server = Server::start(Store::Redis, &plan.target)?;
        Ok(Place::new("Redis", redis::ways(&server.url())?, server))
    },
];

/// Keys that were never there, and the hold that all are begun under.
struct Keys {
    pass: Pass,
}

/// Ways may have a table in common.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Keys {
    fn new() -> Result<Self> {
        Ok(Self {
            pass: "charges:41".parse().map_err(text)?,
        })
    }

    fn next(&self) -> Result<Once> {
        let key = format!("charge/{:012}", NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Once::new(key.parse().map_err(text)?))
    }
}

/// Nobody has been there.
fn first(begun: &Begun) -> Result<()> {
    match begun {
        Begun::First => Ok(()),
        other => Err(format!("a new key was no first one: {other:?}")),
    }
}

fn recorded(finished: Finished) -> Result<()> {
    match finished {
        Finished::Recorded => Ok(()),
        other => Err(format!("it wasn't recorded: {other:?}")),
    }
}

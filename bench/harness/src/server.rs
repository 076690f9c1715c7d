//! The server that is measured against, and what it says it was asked.

use std::collections::HashMap;
use std::path::Path;

use leasehold_bench_load::{Result, text};
use leasehold_testkit::servers::{Etcd, EtcdEdition, Redis, RedisEdition, RedisNodes};
use tempfile::TempDir;

/// The nodes of Redlock.
const NODES: usize = 5;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Sqlite,
    Redis,
    Redlock,
    Etcd,
}

impl Store {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::Redlock => "redlock",
            Self::Etcd => "etcd",
        }
    }
}

/// A store of one's own, gone when dropped.
pub(crate) enum Server {
    /// Its folder.
    Sqlite(TempDir),
    Redis(Redis),
    Redlock(RedisNodes),
    Etcd(Etcd),
}

impl Server {
    pub(crate) fn start(store: Store, target: &Path) -> Result<Self> {
        Ok(match store {
            // Beside the build: a temporary folder is in memory on some machines, where no commit costs anything.
            Store::Sqlite => Self::Sqlite(TempDir::with_prefix_in("bench-", target).map_err(text)?),
            Store::Redis => Self::Redis(Redis::start(RedisEdition::Redis7).map_err(text)?),
            Store::Redlock => {
                Self::Redlock(RedisNodes::start(RedisEdition::Redis7, NODES).map_err(text)?)
            }
            Store::Etcd => Self::Etcd(Etcd::start(EtcdEdition::Etcd35, 1).map_err(text)?),
        })
    }

    pub(crate) fn store(&self) -> Store {
        match self {
            Self::Sqlite(_) => Store::Sqlite,
            Self::Redis(_) => Store::Redis,
            Self::Redlock(_) => Store::Redlock,
            Self::Etcd(_) => Store::Etcd,
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite://{}/locks.db", folder.path().display()),
            Self::Redis(redis) => redis.url(),
            Self::Redlock(nodes) => nodes.url(),
            Self::Etcd(etcd) => etcd.url(),
        }
    }

    /// Removes a peer's lock from every server that has locks as keys.
    pub(crate) fn remove(&self, lock: &str) -> Result<()> {
        let addresses = match self {
            Self::Redis(redis) => vec![redis.address()],
            Self::Redlock(nodes) => (0..nodes.size()).map(|at| nodes.address(at)).collect(),
            Self::Sqlite(_) | Self::Etcd(_) => Vec::new(),
        };
        for address in addresses {
            let client = redis::Client::open(format!("redis://{address}")).map_err(text)?;
            let mut connection = client.get_connection().map_err(text)?;
            // pottery puts a word before it.
            let mut removal = redis::cmd("DEL");
            let removal = removal.arg(lock).arg(format!("redlock:{lock}"));
            removal.exec(&mut connection).map_err(text)?;
        }
        Ok(())
    }

    /// How often each command was called since the start, also by scripts; of several nodes on the first. Nothing for
    /// a store that doesn't say.
    pub(crate) fn calls(&self) -> Result<HashMap<String, u64>> {
        let address = match self {
            Self::Redis(redis) => redis.address(),
            Self::Redlock(nodes) => nodes.address(0),
            Self::Sqlite(_) | Self::Etcd(_) => return Ok(HashMap::new()),
        };
        let client = redis::Client::open(format!("redis://{address}")).map_err(text)?;
        let mut connection = client.get_connection().map_err(text)?;
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query(&mut connection)
            .map_err(text)?;
        let calls = info.lines().filter_map(|line| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls = rest.split(',').next()?.parse().ok()?;
            Some((command.to_owned(), calls))
        });
        Ok(calls.collect())
    }
}

/// How often `command` was called between two counts.
pub(crate) fn calls_between(
    before: &HashMap<String, u64>,
    after: &HashMap<String, u64>,
    command: &str,
) -> u64 {
    let count = |calls: &HashMap<String, u64>| calls.get(command).copied().unwrap_or(0);
    count(after) - count(before)
}

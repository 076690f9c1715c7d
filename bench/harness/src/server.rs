//! The server that is measured against, and what it says it was asked.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

use leasehold_bench_load::{Result, text};
use leasehold_testkit::servers::{
    Consul, Etcd, EtcdEdition, Mysql, MysqlEdition, Postgres, Redis, RedisEdition, RedisNodes,
    ZooKeeper,
};
use tempfile::TempDir;

/// The nodes of Redlock.
const NODES: usize = 5;

/// What Consul needs to count its requests.
const COUNTING: &str = r#""telemetry":{"prometheus_retention_time":"24h"}"#;

/// A process has several sessions, a peer one for each contender.
const SESSIONS: &str = "max_connections=400";
/// As many as are held at once; the default makes room for a client's 6,400.
const LOCKS: &str = "max_locks_per_transaction=400";

/// The count of a store that doesn't tell one request from another.
pub(crate) const REQUESTS: &str = "requests";

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Sqlite,
    Redis,
    Redlock,
    Etcd,
    ZooKeeper,
    Consul,
    Postgres,
    Mysql,
}

impl Store {
    pub(crate) const ALL: [Self; 8] = [
        Self::Sqlite,
        Self::Redis,
        Self::Redlock,
        Self::Etcd,
        Self::ZooKeeper,
        Self::Consul,
        Self::Postgres,
        Self::Mysql,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::Redlock => "redlock",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
            Self::Consul => "consul",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
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
    ZooKeeper(ZooKeeper),
    Consul(Consul),
    Postgres(Postgres),
    Mysql(Mysql),
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
            Store::ZooKeeper => Self::ZooKeeper(ZooKeeper::start(1).map_err(text)?),
            Store::Consul => Self::Consul(Consul::start_with(1, COUNTING, None).map_err(text)?),
            Store::Postgres => {
                Self::Postgres(Postgres::start_with(&[SESSIONS, LOCKS], None).map_err(text)?)
            }
            Store::Mysql => {
                let mysql = Mysql::start_with(MysqlEdition::MySql, &[SESSIONS], None);
                Self::Mysql(mysql.map_err(text)?)
            }
        })
    }

    pub(crate) fn store(&self) -> Store {
        match self {
            Self::Sqlite(_) => Store::Sqlite,
            Self::Redis(_) => Store::Redis,
            Self::Redlock(_) => Store::Redlock,
            Self::Etcd(_) => Store::Etcd,
            Self::ZooKeeper(_) => Store::ZooKeeper,
            Self::Consul(_) => Store::Consul,
            Self::Postgres(_) => Store::Postgres,
            Self::Mysql(_) => Store::Mysql,
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite://{}/locks.db", folder.path().display()),
            Self::Redis(redis) => redis.url(),
            Self::Redlock(nodes) => nodes.url(),
            Self::Etcd(etcd) => etcd.url(),
            Self::ZooKeeper(zookeeper) => zookeeper.url(),
            Self::Consul(consul) => consul.url(),
            Self::Postgres(postgres) => postgres.url(),
            Self::Mysql(mysql) => mysql.url(),
        }
    }

    /// Removes a peer's lock from every server on which it would last longer than its process.
    pub(crate) fn remove(&self, lock: &str) -> Result<()> {
        let addresses = match self {
            Self::Redis(redis) => vec![redis.address()],
            Self::Redlock(nodes) => (0..nodes.size()).map(|at| nodes.address(at)).collect(),
            Self::Sqlite(_)
            | Self::Etcd(_)
            | Self::ZooKeeper(_)
            | Self::Consul(_)
            | Self::Postgres(_)
            | Self::Mysql(_) => Vec::new(),
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

    /// How often each command was called since the start, also by scripts; of several nodes on the first. All under
    /// one word for a store that doesn't tell them apart, and nothing for one without a server.
    pub(crate) fn calls(&self) -> Result<HashMap<String, u64>> {
        let requests = match self {
            Self::Sqlite(_) => return Ok(HashMap::new()),
            Self::Redis(redis) => return commands(redis.address()),
            Self::Redlock(nodes) => return commands(nodes.address(0)),
            Self::Etcd(etcd) => total(&etcd.metrics(0), |name| {
                name.starts_with("grpc_server_msg_received_total")
            }),
            Self::ZooKeeper(zookeeper) => total(&zookeeper.says(0, "mntr"), |name| {
                name == "zk_packets_received"
            }),
            Self::Consul(consul) => {
                let path = "/v1/agent/metrics?format=prometheus";
                let metrics = consul.call(0, "GET", path, "").map_err(text)?;
                total(&metrics, |name| {
                    name.starts_with("consul_http_") && name.ends_with("_count")
                })
            }
            // Each statement is a transaction of its own. A session tells of them within a second.
            Self::Postgres(postgres) => {
                let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'locks'";
                let count = postgres.query(count).map_err(text)?;
                count.parse().map_err(text)?
            }
            Self::Mysql(mysql) => {
                let count = mysql.query("SHOW GLOBAL STATUS LIKE 'Questions'");
                let count = count.map_err(text)?;
                let (_, count) = count.split_once('\t').ok_or("no count of statements")?;
                count.parse().map_err(text)?
            }
        };
        Ok(HashMap::from([(REQUESTS.to_owned(), requests)]))
    }
}

/// How often each command of Redis was called.
fn commands(address: SocketAddr) -> Result<HashMap<String, u64>> {
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

/// The sum of what is `counted` among lines of a name and a number.
fn total(metrics: &str, counted: impl Fn(&str) -> bool) -> u64 {
    let lines = metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once([' ', '\t']));
    let counts = lines.filter(|(name, _)| counted(name));
    let numbers = counts.filter_map(|(_, number)| number.parse::<f64>().ok());
    numbers.sum::<f64>() as u64
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_counted_counts() {
        let metrics = "# HELP a_count 7\na_count 1.5e+03\nb_count 2\nzk_packets\t30\n";
        assert_eq!(total(metrics, |name| name.ends_with("_count")), 1502);
        assert_eq!(total(metrics, |name| name == "zk_packets"), 30);
    }
}

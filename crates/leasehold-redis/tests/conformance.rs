//! The conformance suite on real servers of every edition and in every arrangement: each case has a database or a
//! prefix of its own.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use leasehold_testkit::conformance::{self, TestStore};
use leasehold_testkit::servers::{
    Redis, RedisCluster, RedisEdition, RedisNodes, RedisSentinel, Result,
};

/// How the servers of a place are arranged.
#[derive(Clone, Copy)]
enum Kind {
    Server,
    Sentinel,
    Cluster,
    Redlock,
}

/// What the suite runs on.
struct Place {
    kind: Kind,
    edition: RedisEdition,
    /// Started by the first case, not in the worker processes.
    servers: Mutex<Vec<Servers>>,
    databases: AtomicU32,
}

static REDIS6: Place = Place::of(Kind::Server, RedisEdition::Redis6);
static REDIS7: Place = Place::of(Kind::Server, RedisEdition::Redis7);
static REDIS8: Place = Place::of(Kind::Server, RedisEdition::Redis8);
static VALKEY8: Place = Place::of(Kind::Server, RedisEdition::Valkey8);
static SENTINEL: Place = Place::of(Kind::Sentinel, RedisEdition::Redis7);
static SENTINEL_VALKEY8: Place = Place::of(Kind::Sentinel, RedisEdition::Valkey8);
static CLUSTER: Place = Place::of(Kind::Cluster, RedisEdition::Redis7);
static CLUSTER_VALKEY8: Place = Place::of(Kind::Cluster, RedisEdition::Valkey8);
static REDLOCK: Place = Place::of(Kind::Redlock, RedisEdition::Redis7);

/// It has names as long as can be, which leave no room for a prefix, and looks at all there are.
const LONG_NAMES: &str = "naming-names_that_look_alike_are_different_locks";

enum Servers {
    One(Redis),
    Sentinel(RedisSentinel),
    Cluster(RedisCluster),
    Redlock(RedisNodes),
}

impl Servers {
    fn start(kind: Kind, edition: RedisEdition) -> Result<Self> {
        let args = ["--databases", "200"];
        Ok(match kind {
            Kind::Server => Self::One(Redis::start_with(edition, &args)?),
            Kind::Sentinel => Self::Sentinel(RedisSentinel::start_with(edition, &args, &[], None)?),
            Kind::Cluster => Self::Cluster(RedisCluster::start(edition)?),
            Kind::Redlock => Self::Redlock(RedisNodes::start_with(edition, 5, &args)?),
        })
    }
}

impl Place {
    const fn of(kind: Kind, edition: RedisEdition) -> Self {
        Self {
            kind,
            edition,
            servers: Mutex::new(Vec::new()),
            databases: AtomicU32::new(0),
        }
    }

    /// A database that no other case has.
    fn database(&self) -> u32 {
        self.databases.fetch_add(1, Ordering::Relaxed)
    }
}

impl TestStore for Place {
    fn url(&self, case: &str) -> String {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = matches!(self.kind, Kind::Cluster) && case == LONG_NAMES;
        if servers.is_empty() || alone {
            servers.push(Servers::start(self.kind, self.edition).expect("the servers start"));
        }
        let servers = if alone {
            servers.last()
        } else {
            servers.first()
        };
        match servers.expect("some were started") {
            Servers::One(redis) => format!("{}/{}", redis.url(), self.database()),
            Servers::Sentinel(group) => {
                let database = format!("/{}?", self.database());
                group.url().replace("/0?", &database)
            }
            Servers::Redlock(nodes) => {
                // An answer may be late on a busy machine, and no node is away here.
                format!("{}/{}?node-timeout=2s", nodes.url(), self.database())
            }
            Servers::Cluster(cluster) if alone => cluster.url(),
            Servers::Cluster(cluster) => format!("{}?prefix={case}:", cluster.url()),
        }
    }

    fn stopped_write_is_an_outage(&self) -> bool {
        // A client that stops leaves nothing open on the server.
        false
    }

    fn stop(&self) {
        self.servers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

fn main() -> ExitCode {
    conformance::main(&[
        ("redis6", &REDIS6),
        ("redis7", &REDIS7),
        ("redis8", &REDIS8),
        ("valkey8", &VALKEY8),
        ("sentinel", &SENTINEL),
        ("sentinel_valkey8", &SENTINEL_VALKEY8),
        ("cluster", &CLUSTER),
        ("cluster_valkey8", &CLUSTER_VALKEY8),
        ("redlock", &REDLOCK),
    ])
}

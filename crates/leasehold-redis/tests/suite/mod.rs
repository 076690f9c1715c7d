//! The conformance suite on real servers: every case has a database or a prefix of its own.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use leasehold_testkit::conformance::{self, TestStore};
use leasehold_testkit::servers::{
    Redis, RedisCluster, RedisEdition, RedisNodes, RedisSentinel, Result,
};

/// What the suite runs on.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each target has one of them")]
pub(crate) enum Place {
    Server(RedisEdition),
    Sentinel(RedisEdition),
    Cluster(RedisEdition),
    Redlock(RedisEdition),
}

/// Started by the first case, not in the worker processes.
static SERVERS: Mutex<Vec<Servers>> = Mutex::new(Vec::new());

/// It has names as long as can be, which leave no room for a prefix, and looks at all there are.
const LONG_NAMES: &str = "naming-names_that_look_alike_are_different_locks";

enum Servers {
    One(Redis),
    Sentinel(RedisSentinel),
    Cluster(RedisCluster),
    Redlock(RedisNodes),
}

impl Servers {
    fn start(place: Place) -> Result<Self> {
        Ok(match place {
            Place::Server(edition) => {
                Self::One(Redis::start_with(edition, &["--databases", "200"])?)
            }
            Place::Sentinel(edition) => {
                let args = ["--databases", "200"];
                Self::Sentinel(RedisSentinel::start_with(edition, &args, &[], None)?)
            }
            Place::Cluster(edition) => Self::Cluster(RedisCluster::start(edition)?),
            Place::Redlock(edition) => {
                Self::Redlock(RedisNodes::start_with(edition, 5, &["--databases", "200"])?)
            }
        })
    }
}

impl TestStore for Place {
    fn url(&self, case: &str) -> String {
        static DATABASE: AtomicU32 = AtomicU32::new(0);
        let mut servers = SERVERS
            .lock()
            .expect("no case panics while it starts the servers");
        let alone = matches!(self, Self::Cluster(_)) && case == LONG_NAMES;
        if servers.is_empty() || alone {
            servers.push(Servers::start(*self).expect("the servers start"));
        }
        let servers = if alone {
            servers.last()
        } else {
            servers.first()
        };
        match servers.expect("some were started") {
            Servers::One(redis) => {
                let database = DATABASE.fetch_add(1, Ordering::Relaxed);
                format!("{}/{database}", redis.url())
            }
            Servers::Sentinel(group) => {
                let database = DATABASE.fetch_add(1, Ordering::Relaxed);
                group.url().replace("/0?", &format!("/{database}?"))
            }
            Servers::Redlock(nodes) => {
                let database = DATABASE.fetch_add(1, Ordering::Relaxed);
                // An answer may be late on a busy machine, and no node is away here.
                format!("{}/{database}?node-timeout=2s", nodes.url())
            }
            Servers::Cluster(cluster) if alone => cluster.url(),
            Servers::Cluster(cluster) => format!("{}?prefix={case}:", cluster.url()),
        }
    }

    fn stopped_write_is_an_outage(&self) -> bool {
        // A client that stops leaves nothing open on the server.
        false
    }
}

/// Runs the suite.
pub(crate) fn main(place: Place) -> ExitCode {
    static STORE: OnceLock<Place> = OnceLock::new();
    let code = conformance::main(STORE.get_or_init(|| place));
    // A static is never dropped, and the servers must not outlive their tests.
    SERVERS.lock().expect("every case is over").clear();
    code
}

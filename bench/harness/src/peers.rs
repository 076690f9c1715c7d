//! Who takes part: leasehold, the raw driver, and the peers that could be brought.

use leasehold_bench_load::Result;

use crate::Plan;
use crate::bring::{Bring, Start};
use crate::server::Store;
use crate::subjects;
use crate::worker::Worker;

/// Somebody who takes part.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Its tries are plain SETs; a script's own commands are counted too and are no requests.
    pub(crate) sets: bool,
    start: std::result::Result<Start, String>,
}

/// What it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Leasehold,
    /// The least that a lock can be; it can't wait.
    Raw,
    Peer,
}

impl Entry {
    fn own(name: &'static str, kind: Kind, word: &'static str) -> Self {
        Self {
            name,
            kind,
            sets: kind == Kind::Raw,
            start: Ok(Box::new(move |url| subjects::command(&[word, url]))),
        }
    }

    /// A worker of it, connected to `url`.
    pub(crate) fn worker(&self, url: &str) -> Result<Worker> {
        match &self.start {
            Ok(start) => Worker::start(start(url)?),
            Err(why) => Err(why.clone()),
        }
    }

    /// Why it can't take part.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.start.as_ref().err().map(String::as_str)
    }
}

/// leasehold, and second the raw driver, which the others are compared with.
pub(crate) fn ours(store: Store) -> [Entry; 2] {
    let raw = match store {
        Store::Sqlite => "raw rusqlite",
        Store::Redis => "raw redis-rs 1.8.1",
        Store::Redlock => "raw redis-rs 1.8.1, two phases",
        Store::Etcd => "raw tonic, two transactions",
        Store::ZooKeeper => "raw, create with children, delete",
        Store::Consul => "raw hyper, acquire, release",
        Store::Postgres => "raw tokio-postgres, try with counter, unlock",
        Store::Mysql => "raw mysql_async, try with counter, unlock",
    };
    [
        Entry::own("**leasehold**", Kind::Leasehold, "leasehold"),
        Entry::own(raw, Kind::Raw, "raw"),
    ]
}

/// The others. One that can't be had says why in the tables.
pub(crate) fn of(store: Store, plan: &Plan) -> Result<Vec<Entry>> {
    // Some need not be brought: etcd's lock service is part of the server.
    let mut others = match store {
        Store::Etcd => vec![Entry::own("etcd lock service", Kind::Peer, "lock-service")],
        Store::Consul => {
            let name = "raw hyper, two transactions";
            vec![Entry::own(name, Kind::Raw, "raw-transactions")]
        }
        Store::Postgres => vec![
            Entry::own("leasehold, in a transaction", Kind::Raw, "in-transaction"),
            Entry::own("raw, in a transaction", Kind::Raw, "raw-transaction"),
        ],
        _ => Vec::new(),
    };
    if !plan.peers {
        return Ok(others);
    }
    let bring = Bring::new(&plan.target)?;
    let rslock = || peer("rslock 0.7.3", true, bring.rust("rslock", ""));
    let distributed = || {
        let start = bring.rust("distributed-lock", "");
        peer("distributed-lock-redis 0.2.0", true, start)
    };
    let redlock = || peer("node redlock 5.0.0-beta.2", false, bring.node());
    others.extend(match store {
        Store::Sqlite | Store::Etcd | Store::Mysql => Vec::new(),
        Store::Redis => vec![
            rslock(),
            distributed(),
            peer("redis-py 8.1.0", true, bring.python()),
            redlock(),
        ],
        Store::Redlock => vec![
            rslock(),
            distributed(),
            redlock(),
            peer("pottery 3.0.1", true, bring.python()),
        ],
        Store::ZooKeeper => vec![
            peer(
                "zookeeper-client 0.11.2",
                false,
                bring.rust("zookeeper-client", ""),
            ),
            peer("Curator 5.4", false, bring.java()),
            peer("kazoo 2.11.0", false, bring.python()),
        ],
        Store::Postgres => {
            let distributed = bring.rust("distributed-lock-postgres", "postgres");
            vec![peer("distributed-lock-postgres 0.2.0", false, distributed)]
        }
        Store::Consul => vec![peer("python-consul 1.1.0", false, bring.python())],
    });
    Ok(others)
}

fn peer(name: &'static str, sets: bool, start: std::result::Result<Start, String>) -> Entry {
    Entry {
        name,
        kind: Kind::Peer,
        sets,
        start,
    }
}

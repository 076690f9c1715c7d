//! `cargo xtask servers` and `cargo xtask up`: the tests' real servers, for a person.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people: what it prints is what it is for"
)]

use std::process::{Command, ExitCode};

use leasehold_core::clock;
use leasehold_testkit::servers::{
    Consul, Etcd, EtcdEdition, Mysql, MysqlEdition, PgBouncer, Postgres, Redis, RedisCluster,
    RedisEdition, RedisNodes, RedisSentinel, Result, ZooKeeper,
};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "\
usage: cargo xtask servers [NAME…]       bring the servers that tests need, all or those named
       cargo xtask up NAME [ARGUMENT…]   start one and stop it on Ctrl-C; the arguments are the server's own

A name without a version means the newest: redis, valkey, etcd. All names: ";

/// A server that can be started.
#[derive(Clone, Copy)]
enum Which {
    Redis(RedisEdition),
    Sentinel,
    Cluster,
    Redlock,
    Etcd(EtcdEdition),
    ZooKeeper,
    Consul,
    Postgres,
    PgBouncer,
    Mysql(MysqlEdition),
}

/// The edition that a group of Redis is made of.
const GROUP: RedisEdition = RedisEdition::Redis8;
/// Of how many nodes two may be away.
const NODES: usize = 5;

impl Which {
    /// Of each server the newest comes last.
    fn all() -> Vec<Self> {
        let redis = RedisEdition::ALL.into_iter().map(Self::Redis);
        let etcd = EtcdEdition::ALL.into_iter().map(Self::Etcd);
        let groups = [Self::Sentinel, Self::Cluster, Self::Redlock];
        redis
            .chain(groups)
            .chain(etcd)
            .chain([
                Self::ZooKeeper,
                Self::Consul,
                Self::Postgres,
                Self::PgBouncer,
            ])
            .chain(MysqlEdition::ALL.into_iter().map(Self::Mysql))
            .collect()
    }

    fn named(name: &str) -> Option<Self> {
        let is_version = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
        let fits = |which: &Self| which.name().strip_prefix(name).is_some_and(is_version);
        Self::all().into_iter().rev().find(fits)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Redis(edition) => edition.name(),
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Redlock => "redlock",
            Self::Etcd(edition) => edition.name(),
            Self::ZooKeeper => "zookeeper",
            Self::Consul => "consul",
            Self::Postgres => "postgres",
            Self::PgBouncer => "pgbouncer",
            Self::Mysql(edition) => edition.name(),
        }
    }

    /// Brings it, unless it is here.
    fn bring(self) -> Result<Command> {
        match self {
            Self::Redis(edition) => edition.command(),
            Self::Sentinel | Self::Cluster | Self::Redlock => GROUP.command(),
            Self::Etcd(edition) => edition.package().command(),
            Self::ZooKeeper => ZooKeeper::java(),
            Self::Consul => Consul::package().command(),
            Self::Postgres => Postgres::package().command(),
            Self::PgBouncer => PgBouncer::package().command(),
            Self::Mysql(edition) => edition.command(),
        }
    }

    /// Starts it with arguments of its own; answers its URL, and the server, which ends when it is dropped.
    fn start(self, arguments: &[&str]) -> Result<(String, Box<dyn std::fmt::Debug>)> {
        Ok(match self {
            Self::Redis(edition) => {
                let redis = Redis::start_with(edition, arguments)?;
                (redis.url(), Box::new(redis))
            }
            Self::Sentinel => {
                let group = RedisSentinel::start_with(GROUP, arguments, &[], None)?;
                (group.url(), Box::new(group))
            }
            Self::Cluster => {
                let cluster = RedisCluster::start_with(GROUP, arguments, None)?;
                (cluster.url(), Box::new(cluster))
            }
            Self::Redlock => {
                let nodes = RedisNodes::start_with(GROUP, NODES, arguments)?;
                (nodes.url(), Box::new(nodes))
            }
            Self::Etcd(edition) => {
                let etcd = Etcd::start_with(edition, 1, arguments)?;
                (etcd.url(), Box::new(etcd))
            }
            Self::ZooKeeper => {
                let zookeeper = ZooKeeper::start_with(1, arguments, None)?;
                (zookeeper.url(), Box::new(zookeeper))
            }
            Self::Consul => {
                // Its settings have no form on a command line that all of them fit.
                let consul = Consul::start_with(1, &arguments.join(","), None)?;
                (consul.url(), Box::new(consul))
            }
            Self::Postgres => {
                let postgres = Postgres::start_with(arguments, None)?;
                (postgres.url(), Box::new(postgres))
            }
            Self::PgBouncer => {
                let postgres = Postgres::start()?;
                let bouncer = PgBouncer::start(&postgres, "transaction", &arguments.join("\n"))?;
                // What is first in it ends first.
                (bouncer.url(), Box::new((bouncer, postgres)))
            }
            Self::Mysql(edition) => {
                let mysql = Mysql::start_with(edition, arguments, None)?;
                (mysql.url(), Box::new(mysql))
            }
        })
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["servers"] => Which::all().into_iter().try_for_each(bring),
        ["servers", names @ ..] => {
            let named: Option<Vec<Which>> = names.iter().map(|name| Which::named(name)).collect();
            match named {
                Some(named) => named.into_iter().try_for_each(bring),
                None => return usage(),
            }
        }
        ["up", name, arguments @ ..] => match Which::named(name) {
            Some(which) => up(which, arguments),
            None => return usage(),
        },
        _ => return usage(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let names: Vec<&str> = Which::all().into_iter().map(Which::name).collect();
    eprintln!("{USAGE}{}", names.join(", "));
    ExitCode::from(64)
}

/// Fetches a server and starts it once, so that what is missing shows here and not in a test.
fn bring(which: Which) -> Result<()> {
    let start = clock::now();
    which.bring()?;
    let fetched = clock::now();
    drop(which.start(&[])?);
    println!(
        "{:<8} fetched in {:.1} s, starts in {:.2} s",
        which.name(),
        fetched.since(start).steady.as_secs_f64(),
        clock::now().since(fetched).steady.as_secs_f64()
    );
    Ok(())
}

/// Runs a server until a signal comes.
fn up(which: Which, arguments: &[&str]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Before the server is there: a signal from then on must find us listening.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (url, _server) = which.start(arguments)?;
        println!("{url}");
        eprintln!("{} runs; Ctrl-C stops it", which.name());
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    })
}

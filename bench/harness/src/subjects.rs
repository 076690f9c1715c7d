//! What is measured here: leasehold, and the same work on the raw drivers.

use std::process::Command;

use leasehold::{Client, Guard};
use leasehold_bench_load::{Result, Subject, TTL, serve, text};
use redis::aio::MultiplexedConnection;

use crate::held;
use crate::raw_consul::{RawConsul, RawTransactions};
use crate::raw_etcd::{LockService, RawEtcd};
use crate::raw_mysql::RawMysql;
use crate::raw_postgres::{InTransaction, RawPostgres, RawTransaction};
use crate::raw_redlock::RawRedlock;
use crate::raw_sqlite::RawSqlite;
use crate::raw_zookeeper::RawZooKeeper;

/// The command that starts this program as a worker.
pub(crate) fn command(words: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().map_err(text)?);
    command.arg("worker").args(words);
    Ok(command)
}

/// A worker's whole life.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(text)?;
    runtime.block_on(async {
        match words {
            ["leasehold", url] => {
                serve(Leasehold(leasehold::connect(url).await.map_err(text)?)).await
            }
            ["hold", url] => held::worker(leasehold::connect(url).await.map_err(text)?).await,
            ["raw", url] if url.starts_with("sqlite:") => serve(RawSqlite::start(url)?).await,
            ["raw", url] if url.starts_with("etcd:") => serve(RawEtcd::connect(url).await?).await,
            ["raw", url] if url.starts_with("redlock:") => {
                serve(RawRedlock::connect(url).await?).await
            }
            ["raw", url] if url.starts_with("zookeeper:") => {
                serve(RawZooKeeper::connect(url).await?).await
            }
            ["raw", url] if url.starts_with("consul:") => {
                serve(RawConsul::connect(url).await?).await
            }
            ["raw", url] if url.starts_with("postgres:") => {
                serve(RawPostgres::connect(url).await?).await
            }
            ["raw", url] if url.starts_with("mysql:") => serve(RawMysql::connect(url).await?).await,
            ["in-transaction", url] => serve(InTransaction::connect(url).await?).await,
            ["raw-transaction", url] => serve(RawTransaction::connect(url).await?).await,
            ["raw-transactions", url] => serve(RawTransactions::connect(url).await?).await,
            ["lock-service", url] => serve(LockService::connect(url).await?).await,
            ["raw", url] => serve(RawRedis::connect(url).await?).await,
            _ => Err(format!("no such worker: {words:?}")),
        }
    })
}

struct Leasehold(Client);

impl Subject for Leasehold {
    type Hold = Guard;

    async fn acquire(&self, name: &str) -> Result<Guard> {
        let lock = self.0.lock(name).map_err(text)?.ttl(TTL);
        lock.acquire().await.map_err(text)
    }

    async fn release(&self, hold: Guard) -> Result<()> {
        match hold.release().await.map_err(text)? {
            leasehold::Release::Freed => Ok(()),
            other => Err(format!("a release found {}", other.as_str())),
        }
    }
}

/// The least that a lock on Redis can be: SET NX PX, and a script that deletes what is still ours.
struct RawRedis {
    connection: MultiplexedConnection,
    delete: redis::Script,
}

impl RawRedis {
    async fn connect(url: &str) -> Result<Self> {
        let client = redis::Client::open(url).map_err(text)?;
        Ok(Self {
            connection: client
                .get_multiplexed_async_connection()
                .await
                .map_err(text)?,
            delete: redis::Script::new(
                "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
            ),
        })
    }
}

impl Subject for RawRedis {
    type Hold = String;

    async fn acquire(&self, name: &str) -> Result<String> {
        let mut connection = self.connection.clone();
        let set: Option<String> = redis::cmd("SET")
            .arg(name)
            .arg("owner")
            .arg("NX")
            .arg("PX")
            .arg(TTL.as_millis() as u64)
            .query_async(&mut connection)
            .await
            .map_err(text)?;
        match set {
            Some(_) => Ok(name.to_owned()),
            None => Err(format!("{name} is held")),
        }
    }

    async fn release(&self, name: String) -> Result<()> {
        let mut connection = self.connection.clone();
        let deleted: u64 = self
            .delete
            .key(&name)
            .arg("owner")
            .invoke_async(&mut connection)
            .await
            .map_err(text)?;
        if deleted == 1 {
            Ok(())
        } else {
            Err(format!("{name} was not held"))
        }
    }
}

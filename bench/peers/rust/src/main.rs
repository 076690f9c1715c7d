//! Other Rust lock libraries under the same load: `leasehold-bench-peers SUBJECT URL`.

#[cfg(feature = "postgres")]
mod postgres;

use std::process::ExitCode;
use std::time::Duration;

use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};
use leasehold_bench_load::{Result, Subject, TTL, serve, text};
use rslock::{Lock, LockManager};
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

/// How long distributed-lock's users pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

struct Rslock(LockManager);

impl Subject for Rslock {
    type Hold = Lock;

    async fn acquire(&self, name: &str) -> Result<Lock> {
        let acquired = self.0.acquire_no_guard(name.as_bytes(), TTL).await;
        acquired.map_err(text)
    }

    async fn release(&self, hold: Lock) -> Result<()> {
        self.0.unlock(&hold).await;
        Ok(())
    }
}

struct DistributedLockRedis(RedisLockProvider);

impl Subject for DistributedLockRedis {
    type Hold = RedisLockHandle;

    async fn acquire(&self, name: &str) -> Result<RedisLockHandle> {
        let lock = self.0.create_lock(name);
        // It looks once, whatever it is told: who wants to wait looks again.
        loop {
            match lock.acquire(None).await {
                Err(LockError::Timeout(_)) => tokio::time::sleep(LOOK_AGAIN).await,
                acquired => return acquired.map_err(text),
            }
        }
    }

    async fn release(&self, hold: RedisLockHandle) -> Result<()> {
        hold.release().await.map_err(text)
    }
}

/// zookeeper-client's own lock, with Curator's names.
struct ZooKeeper(Client);

impl ZooKeeper {
    async fn connect(url: &str) -> Result<Self> {
        let (_, hosts) = url.split_once("://").ok_or("no URL")?;
        let client = Client::connector()
            .with_session_timeout(TTL)
            .connect(hosts)
            .await;
        Ok(Self(client.map_err(text)?))
    }
}

impl Subject for ZooKeeper {
    type Hold = OwnedLockClient;

    async fn acquire(&self, name: &str) -> Result<OwnedLockClient> {
        let folder = format!("/{name}");
        let prefix = LockPrefix::new_curator(&folder, "lock-").map_err(text)?;
        let parents = CreateMode::Container.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all())
            .with_ancestor_options(parents)
            .map_err(text)?;
        let lock = self.0.lock(prefix, b"", options).await.map_err(text)?;
        Ok(lock.into_owned())
    }

    async fn release(&self, hold: OwnedLockClient) -> Result<()> {
        // Dropped, it would be deleted without anybody knowing when; and here once more.
        let deleted = self.0.delete(hold.lock_path(), None).await;
        std::mem::forget(hold);
        deleted.map_err(text)
    }
}

/// One server, or the nodes of `redlock://h1,h2,…`.
fn servers(url: &str) -> Vec<String> {
    match url.strip_prefix("redlock://") {
        Some(hosts) => hosts
            .split(',')
            .map(|host| format!("redis://{host}"))
            .collect(),
        None => vec![url.to_owned()],
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["rslock", url] => serve(Rslock(LockManager::new(servers(url)))).await,
        ["distributed-lock", url] => {
            let provider = RedisLockProvider::builder()
                .urls(&servers(url))
                .expiry(TTL)
                .build()
                .await;
            match provider {
                Ok(provider) => serve(DistributedLockRedis(provider)).await,
                Err(error) => Err(text(error)),
            }
        }
        #[cfg(feature = "postgres")]
        ["distributed-lock-postgres", url] => match postgres::DistributedLock::connect(url).await {
            Ok(lock) => serve(lock).await,
            Err(error) => Err(error),
        },
        ["zookeeper-client", url] => match ZooKeeper::connect(url).await {
            Ok(zookeeper) => serve(zookeeper).await,
            Err(error) => Err(error),
        },
        _ => {
            Err("usage: leasehold-bench-peers rslock|distributed-lock|distributed-lock-postgres|zookeeper-client URL".into())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

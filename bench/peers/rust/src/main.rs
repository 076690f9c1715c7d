//! Other Rust lock libraries under the same load: `leasehold-bench-peers SUBJECT URL`.

use std::process::ExitCode;
use std::time::Duration;

use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};
use leasehold_bench_load::{Result, Subject, TTL, serve, text};
use rslock::{Lock, LockManager};

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

/// One server, or the nodes of `redlock://h1,h2,…`.
fn servers(url: &str) -> Vec<String> {
    match url.strip_prefix("redlock://") {
        Some(hosts) => hosts.split(',').map(|host| format!("redis://{host}")).collect(),
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
                .url(url)
                .expiry(TTL)
                .build()
                .await;
            match provider {
                Ok(provider) => serve(DistributedLockRedis(provider)).await,
                Err(error) => Err(text(error)),
            }
        }
        _ => Err("usage: leasehold-bench-peers rslock|distributed-lock URL".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

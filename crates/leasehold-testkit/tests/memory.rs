//! What a held lock costs in memory, without what its store needs for it.

use std::alloc::System;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, Backend, BackendInfo, Broken, Capabilities, Contender, Finding, Grant, Renewal,
    TokenGrade,
};
use leasehold_core::{
    Claim, Client, Error, ErrorKind, Guard, Inspection, Name, Owner, Release, Result, Token, clock,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const HOLDS: usize = 10_000;
const BYTES_MAX: usize = 1024;

/// Grants everything to everybody and keeps nothing.
#[derive(Debug)]
struct Generous {
    info: BackendInfo,
    tokens: AtomicU64,
}

#[derive(Debug)]
struct Granted {
    token: Token,
    ttl: Duration,
}

#[async_trait]
impl Backend for Generous {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, claim: Claim) -> Result<Box<dyn Contender>> {
        let token = self.tokens.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Box::new(Granted {
            token: Token::new(token).expect("tokens begin at one"),
            ttl: claim.ttl,
        }))
    }

    async fn resume(&self, _name: Name, owner: Owner) -> Result<Box<dyn Contender>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("nothing of {owner:?} to resume"),
        ))
    }

    async fn check(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn inspect(&self, name: &Name) -> Result<Inspection> {
        Ok(Inspection::free(name.clone()))
    }

    async fn list(&self, _prefix: &str) -> Result<Vec<Inspection>> {
        Ok(Vec::new())
    }

    async fn break_hold(&self, _name: &Name, _token: Option<Token>) -> Result<Broken> {
        Ok(Broken::Free)
    }

    fn inherit(&self) -> Option<OwnedFd> {
        None
    }

    async fn close(&self) {}
}

#[async_trait]
impl Contender for Granted {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        Ok(Attempt::Granted(Grant {
            token: self.token,
            since: clock::now(),
            ttl: self.ttl,
        }))
    }

    fn poll_changed(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    async fn renew(&mut self, ttl: Duration) -> Result<Renewal> {
        Ok(Renewal::Renewed {
            since: clock::now(),
            ttl,
        })
    }

    async fn release(&mut self, _keep: Duration) -> Result<Release> {
        Ok(Release::Freed)
    }
}

fn client() -> Client {
    let backend = Generous {
        info: BackendInfo {
            store: "generous",
            url: "generous://".into(),
            capabilities: Capabilities {
                token: TokenGrade::BestEffort,
                ordered: false,
                push: false,
                frees_dead_at_once: false,
                detached: false,
                extends: true,
                list_scans: false,
                ttl_min: Duration::from_millis(1),
                ttl_max: Duration::from_secs(3600),
            },
        },
        tokens: AtomicU64::new(0),
    };
    Client::new(Arc::new(backend), "").expect("a runtime")
}

async fn take(client: &Client, count: usize, ttl: Duration) -> Vec<Guard> {
    let mut guards = Vec::with_capacity(count);
    for at in 0..count {
        let lock = client
            .lock(&format!("jobs/report/{at:06}"))
            .expect("a name");
        guards.push(lock.ttl(ttl).acquire().await.expect("a grant"));
    }
    guards
}

/// Bytes on the heap now, besides those `region` began with.
fn grown(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change
        .bytes_allocated
        .saturating_sub(change.bytes_deallocated)
}

#[tokio::test]
async fn a_held_lock_costs_less_than_a_kilobyte_and_gives_it_back() {
    let client = client();
    // What is made once per process comes first: the keeper, its runtime, the identity.
    drop(take(&client, 100, Duration::from_secs(60)).await);
    client.close().await;

    let region = Region::new(ALLOCATOR);
    let guards = take(&client, HOLDS, Duration::from_secs(3)).await;
    // Time for the keeper to take all of them in and to renew each at least once.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(guards.iter().all(Guard::is_held));
    let each = grown(&region) / HOLDS;
    println!("{each} bytes per held lock");
    assert!((1..BYTES_MAX).contains(&each), "{each} bytes");

    drop(guards);
    client.close().await;
    // The keeper drops a released hold when it next wakes.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let left = grown(&region) / HOLDS;
    // Empty maps keep their capacity for the next holds.
    assert!(left < 200, "{left} of {each} bytes per hold are left");
}

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use leasehold::store::{BackendInfo, Broken, Capabilities, Finding, TokenGrade};
use leasehold::{Client, Error, ErrorKind, Name, Owner, Result, Token};
use leasehold_core::Claim;
use leasehold_core::backend::{Backend, Contender};

use super::*;
use crate::exit::{REFUSED, UNAVAILABLE};

#[test]
fn an_outage_is_told_of_once_a_minute_and_at_once_when_it_comes_back() {
    let mut outage = Outage::default();
    let told: Vec<u64> = (0..200)
        .filter(|second| outage.is_due(Duration::from_secs(*second), !(80..90).contains(second)))
        .collect();
    assert_eq!(told, [0, 60, 90, 150]);
}

/// A store that can't be reached for a number of tries, and then refuses the credentials.
#[derive(Debug)]
struct Unreachable {
    info: BackendInfo,
    tries: AtomicU32,
    most: u32,
}

fn unreachable(most: u32) -> Arc<Unreachable> {
    Arc::new(Unreachable {
        info: BackendInfo {
            store: "unreachable",
            url: "unreachable://".into(),
            capabilities: Capabilities {
                token: TokenGrade::BestEffort,
                ordered: false,
                push: false,
                frees_dead_at_once: false,
                detached: false,
                extends: true,
                list_scans: false,
                ttl_min: Duration::from_secs(1),
                ttl_max: Duration::from_secs(60),
            },
        },
        tries: AtomicU32::new(0),
        most,
    })
}

#[async_trait]
impl Backend for Unreachable {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn contend(&self, _: Claim) -> Result<Box<dyn Contender>> {
        let kind = if self.tries.fetch_add(1, Ordering::Relaxed) < self.most {
            ErrorKind::Unavailable
        } else {
            ErrorKind::Unauthorized
        };
        Err(Error::new(kind, "out"))
    }

    async fn resume(&self, _: Name, _: Owner) -> Result<Box<dyn Contender>> {
        Err(Error::new(ErrorKind::Unsupported, "no detached holds"))
    }

    async fn check(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    async fn inspect(&self, name: &Name) -> Result<Inspection> {
        Ok(Inspection::free(name.clone()))
    }

    async fn list(&self, _: &str) -> Result<Vec<Inspection>> {
        Ok(Vec::new())
    }

    async fn break_hold(&self, _: &Name, _: Option<Token>) -> Result<Broken> {
        Ok(Broken::Free)
    }

    fn inherit(&self) -> Option<OwnedFd> {
        None
    }

    async fn close(&self) {}
}

#[tokio::test]
async fn an_outage_between_two_questions_is_waited_out_and_refused_credentials_are_not() {
    let store = unreachable(2);
    let lock = Client::new(store.clone(), "").unwrap().lock("x").unwrap();
    for wait in [Wait::Forever, Wait::AtMost(Duration::from_secs(60))] {
        store.tries.store(0, Ordering::Relaxed);
        let failure = answer(&lock, wait, clock::now()).await.unwrap_err();
        assert_eq!(failure.code, REFUSED);
        assert_eq!(store.tries.load(Ordering::Relaxed), 3);
    }
}

#[tokio::test]
async fn a_wait_that_ends_in_an_outage_is_no_busy_lock() {
    let lock = Client::new(unreachable(u32::MAX), "")
        .unwrap()
        .lock("x")
        .unwrap();
    let begun = clock::now();
    let wait = Wait::AtMost(Duration::from_millis(700));
    let failure = answer(&lock, wait, begun).await.unwrap_err();
    assert_eq!(failure.code, UNAVAILABLE);
    assert!(waited(begun) >= Duration::from_millis(700));
}

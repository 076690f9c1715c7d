//! What all contenders of a client share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::AdvisoryStore;
use super::contender::AdvisoryContender;
use crate::backend::Contender;
use crate::claim::Claim;
use crate::name::Name;
use crate::session::{Pool, Turns};

/// On how many sessions a client waits at once; what is beyond is tried now and then.
const WAITS_MAX: usize = 16;

/// The advisory locks of a client.
#[derive(Debug)]
pub struct Locks<S: AdvisoryStore> {
    /// Where they are.
    pub store: Arc<S>,
    pub(super) pool: Arc<Pool<S>>,
    pub(super) turns: Arc<Turns>,
    /// The sessions that may wait.
    pub(super) waits: Arc<Semaphore>,
}

impl<S: AdvisoryStore> Locks<S> {
    /// Those of a store, without sessions yet.
    #[must_use]
    pub fn new(store: S) -> Arc<Self> {
        let store = Arc::new(store);
        Arc::new(Self {
            pool: Arc::new(Pool::new(store.clone())),
            turns: Arc::default(),
            waits: Arc::new(Semaphore::new(WAITS_MAX)),
            store,
        })
    }

    /// An attempt. `lock` is what the server knows it by: claims whose locks are one exclude each other, also where their
    /// names differ.
    #[must_use]
    pub fn contend(self: &Arc<Self>, claim: Claim, lock: Name) -> Box<dyn Contender> {
        Box::new(AdvisoryContender::new(self.clone(), claim, lock))
    }

    /// Ends the sessions that nobody holds by.
    ///
    /// # Cancel safety
    /// Safe: the others, and what isn't ended then, end by their TTL.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

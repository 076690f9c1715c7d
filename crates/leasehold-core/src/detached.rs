//! Holds that no process renews.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Contender, LossReason, Release, Renewal};
use crate::claim::{Owner, Token};
use crate::client::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::keeper::within;
use crate::name::Name;

/// How long the store may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A hold that ends by its TTL alone, whatever becomes of the process that took it. Whoever knows its owner can
/// extend or release it: see [`Client::resume`](crate::Client::resume).
#[derive(Clone, Debug)]
pub struct Detached {
    /// The name with the client's prefix.
    pub name: Name,
    /// What it takes to extend or release it; a secret.
    pub owner: Owner,
    /// The fencing token.
    pub token: Token,
}

/// A hold taken elsewhere, in hand again. Dropping it changes nothing.
pub struct Resumed {
    store: Arc<Store>,
    name: Name,
    contender: Box<dyn Contender>,
}

impl Resumed {
    pub(crate) fn new(store: Arc<Store>, name: Name, contender: Box<dyn Contender>) -> Self {
        Self {
            store,
            name,
            contender,
        }
    }

    /// Makes the hold last at least `ttl` from now.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when it had ended; `Ambiguous` or `Unavailable` when the store gave no answer.
    ///
    /// # Cancel safety
    /// Dropped before its end, the hold may or may not last longer.
    pub async fn extend(&mut self, ttl: Duration) -> Result<()> {
        let renewal = match self.store.check_ttl(ttl) {
            Ok(()) => within(PATIENCE, self.contender.renew(ttl)).await,
            Err(error) => Err(error),
        };
        let outcome = match renewal {
            Ok(Renewal::Renewed { .. }) => Ok(()),
            // When it was taken and renewed last is known to nobody here.
            Ok(Renewal::Lost(LossReason::Expired)) => Err(Error::new(
                ErrorKind::Lost,
                "the lock is lost: its time was over, or it was deleted from the store",
            )),
            Ok(Renewal::Lost(reason)) => Err(Error::new(
                ErrorKind::Lost,
                format!("the lock is lost: {reason}"),
            )),
            Err(error) => Err(error),
        };
        outcome.map_err(|error| self.store.explain(error, "extend", &self.name))
    }

    /// Gives the lock back and says what came of it.
    ///
    /// # Errors
    /// When the store gave no answer: call again, or let it end by its TTL.
    ///
    /// # Cancel safety
    /// Dropped before its end, the hold may or may not be released.
    pub async fn release(&mut self) -> Result<Release> {
        within(PATIENCE, self.contender.release(Duration::ZERO))
            .await
            .map_err(|error| self.store.explain(error, "release", &self.name))
    }
}

impl fmt::Debug for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resumed")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

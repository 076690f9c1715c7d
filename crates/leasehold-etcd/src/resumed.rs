//! A hold that another process took, found by its owner.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt, Contender, LossReason, Release, Renewal};
use leasehold_core::{Error, ErrorKind, Name, Owner, Result, clock};

use crate::attempt;
use crate::backend::Shared;
use crate::ending;
use crate::keys;
use crate::note::Note;
use crate::wire::{Compare, KeyValue, LeaseTimeToLiveRequest, Op, RangeResponse, TxnRequest};

pub(crate) struct Resumed {
    shared: Arc<Shared>,
    name: Name,
    owner: Owner,
    /// A release was sent and not answered.
    releasing: bool,
}

impl Resumed {
    pub(crate) fn new(shared: Arc<Shared>, name: Name, owner: Owner) -> Self {
        Self {
            shared,
            name,
            owner,
            releasing: false,
        }
    }

    async fn places(&self) -> Result<RangeResponse> {
        let oldest = keys::oldest(&self.name, 0);
        Ok(self
            .shared
            .grants
            .ask(oldest, self.shared.patience())
            .await?)
    }

    /// Our place, where it is the first.
    fn hold<'a>(&self, places: &'a RangeResponse) -> Option<&'a KeyValue> {
        attempt::first(&self.name, places)
            .filter(|first| Note::of(first).is_some_and(|note| note.is_of(self.owner)))
    }
}

#[async_trait]
impl Contender for Resumed {
    async fn try_acquire(&mut self) -> Result<Attempt> {
        Err(Error::new(
            ErrorKind::Bug,
            "a hold of another process can't be acquired",
        ))
    }

    fn poll_changed(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    async fn renew(&mut self, ttl: Duration) -> Result<Renewal> {
        let places = self.places().await?;
        let lost = |places: &RangeResponse| {
            let other = attempt::first(&self.name, places).is_some();
            Renewal::Lost(if other {
                LossReason::Stolen
            } else {
                LossReason::Expired
            })
        };
        let Some(hold) = self.hold(&places) else {
            return Ok(lost(&places));
        };
        let (link, patience) = (&self.shared.grants, self.shared.patience());
        let since = clock::now();
        let request = LeaseTimeToLiveRequest {
            id: hold.lease,
            keys: false,
        };
        let left = link.ask(request, patience).await?;
        let left = Duration::from_secs(u64::try_from(left.ttl).unwrap_or(0));
        if left > ttl {
            // Never shortened. The server counts in whole seconds, rounded down.
            return Ok(Renewal::Renewed { since, ttl: left });
        }
        let since = clock::now();
        match ending::rehang(link, &hold.key, hold.create_revision, ttl, patience).await? {
            Some(ttl) => Ok(Renewal::Renewed { since, ttl }),
            None => Ok(lost(&self.places().await?)),
        }
    }

    async fn release(&mut self, keep: Duration) -> Result<Release> {
        let again = std::mem::replace(&mut self.releasing, true);
        let places = self.places().await?;
        let (link, patience) = (&self.shared.grants, self.shared.patience());
        let freed = match self.hold(&places) {
            Some(hold) if !keep.is_zero() => {
                ending::rehang(link, &hold.key, hold.create_revision, keep, patience)
                    .await?
                    .is_some()
            }
            Some(hold) => {
                let delete = TxnRequest {
                    compare: vec![Compare::created(&hold.key, hold.create_revision)],
                    success: vec![Op::delete(&hold.key)],
                    failure: Vec::new(),
                };
                link.call(delete, patience).await?.succeeded
            }
            None => false,
        };
        Ok(match attempt::first(&self.name, &places) {
            _ if freed => Release::Freed,
            Some(_) => Release::Another,
            None if again => Release::Freed,
            None => Release::Expired,
        })
    }
}

impl fmt::Debug for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resumed")
            .field("name", &self.name)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

//! A hold that another process took and let go of: known by its owner.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Attempt, Contender, LossReason, Release, Renewal};
use leasehold_core::{Error, ErrorKind, Name, Owner, Result, clock};

use crate::backend::Shared;
use crate::ending;
use crate::keys;
use crate::look;
use crate::note::{self, Note};
use crate::wire::Entry;

pub(crate) struct Resumed {
    shared: Arc<Shared>,
    name: Name,
    key: String,
    owner: Owner,
    /// A release was sent and not answered.
    releasing: bool,
}

impl Resumed {
    pub(crate) fn new(shared: Arc<Shared>, name: Name, owner: Owner) -> Self {
        Self {
            shared,
            key: keys::key(&name),
            name,
            owner,
            releasing: false,
        }
    }

    /// The lock's key, where a session has it locked.
    async fn entry(&self) -> Result<Option<Entry>> {
        let patience = self.shared.patience();
        let entry = self.shared.link().entry(&self.key, patience).await?;
        Ok(entry.filter(|entry| entry.session().is_some()))
    }

    fn is_ours(&self, entry: &Entry) -> bool {
        Note::of(entry).is_some_and(|note| note.is_of(self.owner))
    }

    async fn lost(&self) -> Result<Renewal> {
        let other = self.entry().await?.is_some();
        Ok(Renewal::Lost(if other {
            LossReason::Stolen
        } else {
            LossReason::Expired
        }))
    }

    /// Has the hold last `ttl` from now on a new session.
    async fn hang_anew(&self, hold: &Entry, ttl: Duration) -> Result<bool> {
        let (Some(note), Some(from)) = (Note::of(hold), hold.session()) else {
            return Ok(false);
        };
        let note = note.with_token(note::token(hold));
        let ttl = ttl.max(self.shared.ttl_min);
        let (link, patience) = (self.shared.link(), self.shared.patience());
        Ok(ending::keep(link, &self.key, from, &note, ttl, patience)
            .await?
            .is_some())
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
        let hold = self.entry().await?.filter(|entry| self.is_ours(entry));
        let Some((hold, id)) = hold.and_then(|hold| {
            let id = hold.session()?.to_owned();
            Some((hold, id))
        }) else {
            return self.lost().await;
        };
        let (link, patience) = (self.shared.link(), self.shared.patience());
        let since = clock::now();
        let lasts = match link.session(&id, patience).await? {
            Some(session) => look::ttl(&session),
            None => return self.lost().await,
        };
        if lasts.is_some_and(|lasts| lasts >= ttl) {
            // Never shortened.
            let renewed = link.renew_session(&id, patience).await?;
            let after = self.entry().await?;
            if renewed && after.is_some_and(|after| after.session() == Some(&id)) {
                return Ok(Renewal::Renewed { since, ttl });
            }
            return self.lost().await;
        }
        if self.hang_anew(&hold, ttl).await? {
            return Ok(Renewal::Renewed { since, ttl });
        }
        self.lost().await
    }

    async fn release(&mut self, keep: Duration) -> Result<Release> {
        let again = std::mem::replace(&mut self.releasing, true);
        let entry = self.entry().await?;
        let freed = match entry.as_ref().filter(|entry| self.is_ours(entry)) {
            Some(hold) if !keep.is_zero() => self.hang_anew(hold, keep).await?,
            Some(hold) => {
                let (link, patience) = (self.shared.link(), self.shared.patience());
                ending::delete(link, &self.key, hold.modify_index, patience).await?
            }
            None => false,
        };
        Ok(match entry {
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

//! How an attempt or a hold is given back.

use std::time::Duration;

use leasehold_core::backend::Release;
use leasehold_core::session::end;
use leasehold_core::{Result, clock};

use crate::contender::ConsulContender;
use crate::ending;
use crate::error::Failure;
use crate::note::Note;

/// How long a release waits for the answer to a try that was given up.
const SETTLE: Duration = Duration::from_secs(1);
/// When a try without an answer is looked after first. It lands mostly at once if it does.
const FIRST_LOOK: Duration = Duration::from_millis(20);

impl ConsulContender {
    /// Ends the attempt or the hold; with `keep`, that much later and by time alone.
    pub(crate) async fn leave(&mut self, keep: Duration) -> Result<Release> {
        let again = std::mem::replace(&mut self.releasing, true);
        // One that isn't answered by then, because its runtime stands still for example, is looked after.
        if let Ok(Err(error)) = tokio::time::timeout(SETTLE, self.answer()).await {
            tracing::debug!(%error, name = %self.claim.name, "a try that was given up had no answer");
        }
        self.trying = None;
        let freed = if keep.is_zero() {
            self.give_back().await?
        } else {
            self.keep(keep).await?
        };
        let release = if freed {
            Release::Freed
        } else if self.held.is_some() || again {
            self.gone(again).await?
        } else {
            Release::Expired
        };
        self.told = None;
        if let Some(seat) = self.seat.take()
            && seat.with(|place| !place.is_clean())
        {
            // The session looks after it from now on.
            let soon = end(clock::now(), FIRST_LOOK);
            seat.with(|place| place.give_up_again(soon));
        }
        Ok(release)
    }

    /// Deletes the key; answers whether it was there.
    pub(crate) async fn give_back(&mut self) -> Result<bool> {
        let Some(seat) = &self.seat else {
            return Ok(false);
        };
        let (link, patience) = (self.shared.link(), self.shared.patience());
        let ended = ending::end(link, &seat.session, &self.claim.name, patience).await?;
        seat.with(|place| place.made = None);
        Ok(ended)
    }

    /// Keeps the hold for a while by time alone; answers whether it was there.
    async fn keep(&mut self, keep: Duration) -> Result<bool, Failure> {
        let (Some(seat), Some(held)) = (&self.seat, &self.held) else {
            return Ok(false);
        };
        let Some(id) = seat.session.live() else {
            return Ok(false);
        };
        let note = held.note.clone().with_token(held.token);
        let (link, patience) = (self.shared.link(), self.shared.patience());
        let keep = keep.max(self.shared.ttl_min);
        let kept = ending::keep(link, &self.key, &id, &note, keep, patience).await?;
        seat.with(|place| place.made = None);
        Ok(kept.is_some())
    }

    /// What became of a hold that wasn't there to be released.
    async fn gone(&self, again: bool) -> Result<Release> {
        let (link, patience) = (self.shared.link(), self.shared.patience());
        let entry = link.entry(&self.key, patience).await?;
        let Some(entry) = entry else {
            // What an unanswered release left may well be its work.
            return Ok(if again {
                Release::Freed
            } else {
                Release::Expired
            });
        };
        let ours = Note::of(&entry).is_some_and(|note| note.is_of(self.claim.owner));
        if entry.session().is_some() {
            // Ours where an unanswered release keeps it.
            return Ok(if ours {
                Release::Freed
            } else {
                Release::Another
            });
        }
        if ours {
            // Its session ended and left the key.
            ending::delete(link, &self.key, entry.modify_index, patience).await?;
        }
        Ok(Release::Expired)
    }
}

//! A hold's renewals: answered by its session's beats.

use std::time::Duration;

use leasehold_core::backend::{LossReason, Renewal};
use leasehold_core::session::end;
use leasehold_core::{Result, clock};

use crate::contender::{ConsulContender, Hold};
use crate::ending;
use crate::error::Failure;
use crate::note::Note;
use crate::session::{Made, Seat, whole};

impl ConsulContender {
    /// Asks for the hold to last at least `ttl` from now.
    pub(crate) async fn renew_hold(&mut self, ttl: Duration) -> Result<Renewal> {
        let seat = self.seat.as_ref();
        let told = seat.is_some_and(|seat| seat.mailbox.clear());
        let longer = seat.is_some_and(|seat| whole(ttl) > seat.session.asked());
        if longer && !self.move_to(ttl).await? {
            return Ok(self.loss());
        }
        let (Some(seat), Some(held)) = (&self.seat, &self.held) else {
            return Ok(self.loss());
        };
        let shared = !told && ttl == self.claim.ttl;
        let Some(pulse) = seat.renewing(ttl, held.since, shared).await? else {
            return Ok(self.loss());
        };
        // A key that was locked after the beat looked isn't among those it found.
        if !pulse.keys.contains(self.key.as_bytes()) && !self.is_there().await? {
            return Ok(self.loss());
        }
        let renewal = seat.renewed(&pulse, ttl);
        if let (Some(held), Renewal::Renewed { since, .. }) = (&mut self.held, &renewal) {
            held.since = *since;
        }
        Ok(renewal)
    }

    /// Hangs the hold on a session that lasts longer. False where the hold isn't there any more.
    async fn move_to(&mut self, ttl: Duration) -> Result<bool> {
        let (Some(seat), Some(held)) = (&self.seat, &self.held) else {
            return Ok(false);
        };
        let Some(from) = seat.session.live() else {
            return Ok(false);
        };
        let longer = self.shared.seat(&self.claim.name, ttl)?;
        let to = longer.session.ready().await?;
        // Without an answer the key may hang there, and it must not be given up before a renewal has found it.
        longer.with(|place| place.send(end(clock::now(), ttl)));
        let moved = match self.hang(held, &from, &to).await {
            Err(failure) if failure.may_land() => return Err(failure.into()),
            answer => {
                longer.with(|place| place.answered());
                answer?
            }
        };
        if let Some(index) = moved {
            longer.with(|place| place.made = Some(Made { index }));
            seat.with(|place| place.made = None);
            self.seat = Some(longer);
        }
        Ok(moved.is_some())
    }

    /// Why a hold is lost that isn't there any more.
    fn loss(&self) -> Renewal {
        let seat = self.seat.as_ref();
        Renewal::Lost(seat.map_or(LossReason::SessionLost, Seat::loss))
    }

    /// Whether the hold's key is there; hangs it on its session where it hung elsewhere.
    async fn is_there(&self) -> Result<bool> {
        let (Some(seat), Some(held)) = (&self.seat, &self.held) else {
            return Ok(false);
        };
        let Some(id) = seat.session.live() else {
            return Ok(false);
        };
        let index = self.find(held, &id).await?;
        if let Some(index) = index {
            seat.with(|place| place.made = Some(Made { index }));
        }
        Ok(index.is_some())
    }

    /// Hangs the hold on the session `to`, mostly from the session `from`. Answers when its key was modified by that;
    /// none where the hold isn't there.
    async fn hang(&self, held: &Hold, from: &str, to: &str) -> Result<Option<u64>, Failure> {
        let (link, patience) = (self.shared.link(), self.shared.patience());
        let note = held.note.clone().with_token(held.token);
        match ending::rehang(link, &self.key, from, to, &note, patience).await? {
            Some(index) => Ok(Some(index)),
            None => self.find(held, to).await,
        }
    }

    /// When the hold's key was modified last, hung on the session `to` if it hung elsewhere: an extension without an
    /// answer, or somebody who knows the owner, moved it.
    async fn find(&self, held: &Hold, to: &str) -> Result<Option<u64>, Failure> {
        let (link, patience) = (self.shared.link(), self.shared.patience());
        let entry = link.entry(&self.key, patience).await?;
        let Some((entry, of)) = entry
            .as_ref()
            .and_then(|entry| Some((entry, entry.session()?)))
        else {
            return Ok(None);
        };
        if of == to {
            return Ok(Some(entry.modify_index));
        }
        match Note::of(entry) {
            Some(note) if note.is_of(self.claim.owner) => {
                let note = note.with_token(held.token);
                ending::rehang(link, &self.key, of, to, &note, patience).await
            }
            _ => Ok(None),
        }
    }
}

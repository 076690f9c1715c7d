//! A hold's renewals: answered by its session's beats.

use std::time::Duration;

use leasehold_core::backend::{LossReason, Renewal};
use leasehold_core::session::{Pulse, end};
use leasehold_core::{Result, clock};

use crate::contender::{ConsulContender, Hold};
use crate::ending;
use crate::error::Failure;
use crate::note::Note;
use crate::session::{Made, whole};

impl ConsulContender {
    /// Asks for the hold to last at least `ttl` from now.
    pub(crate) async fn renew_hold(&mut self, ttl: Duration) -> Result<Renewal> {
        let told = self.seat.as_ref().is_some_and(|seat| seat.mailbox.clear());
        let longer = self
            .seat
            .as_ref()
            .is_some_and(|seat| whole(ttl) > seat.session.asked());
        if longer && !self.move_to(ttl).await? {
            return Ok(self.loss());
        }
        let Some(pulse) = self.beat(ttl, told || longer).await? else {
            return Ok(self.loss());
        };
        // A key that was locked after the beat looked isn't among those it found.
        if !pulse.keys.contains(self.key.as_bytes()) && !self.is_there().await? {
            return Ok(self.loss());
        }
        let ttl = ttl.min(pulse.ttl);
        let lasts = self.seat.as_ref().is_some_and(|seat| {
            seat.with(|place| place.last(clock::now().boot, end(pulse.since, ttl)))
        });
        if !lasts {
            return Ok(Renewal::Lost(LossReason::Expired));
        }
        if let Some(held) = &mut self.held {
            held.since = pulse.since;
        }
        Ok(Renewal::Renewed {
            since: pulse.since,
            ttl,
        })
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
        let ended = self.seat.as_ref().is_none_or(|seat| seat.session.is_over());
        Renewal::Lost(if ended {
            LossReason::SessionLost
        } else {
            LossReason::Broken
        })
    }

    /// Waits for the beat that answers a renewal. None where the session has ended.
    async fn beat(&self, ttl: Duration, told: bool) -> Result<Option<Pulse>> {
        let (Some(seat), Some(held)) = (&self.seat, &self.held) else {
            return Ok(None);
        };
        let now = clock::now();
        // The keeper's renewals are answered by the beat that was due shortly before them. Whoever was told of
        // something, or asks for another time, wants to know from now on.
        let shared = !told && ttl == self.claim.ttl;
        let last = held.since;
        let fresh = |pulse: &Pulse| pulse.renews(now, last, ttl, shared);
        match seat.session.beat(fresh).await {
            Ok(pulse) => Ok(Some(pulse)),
            Err(_) if seat.session.is_over() => Ok(None),
            Err(error) => Err(error),
        }
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

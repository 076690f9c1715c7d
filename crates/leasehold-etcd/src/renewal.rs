//! A hold's renewals: answered by its session's beats.

use std::time::Duration;

use leasehold_core::backend::{LossReason, Renewal};
use leasehold_core::session::{Pulse, end};
use leasehold_core::{Result, clock};

use crate::contender::EtcdContender;
use crate::ending;
use crate::session::{Made, Place, whole};
use crate::wire::RangeRequest;

impl EtcdContender {
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
        let Some(held) = &self.held else {
            return Ok(self.loss());
        };
        // A key that was made after the list is in no list.
        if !pulse.keys.contains(&held.key) && !self.is_there().await? {
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
        let (link, patience) = (&self.shared.grants, self.shared.patience());
        ending::void(link, &seat.session, &self.claim.name, patience).await?;
        let longer = self.shared.seat(&self.claim.name, ttl)?;
        let lease = longer.session.ready().await?;
        // Without an answer the key may hang there, and the session must not end before a renewal has found it.
        longer.with(|place| place.send(end(clock::now(), ttl)));
        let rehang = ending::rehanging(&held.key, held.made, lease.id);
        let is_there = link.call(rehang, patience).await?.succeeded;
        longer.with(|place| {
            place.answered();
            place.made = is_there.then(|| Made {
                at: held.made,
                key: Some(held.key.clone()),
            });
        });
        if is_there {
            seat.with(Place::ended);
            self.told = None;
            self.seat = Some(longer);
        }
        Ok(is_there)
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

    /// Whether the hold's key is there, read by quorum; hangs it on its session's lease where it hung elsewhere.
    async fn is_there(&self) -> Result<bool> {
        let (Some(seat), Some(held)) = (&self.seat, &self.held) else {
            return Ok(false);
        };
        let (link, patience) = (&self.shared.grants, self.shared.patience());
        let found = link.ask(RangeRequest::one(&held.key), patience).await?;
        let ours = found
            .kvs
            .first()
            .filter(|kv| kv.create_revision == held.made);
        match (ours, seat.session.live()) {
            (Some(kv), Some(lease)) if kv.lease == lease.id => Ok(true),
            (Some(_), Some(lease)) => {
                // An extension without an answer, or somebody who knows the owner, moved it.
                let rehang = ending::rehanging(&held.key, held.made, lease.id);
                Ok(link.call(rehang, patience).await?.succeeded)
            }
            _ => Ok(false),
        }
    }
}

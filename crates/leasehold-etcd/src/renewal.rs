//! A hold's renewals: answered by its session's beats.

use std::time::Duration;

use leasehold_core::backend::{LossReason, Renewal};
use leasehold_core::session::end;
use leasehold_core::{Result, clock};

use crate::contender::EtcdContender;
use crate::ending;
use crate::session::{Made, Place, Seat, whole};
use crate::wire::RangeRequest;

impl EtcdContender {
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
        // A key that was made after the list is in no list.
        if !pulse.keys.contains(&held.key) && !self.is_there().await? {
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
        let seat = self.seat.as_ref();
        Renewal::Lost(seat.map_or(LossReason::SessionLost, Seat::loss))
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

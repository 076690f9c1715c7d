//! A hold's renewals: answered by its session's beats.

use std::time::Duration;

use leasehold_core::backend::{LossReason, Renewal};
use leasehold_core::session::{Pulse, end};
use leasehold_core::{Result, clock};

use crate::contender::ZooKeeperContender;
use crate::error::Failure;
use crate::session::usable;
use crate::wire::Request;

impl ZooKeeperContender {
    /// Asks for the hold to last at least `ttl` from now.
    pub(crate) async fn renew_hold(&mut self, ttl: Duration) -> Result<Renewal> {
        let told = self.seat.as_ref().is_some_and(|seat| seat.mailbox.clear());
        let Some(pulse) = self.beat(ttl, told).await? else {
            return Ok(self.loss());
        };
        let Some(held) = &self.held else {
            return Ok(self.loss());
        };
        // A node that was made after the list is in no list.
        if !pulse.keys.contains(held.made.path.as_bytes()) && !self.is_there().await? {
            return Ok(self.loss());
        }
        let ttl = ttl.min(pulse.ttl);
        let lasts = self.seat.as_ref().is_some_and(|seat| {
            seat.with(|place| place.last(clock::now().boot, end(pulse.since, ttl)))
        });
        if !lasts {
            return Ok(Renewal::Lost(LossReason::Expired));
        }
        if told
            && let (Some(seat), Some(held)) = (&self.seat, &self.held)
            && let Some(link) = seat.session.live()
        {
            // With the connection the watch may have gone.
            link.watch(&held.made.path, &seat.mailbox);
        }
        if let Some(held) = &mut self.held {
            held.since = pulse.since;
        }
        Ok(Renewal::Renewed {
            since: pulse.since,
            ttl,
        })
    }

    /// Waits for the beat that answers a renewal. None where the session has ended.
    async fn beat(&self, ttl: Duration, told: bool) -> Result<Option<Pulse>> {
        let (Some(seat), Some(held)) = (&self.seat, &self.held) else {
            return Ok(None);
        };
        let Some(link) = seat.session.live() else {
            return Ok(None);
        };
        let now = clock::now();
        // The keeper's renewals are answered by the beat that was due shortly before them. Whoever was told of
        // something, or asks for another time, wants to know from now on.
        let shared = !told && ttl == self.claim.ttl;
        let last = held.since;
        // Beats come as often as what they are worth wants.
        let worth = ttl.min(usable(link.timeout()));
        let fresh = |pulse: &Pulse| pulse.renews(now, last, worth, shared);
        let mut beat = seat.session.beat(fresh).await;
        if beat.is_err() && !seat.session.is_over() {
            // With a connection that broke ended the beat that was under way. The next connection knows more: also
            // that the session has ended.
            beat = seat.session.beat(fresh).await;
        }
        match beat {
            Ok(pulse) => Ok(Some(pulse)),
            Err(_) if seat.session.is_over() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the hold's node is there.
    async fn is_there(&self) -> Result<bool> {
        let (Some(seat), Some(held)) = (&self.seat, &self.held) else {
            return Ok(false);
        };
        let Some(link) = seat.session.live() else {
            return Ok(false);
        };
        let look = [
            Request::sync(&held.made.path),
            Request::exists(&held.made.path, false),
        ];
        let [synced, found] = link.call(look, self.shared.patience()).await;
        match synced.and(found) {
            Ok(found) => Ok(found.stat() == Some(held.made.stat)),
            Err(Failure::NoNode | Failure::SessionOver) => Ok(false),
            Err(failure) => Err(failure.into()),
        }
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
}

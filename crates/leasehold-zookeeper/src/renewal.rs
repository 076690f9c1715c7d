//! A hold's renewals: answered by its session's beats.

use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::backend::{LossReason, Renewal};

use crate::contender::ZooKeeperContender;
use crate::error::Failure;
use crate::heard::usable;
use crate::session::Seat;
use crate::wire::Request;

impl ZooKeeperContender {
    /// Asks for the hold to last at least `ttl` from now.
    pub(crate) async fn renew_hold(&mut self, ttl: Duration) -> Result<Renewal> {
        let (Some(seat), Some(held)) = (&self.seat, &self.held) else {
            return Ok(self.loss());
        };
        let told = seat.mailbox.clear();
        let Some(link) = seat.session.live() else {
            return Ok(self.loss());
        };
        let shared = !told && ttl == self.claim.ttl;
        // Beats come as often as what they are worth wants.
        let worth = ttl.min(usable(link.timeout()));
        let mut beat = seat.renewing(worth, held.since, shared).await;
        if beat.is_err() {
            // With a connection that broke ended the beat that was under way. The next connection knows more: also
            // that the session has ended.
            beat = seat.renewing(worth, held.since, shared).await;
        }
        let Some(pulse) = beat? else {
            return Ok(self.loss());
        };
        // A node that was made after the list is in no list.
        if !pulse.keys.contains(held.made.path.as_bytes()) && !self.is_there().await? {
            return Ok(self.loss());
        }
        let renewal = seat.renewed(&pulse, ttl);
        let Renewal::Renewed { since, .. } = renewal else {
            return Ok(renewal);
        };
        if told {
            // With the connection the watch may have gone.
            link.watch(&held.made.path, &seat.mailbox);
        }
        if let Some(held) = &mut self.held {
            held.since = since;
        }
        Ok(renewal)
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
        let seat = self.seat.as_ref();
        Renewal::Lost(seat.map_or(LossReason::SessionLost, Seat::loss))
    }
}

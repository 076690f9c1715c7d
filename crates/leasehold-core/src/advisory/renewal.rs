//! A hold's renewals: answered by its session's beats.

use std::time::Duration;

use super::AdvisoryStore;
use super::contender::AdvisoryContender;
use crate::backend::{LossReason, Renewal};
use crate::clock;
use crate::error::Result;

/// How long may be looked for whether an operator took a lost hold away.
const PATIENCE: Duration = Duration::from_secs(2);

impl<S: AdvisoryStore> AdvisoryContender<S> {
    /// Asks for the hold to last at least `ttl` from now.
    pub(super) async fn renew_hold(&mut self, ttl: Duration) -> Result<Renewal> {
        let (Some(seat), Some(held)) = (&self.seat, &mut self.held) else {
            return Ok(Renewal::Lost(LossReason::SessionLost));
        };
        let told = seat.mailbox.clear();
        let shared = !told && ttl == self.claim.ttl;
        let worth = ttl.min(seat.session.asked());
        let renewal = match seat.renewing(worth, held.since, shared).await? {
            Some(pulse) => seat.renewed(&pulse, ttl),
            None => Renewal::Lost(LossReason::SessionLost),
        };
        match renewal {
            Renewal::Renewed { since, .. } => {
                held.since = since;
                Ok(renewal)
            }
            Renewal::Lost(reason) => Ok(Renewal::Lost(self.loss(reason).await)),
        }
    }

    /// Why the hold is lost: an operator who took it away has left a mark.
    async fn loss(&mut self, reason: LossReason) -> LossReason {
        let token = self.held.map(|held| held.token);
        let marked = self.locks.store.broken(&self.claim.name);
        match clock::timeout(PATIENCE, marked).await {
            Some(Ok(broken)) if broken.is_some() && broken == token => LossReason::Broken,
            _ => reason,
        }
    }
}

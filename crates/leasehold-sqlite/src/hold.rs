//! What is done with a hold: renew, release, break.

use std::time::Duration;

use leasehold_core::Release;
use leasehold_core::Token;
use leasehold_core::backend::{Broken, LossReason};
use rusqlite::params;

use crate::error::Failure;
use crate::liveness::Pulse;
use crate::table::{boot, nanoseconds};
use crate::work::Work;

impl Work {
    /// Renews a hold, or says why it is gone.
    pub(crate) fn renew(
        &mut self,
        name: &str,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<LossReason>, Failure> {
        self.begin()?;
        if self.prolong(name, owner, ttl)? {
            return Ok(None);
        }
        if self.forget_notice(owner)? {
            return Ok(Some(LossReason::Broken));
        }
        let now = boot();
        if let Some(row) = self.row(name)?
            && self.standing(name, &row, now)?.held
            && row.hold.is_some_and(|hold| hold.owner != owner)
        {
            return Ok(Some(LossReason::Stolen));
        }
        Ok(Some(LossReason::Expired))
    }

    /// Makes a hold last at least `ttl` from now, unless it is over or another's. A transaction is open.
    pub(crate) fn prolong(&self, name: &str, owner: &str, ttl: Duration) -> Result<bool, Failure> {
        let now = boot();
        let changed = self.execute(
            "UPDATE locks SET ends = max(ends, ?5), span = max(ends, ?5) - ?4, rev = rev + 1
             WHERE name = ?1 AND owner = ?2 AND clock = ?3 AND ends > ?4",
            params![
                name,
                owner,
                self.clock,
                now,
                now.saturating_add(nanoseconds(ttl))
            ],
        )?;
        Ok(changed == 1)
    }

    /// Ends an attempt or a hold, whatever has become of it.
    pub(crate) fn release(
        &mut self,
        name: &str,
        owner: &str,
        keep: Duration,
    ) -> Result<Release, Failure> {
        self.begin()?;
        let left = self.execute("DELETE FROM waiters WHERE owner = ?1", [owner])?;
        if left > 0 {
            // It may have been our turn.
            self.has_changed(name);
        }
        self.forget_notice(owner)?;
        let now = boot();
        let Some(row) = self.row(name)? else {
            return Ok(Release::Expired);
        };
        let standing = self.standing(name, &row, now)?;
        match &row.hold {
            Some(hold) if hold.owner == owner => {
                if !standing.held {
                    self.free(name, standing.ends.unwrap_or(now))?;
                } else if keep.is_zero() {
                    self.free(name, now)?;
                } else if hold.live.is_some() {
                    self.detach(name, now, keep)?;
                }
                self.has_changed(name);
                Ok(if standing.held {
                    Release::Freed
                } else {
                    Release::Expired
                })
            }
            Some(_) if standing.held => Ok(Release::Another),
            _ => Ok(Release::Expired),
        }
    }

    /// Leaves a hold to time alone.
    fn detach(&self, name: &str, now: i64, keep: Duration) -> Result<(), Failure> {
        let keep = nanoseconds(keep);
        self.execute(
            "UPDATE locks SET live = NULL, ends = ?2, span = ?3, rev = rev + 1 WHERE name = ?1",
            params![name, now.saturating_add(keep), keep],
        )?;
        Ok(())
    }

    /// Takes a lock away from its holder, who is told.
    pub(crate) fn break_hold(
        &mut self,
        name: &str,
        token: Option<Token>,
    ) -> Result<Broken, Failure> {
        self.begin()?;
        let now = boot();
        let Some(row) = self.row(name)? else {
            return Ok(Broken::Free);
        };
        let standing = self.standing(name, &row, now)?;
        let (Some(hold), Some(holder), true) =
            (&row.hold, row.holder(standing, now), standing.held)
        else {
            return Ok(Broken::Free);
        };
        if let Some(live) = &hold.live
            && *live != self.live.id
            && let Pulse::Dead(corpse) = self.live.folder.probe(live)
        {
            self.bury(corpse)?;
            return Ok(Broken::Free);
        }
        if token.is_some() && token != holder.token {
            return Ok(Broken::OtherToken(holder));
        }
        self.free(name, now)?;
        if let Some(live) = &hold.live {
            self.execute(
                "INSERT OR REPLACE INTO notices (owner, live) VALUES (?1, ?2)",
                [&hold.owner, live],
            )?;
            self.call(hold.owner.clone(), live.clone());
        }
        self.has_changed(name);
        Ok(Broken::Ended(holder))
    }

    fn forget_notice(&self, owner: &str) -> Result<bool, Failure> {
        Ok(self.execute("DELETE FROM notices WHERE owner = ?1", [owner])? == 1)
    }
}

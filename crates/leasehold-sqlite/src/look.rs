//! Looking without changing anything.

use std::collections::HashMap;

use leasehold_core::backend::{Finding, Verdict};
use leasehold_core::{Identity, Inspection, Name};

use crate::error::Failure;
use crate::liveness::Pulse;
use crate::table::{Row, boot, identity, read_row, token};
use crate::work::Work;

/// The processes that one look has probed, and whether they are dead.
type Probed = HashMap<String, bool>;

impl Work {
    pub(crate) fn inspect(&self, name: &Name) -> Result<Inspection, Failure> {
        let mut probed = Probed::new();
        match self.row(name.as_str())? {
            Some(row) => self.inspection(name.clone(), &row, &mut probed),
            None => Ok(Inspection::free(name.clone())),
        }
    }

    /// All locks held whose name begins with `prefix`.
    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<Inspection>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "SELECT token, rev, clock, owner, live, ends, span, granted, identity, name FROM locks
             WHERE name >= ?1 AND owner IS NOT NULL ORDER BY name",
        )?;
        let mut rows = statement.query([prefix])?;
        let mut probed = Probed::new();
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let name: String = row.get(9)?;
            // In the order of names, all with this prefix stand together.
            if !name.starts_with(prefix) {
                break;
            }
            let inspection = self.inspection(Name::new(&name)?, &read_row(row)?, &mut probed)?;
            if inspection.holder.is_some() {
                found.push(inspection);
            }
        }
        Ok(found)
    }

    /// What the promises hang on. Connecting has seen to all of it; somebody may have changed it since.
    pub(crate) fn check(&self) -> Result<Vec<Finding>, Failure> {
        let read = |pragma: &str| -> Result<String, Failure> {
            let value: rusqlite::types::Value =
                self.connection.query_row(pragma, [], |row| row.get(0))?;
            Ok(match value {
                rusqlite::types::Value::Text(text) => text,
                rusqlite::types::Value::Integer(number) => number.to_string(),
                other => format!("{other:?}"),
            })
        };
        let judge = |setting: &str, found: &str, right: &str, advice: &str| Finding {
            verdict: if found == right {
                Verdict::Good
            } else {
                Verdict::Bad
            },
            what: format!("{setting} is {found}"),
            advice: if found == right {
                String::new()
            } else {
                advice.to_owned()
            },
        };
        Ok(vec![
            judge(
                "journal_mode",
                &read("PRAGMA journal_mode")?,
                "wal",
                "another program changed it; close that program and connect again",
            ),
            judge(
                "synchronous (2 is FULL)",
                &read("PRAGMA synchronous")?,
                "2",
                "a token could be granted twice after a power cut; connect again",
            ),
            judge(
                "the file's integrity",
                &read("PRAGMA quick_check(1)")?,
                "ok",
                "stop everything that uses the file, move it away and let a new one be made",
            ),
        ])
    }

    fn inspection(
        &self,
        name: Name,
        row: &Row,
        probed: &mut Probed,
    ) -> Result<Inspection, Failure> {
        let now = boot();
        let standing = self.standing(name.as_str(), row, now)?;
        let live = row.hold.as_ref().and_then(|hold| hold.live.as_ref());
        let held = standing.held && !live.is_some_and(|live| self.is_dead(live, probed));
        let waiters = self.waiters(name.as_str(), probed)?;
        let mut inspection = Inspection::free(name);
        inspection.holder = row.holder(standing, now).filter(|_| held);
        inspection.waiters = waiters;
        inspection.last_token = token(row.token);
        Ok(inspection)
    }

    fn waiters(&self, name: &str, probed: &mut Probed) -> Result<Vec<Option<Identity>>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT live, identity FROM waiters WHERE name = ?1 ORDER BY seq")?;
        let mut rows = statement.query([name])?;
        let mut waiters = Vec::new();
        while let Some(row) = rows.next()? {
            let live: String = row.get(0)?;
            if !self.is_dead(&live, probed) {
                let json: String = row.get(1)?;
                waiters.push(identity(&json));
            }
        }
        Ok(waiters)
    }

    fn is_dead(&self, live: &str, probed: &mut Probed) -> bool {
        if live == self.live.id {
            return false;
        }
        if let Some(dead) = probed.get(live) {
            return *dead;
        }
        let dead = matches!(self.live.folder.probe(live), Pulse::Dead(_));
        probed.insert(live.to_owned(), dead);
        dead
    }
}

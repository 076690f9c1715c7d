//! The rows: what they mean by our clock, and the statements that more than one operation needs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::clock::{self, Moment};
use leasehold_core::{Holder, Identity, Token};
use rusqlite::{OptionalExtension, params};

use crate::error::Failure;
use crate::work::Work;

/// One row of `locks`.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) token: i64,
    rev: i64,
    pub(crate) clock: String,
    pub(crate) hold: Option<RowHold>,
    pub(crate) ends: i64,
    span: i64,
}

/// Who holds.
#[derive(Debug)]
pub(crate) struct RowHold {
    pub(crate) owner: String,
    pub(crate) live: Option<String>,
    granted: Option<i64>,
    identity: Option<String>,
}

/// How a lock stands by our clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) held: bool,
    /// When the hold ends or ended. `None`: the row is of another clock and has not been seen before.
    pub(crate) ends: Option<i64>,
}

impl Row {
    pub(crate) fn holder(&self, standing: Standing, now: i64) -> Option<Holder> {
        let hold = self.hold.as_ref()?;
        let expires_in = standing.ends.map(|ends| span(ends - now));
        let mut holder = Holder::new(token(self.token), expires_in);
        holder.identity = hold.identity.as_deref().and_then(identity);
        holder.since = hold.granted.map(wall);
        Some(holder)
    }
}

/// An identity as a row has it; one that a later version wrote differently is shown as none.
pub(crate) fn identity(json: &str) -> Option<Identity> {
    serde_json::from_str(json).ok()
}

fn wall(milliseconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

/// Nanoseconds as a duration; none are left where they are negative.
pub(crate) fn span(nanoseconds: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}

/// A duration in nanoseconds, as rows have it.
pub(crate) fn nanoseconds(duration: Duration) -> i64 {
    // Fits for 292 years.
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX / 4)
}

/// The boot clock now, as rows have it.
pub(crate) fn boot() -> i64 {
    boot_of(clock::now())
}

pub(crate) fn boot_of(moment: Moment) -> i64 {
    i64::try_from(moment.boot).unwrap_or(i64::MAX / 4)
}

/// A token as rows have it.
pub(crate) fn token(number: i64) -> Option<Token> {
    u64::try_from(number).ok().and_then(Token::new)
}

impl Work {
    pub(crate) fn row(&self, name: &str) -> Result<Option<Row>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "SELECT token, rev, clock, owner, live, ends, span, granted, identity FROM locks WHERE name = ?1",
        )?;
        Ok(statement.query_row([name], read_row).optional()?)
    }

    /// How a row stands now. A time of another boot or time namespace can't be compared with ours: such a hold
    /// ends once it has been seen unchanged for as long as it was to last.
    pub(crate) fn standing(&self, name: &str, row: &Row, now: i64) -> Result<Standing, Failure> {
        let held = row.hold.is_some();
        let ends = if row.clock == self.clock {
            Some(row.ends)
        } else {
            let lasts = if held { row.span } else { 0 };
            self.seen(name, row)?.map(|seen| seen.saturating_add(lasts))
        };
        Ok(Standing {
            held: held && ends.is_none_or(|ends| now < ends),
            ends,
        })
    }

    /// Since when this very state of a row of another clock has been seen.
    fn seen(&self, name: &str, row: &Row) -> Result<Option<i64>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "SELECT seen FROM observations WHERE name = ?1 AND clock = ?2 AND token = ?3 AND rev = ?4",
        )?;
        let parameters = params![name, self.clock, row.token, row.rev];
        Ok(statement
            .query_row(parameters, |row| row.get(0))
            .optional()?)
    }

    /// Writes down that a row of another clock is seen as it is now, for whoever looks next.
    pub(crate) fn observe(&self, name: &str, now: i64) -> Result<(), Failure> {
        self.execute(
            "INSERT OR REPLACE INTO observations (name, clock, token, rev, seen)
             SELECT name, ?2, token, rev, ?3 FROM locks WHERE name = ?1",
            params![name, self.clock, now],
        )?;
        Ok(())
    }

    /// Whether there are observations of rows that have changed since.
    pub(crate) fn has_stale_observations(&self) -> Result<bool, Failure> {
        let mut statement = self.connection.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM observations o JOIN locks l ON l.name = o.name WHERE l.rev <> o.rev)",
        )?;
        Ok(statement.query_row([], |row| row.get(0))?)
    }

    pub(crate) fn clear_stale_observations(&self) -> Result<(), Failure> {
        self.execute(
            "DELETE FROM observations WHERE rev <> (SELECT rev FROM locks l WHERE l.name = observations.name)",
            [],
        )?;
        Ok(())
    }

    /// Makes a lock free as of `ends`.
    pub(crate) fn free(&self, name: &str, ends: i64) -> Result<(), Failure> {
        self.execute(
            "UPDATE locks SET owner = NULL, live = NULL, granted = NULL, identity = NULL,
                    ends = ?2, clock = ?3, rev = rev + 1
             WHERE name = ?1",
            params![name, ends, self.clock],
        )?;
        Ok(())
    }

    /// Frees all holds and places of a process; the names of the locks.
    pub(crate) fn clear_process(&self, live: &str) -> Result<Vec<String>, Failure> {
        let mut names = self.strings(
            "UPDATE locks SET owner = NULL, live = NULL, granted = NULL, identity = NULL,
                    ends = CASE clock WHEN ?2 THEN min(ends, ?3) ELSE ?3 END, clock = ?2, rev = rev + 1
             WHERE live = ?1 RETURNING name",
            params![live, self.clock, boot()],
        )?;
        names.append(&mut self.stop_expecting(live)?);
        Ok(names)
    }

    /// Takes a process out of all queues and forgets what it is to be told; the names of the locks.
    pub(crate) fn stop_expecting(&self, live: &str) -> Result<Vec<String>, Failure> {
        self.execute("DELETE FROM notices WHERE live = ?1", [live])?;
        self.strings("DELETE FROM waiters WHERE live = ?1 RETURNING name", [live])
    }

    /// Whether any row speaks of this process.
    pub(crate) fn is_known(&self, live: &str) -> Result<bool, Failure> {
        self.exists(
            "SELECT EXISTS (SELECT 1 FROM locks WHERE live = ?1)
                 OR EXISTS (SELECT 1 FROM waiters WHERE live = ?1)
                 OR EXISTS (SELECT 1 FROM notices WHERE live = ?1)",
            live,
        )
    }

    /// Whether this process has a place in any queue or was told of a loss.
    pub(crate) fn is_expected(&self, live: &str) -> Result<bool, Failure> {
        self.exists(
            "SELECT EXISTS (SELECT 1 FROM waiters WHERE live = ?1)
                 OR EXISTS (SELECT 1 FROM notices WHERE live = ?1)",
            live,
        )
    }

    /// The first waiter of a lock that is free or will be by time alone: owner and liveness file.
    pub(crate) fn to_be_called(&self, name: &str) -> Result<Option<(String, String)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "SELECT w.owner, w.live FROM waiters w JOIN locks l ON l.name = w.name
             WHERE w.name = ?1 AND (l.live IS NULL OR l.ends <= ?2)
             ORDER BY w.seq LIMIT 1",
        )?;
        Ok(statement
            .query_row(params![name, boot()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?)
    }

    /// The owners of this process who have something to do: those first in the queue of a lock that is free or
    /// will be by time alone, and those whose hold was taken away.
    pub(crate) fn rung_for(&self) -> Result<Vec<String>, Failure> {
        self.strings(
            "SELECT w.owner FROM waiters w JOIN locks l ON l.name = w.name
             WHERE w.live = ?1 AND (l.live IS NULL OR l.ends <= ?2)
               AND w.seq = (SELECT min(seq) FROM waiters WHERE name = w.name)
             UNION ALL SELECT owner FROM notices WHERE live = ?1",
            params![self.live.id, boot()],
        )
    }

    /// How many wait before the place `seq`, or in all.
    pub(crate) fn ahead(&self, name: &str, seq: Option<i64>) -> Result<u32, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT count(*) FROM waiters WHERE name = ?1 AND seq < ?2")?;
        Ok(statement.query_row(params![name, seq.unwrap_or(i64::MAX)], |row| row.get(0))?)
    }

    /// The text column that a statement answers.
    pub(crate) fn strings(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
    ) -> Result<Vec<String>, Failure> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let strings = statement.query_map(parameters, |row| row.get(0))?;
        Ok(strings.collect::<rusqlite::Result<_>>()?)
    }

    fn exists(&self, sql: &str, live: &str) -> Result<bool, Failure> {
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.query_row([live], |row| row.get(0))?)
    }
}

/// Reads the columns of [`Work::row`].
pub(crate) fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let owner: Option<String> = row.get(3)?;
    let hold = match owner {
        None => None,
        Some(owner) => Some(RowHold {
            owner,
            live: row.get(4)?,
            granted: row.get(7)?,
            identity: row.get(8)?,
        }),
    };
    Ok(Row {
        token: row.get(0)?,
        rev: row.get(1)?,
        clock: row.get(2)?,
        hold,
        ends: row.get(5)?,
        span: row.get(6)?,
    })
}

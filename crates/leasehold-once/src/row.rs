//! What a row says to who asks.

use std::time::{Duration, SystemTime};

use leasehold_core::{Error, ErrorKind, Name, Result};
use leasehold_fence::{Checked, Mark, Pass, Seen, sql};

use crate::record::{Begun, Finished, Once, Record, Running, State, Success};

/// How often a begin looks anew because what refused it was over a moment later: time goes on between its statements.
pub(crate) const ROUNDS: u32 = 8;

/// What the statements refuse and the reading of their rows doesn't.
pub(crate) fn undecided() -> Error {
    Error::new(
        ErrorKind::Bug,
        "the record refuses an attempt, and nothing in it says why; please report this with the record's row",
    )
}

/// A span as a parameter. What is longer than the clock counts is for ever, too.
pub(crate) fn span(span: Option<Duration>) -> Option<i64> {
    // A tenth of what fits, so that the sum with a time fits.
    const MOST: i64 = i64::MAX / 10;
    span.map(|span| i64::try_from(span.as_millis()).map_or(MOST, |span| span.min(MOST)))
}

/// A row as `read` and `list` answer it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) lock: String,
    pub(crate) epoch: i64,
    pub(crate) token: i64,
    pub(crate) state: String,
    pub(crate) started: i64,
    pub(crate) ended: Option<i64>,
    pub(crate) expires: Option<i64>,
    pub(crate) now: i64,
    pub(crate) result: Option<Vec<u8>>,
}

impl Row {
    pub(crate) fn record(&self) -> Result<Record> {
        let state = read_state(&self.state).ok_or_else(|| self.unreadable("state"))?;
        Ok(Record {
            key: self.key.clone(),
            by: self.by()?,
            state,
            started: self.time(self.started)?,
            ended: self.ended.map(|ended| self.time(ended)).transpose()?,
            expires: self.expires.map(|expires| self.time(expires)).transpose()?,
        })
    }

    /// The success, if it counts.
    pub(crate) fn success(self, once: &Once, lock: &Name) -> Result<Option<Success>> {
        let record = self.record()?;
        self.belongs(&record.by, lock)?;
        let age = self.now.saturating_sub(self.started);
        if record.state != State::Done || span(once.window()).is_some_and(|window| age >= window) {
            return Ok(None);
        }
        Ok(Some(Success {
            by: record.by,
            started: record.started,
            ended: record.ended.ok_or_else(|| self.unreadable("end"))?,
            age: Duration::from_millis(u64::try_from(age).unwrap_or(0)),
            result: self.result.unwrap_or_default(),
        }))
    }

    /// Why an attempt is not the first; `None` when there is no reason left: it has become one by the time that passed
    /// since it was refused.
    pub(crate) fn refusal(self, once: &Once, pass: &Pass) -> Result<Option<Begun>> {
        let record = self.record()?;
        if let Some(success) = self.success(once, pass.name())? {
            return Ok(Some(Begun::Done(success)));
        }
        if record.state == State::Running && record.by.mark() >= pass.mark() {
            return Ok(Some(Begun::Running(Running {
                by: record.by,
                started: record.started,
            })));
        }
        Ok(match Seen::from(record.by.mark()).check(pass.mark()) {
            Checked::Accepted => None,
            Checked::Stale(stale) => Some(Begun::Stale(stale)),
        })
    }

    /// Why a result was not stored.
    pub(crate) fn unfinished(&self, pass: &Pass) -> Result<Finished> {
        let record = self.record()?;
        if record.by.name() != pass.name() {
            // Forgotten, and begun anew under another lock.
            return Ok(Finished::NotBegun);
        }
        Ok(match Seen::from(record.by.mark()).check(pass.mark()) {
            Checked::Stale(stale) => Finished::Stale(stale),
            // The answer to an earlier call was lost.
            Checked::Accepted if record.by == *pass && record.state == State::Done => {
                Finished::Recorded
            }
            Checked::Accepted => Finished::NotBegun,
        })
    }

    fn belongs(&self, by: &Pass, lock: &Name) -> Result<()> {
        if by.name() == lock {
            return Ok(());
        }
        let what = format!(
            "the key belongs to the lock \"{}\", under which it was begun with the token {}, and not to \"{lock}\"; \
             tokens of different locks can't be compared: use that lock, or another key, or forget this one if the work \
             may be repeated",
            by.name(),
            by.mark()
        );
        Err(Error::new(ErrorKind::Invalid, what).named(&self.key))
    }

    fn by(&self) -> Result<Pass> {
        let lock = Name::new(&self.lock).map_err(|_| self.unreadable("lock"))?;
        let seen = sql::seen(self.epoch, self.token).map_err(|_| self.unreadable("token"))?;
        let token = seen.token().ok_or_else(|| self.unreadable("token"))?;
        Ok(Pass::new(lock, Mark::new(seen.epoch(), token)))
    }

    fn time(&self, millis: i64) -> Result<SystemTime> {
        u64::try_from(millis)
            .ok()
            .and_then(|millis| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)))
            .ok_or_else(|| self.unreadable("time"))
    }

    fn unreadable(&self, what: &str) -> Error {
        let what = format!(
            "the record has a {what} that leasehold never writes; look at it, and forget the key if the work may be \
             repeated"
        );
        Error::new(ErrorKind::Invalid, what).named(&self.key)
    }
}

fn read_state(word: &str) -> Option<State> {
    [State::Running, State::Failed, State::Done]
        .into_iter()
        .find(|state| state.as_str() == word)
}

//! What a row says to who asks.

use std::time::{Duration, SystemTime};

use leasehold_core::{Error, ErrorKind, Result};
use leasehold_fence::{Checked, Mark, Seen, sql};

use crate::record::{Begun, Finished, Once, Record, Running, State, Success};
use crate::sql::TABLE;

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
            mark: self.mark()?,
            state,
            started: self.time(self.started)?,
            ended: self.ended.map(|ended| self.time(ended)).transpose()?,
            expires: self.expires.map(|expires| self.time(expires)).transpose()?,
        })
    }

    /// The success, if it counts.
    pub(crate) fn success(self, once: &Once) -> Result<Option<Success>> {
        let record = self.record()?;
        let age = self.now.saturating_sub(self.started);
        if record.state != State::Done || span(once.window()).is_some_and(|window| age >= window) {
            return Ok(None);
        }
        Ok(Some(Success {
            mark: record.mark,
            started: record.started,
            ended: record.ended.ok_or_else(|| self.unreadable("end"))?,
            age: Duration::from_millis(u64::try_from(age).unwrap_or(0)),
            result: self.result.unwrap_or_default(),
        }))
    }

    /// Why an attempt is not the first; `None` when there is no reason left: it has become one by the time that passed
    /// since it was refused.
    pub(crate) fn refusal(self, once: &Once, mark: Mark) -> Result<Option<Begun>> {
        let record = self.record()?;
        if let Some(success) = self.success(once)? {
            return Ok(Some(Begun::Done(success)));
        }
        if record.state == State::Running && record.mark >= mark {
            return Ok(Some(Begun::Running(Running {
                by: record.mark,
                started: record.started,
            })));
        }
        Ok(match Seen::from(record.mark).check(mark) {
            Checked::Accepted => None,
            Checked::Stale(stale) => Some(Begun::Stale(stale)),
        })
    }

    /// Why a result was not stored.
    pub(crate) fn unfinished(&self, mark: Mark) -> Result<Finished> {
        let record = self.record()?;
        Ok(match Seen::from(record.mark).check(mark) {
            Checked::Stale(stale) => Finished::Stale(stale),
            // The answer to an earlier call was lost.
            Checked::Accepted if record.mark == mark && record.state == State::Done => {
                Finished::Recorded
            }
            Checked::Accepted => Finished::NotBegun,
        })
    }

    fn mark(&self) -> Result<Mark> {
        let seen = sql::seen(self.epoch, self.token)?;
        let token = seen.token().ok_or_else(|| self.unreadable("token"))?;
        Ok(Mark::new(seen.epoch(), token))
    }

    fn time(&self, millis: i64) -> Result<SystemTime> {
        u64::try_from(millis)
            .ok()
            .and_then(|millis| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)))
            .ok_or_else(|| self.unreadable("time"))
    }

    fn unreadable(&self, what: &str) -> Error {
        let what = format!(
            "the table {TABLE} has a {what} that leasehold never writes; look at the row, and forget the key if the \
             work may be repeated"
        );
        Error::new(ErrorKind::Invalid, what).named(&self.key)
    }
}

fn read_state(word: &str) -> Option<State> {
    [State::Running, State::Failed, State::Done]
        .into_iter()
        .find(|state| state.as_str() == word)
}

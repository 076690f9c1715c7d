//! A job that is to happen once: begun under its lock, recorded before the lock is given back.

use std::ffi::OsStr;

use leasehold::{Guard, Name};
use leasehold_fence::{Mark, Pass};
use leasehold_once::{Begun, Finished, Once, Success};

use super::records::Records;
use crate::args::Run;
use crate::commands::Context;
use crate::commands::claiming::Asking;
use crate::duration;
use crate::exit::{Failure, LOST, UNAVAILABLE};
use crate::printer::Level;
use crate::usage::quoted;

/// What is asked of `run --once` and `run --once-per`.
pub(in crate::commands) struct Attempt {
    records: Records,
    once: Once,
    /// The lock that the key belongs to.
    lock: Name,
    /// The key as it was given.
    key: String,
    lost_code: u8,
}

/// Whether a job is to run.
pub(in crate::commands) enum Begin {
    Work,
    /// The exit code; what there is to say has been said.
    Over(u8),
}

impl Attempt {
    /// The attempt that a command line asks for, if it asks for one.
    pub(in crate::commands) async fn of(
        args: &Run,
        context: &Context,
    ) -> Result<Option<Self>, Failure> {
        if args.once.is_none() && args.once_per.is_none() {
            return Ok(None);
        }
        let records = Records::of(context).await?;
        let key = args.once.as_ref().unwrap_or(&args.claim.name).clone();
        let mut once = Once::new(records.name(&key)?);
        if let Some(period) = args.once_per {
            once = once.per(period);
        }
        Ok(Some(Self {
            lock: records.name(&args.claim.name)?,
            records,
            once,
            key,
            lost_code: args.lost_code.unwrap_or(LOST),
        }))
    }

    /// Looks whether there is anything to do, before the lock is asked for: it may be busy with what is done.
    pub(in crate::commands) async fn look(&self, asking: &Asking<'_>) -> Result<Begin, Failure> {
        let done = self
            .records
            .done(asking.context, &self.once, &self.lock)
            .await
            .map_err(not_run)?;
        Ok(match done {
            Some(success) => self.skip(asking, &success),
            None => Begin::Work,
        })
    }

    /// Begins, under the lock.
    pub(in crate::commands) async fn begin(
        &self,
        asking: &Asking<'_>,
        guard: &Guard,
    ) -> Result<Begin, Failure> {
        let pass = self.pass(guard);
        let by = match self
            .records
            .begin(asking.context, &self.once, &pass)
            .await
            .map_err(not_run)?
        {
            Begun::First => return Ok(Begin::Work),
            Begun::Done(success) => return Ok(self.skip(asking, &success)),
            // The token is this hold's alone: the answer to an earlier question was lost.
            Begun::Running(attempt) if attempt.by == pass => return Ok(Begin::Work),
            Begun::Running(attempt) => attempt.by.mark().to_string(),
            Begun::Stale(stale) => stale.seen.to_string(),
        };
        let key = &self.key;
        let mark = pass.mark();
        let text = format!(
            "\"{key}\" has been begun with the token {by}, which is newer than this hold's, {mark}: this hold is over, or \
             tokens went back; the command did not run; if no other run is under way: leasehold once forget {}",
            quoted(OsStr::new(key))
        );
        asking.say(Level::Error, "stale", &mark.to_string(), &text);
        Ok(Begin::Over(self.lost_code))
    }

    /// Records that the job ended with this exit code; answers the exit code that remains.
    pub(in crate::commands) async fn end(
        &self,
        asking: &Asking<'_>,
        guard: &Guard,
        code: u8,
    ) -> u8 {
        if code != 0 {
            self.fail(asking, guard).await;
            return code;
        }
        let pass = self.pass(guard);
        let finished = self
            .records
            .finish(asking.context, &self.once, &pass, guard)
            .await;
        let (why, code) = match finished {
            Ok(Some(Finished::Recorded)) => return code,
            Ok(Some(Finished::Stale(stale))) => (stale.to_string(), self.lost_code),
            Ok(Some(Finished::NotBegun)) => {
                let why = "the record that it had begun was taken away".to_owned();
                (why, self.lost_code)
            }
            Ok(None) => ("the lock was lost before".to_owned(), self.lost_code),
            Err(failure) => (failure.message, UNAVAILABLE),
        };
        let text = format!(
            "the command succeeded, but \"{}\" is not recorded: {why}; a repeat runs it again",
            self.key
        );
        asking.say(Level::Error, "unrecorded", &pass.mark().to_string(), &text);
        code
    }

    /// Records that the job failed. That it can't be recorded changes nothing: a repeat has a newer token.
    pub(in crate::commands) async fn fail(&self, asking: &Asking<'_>, guard: &Guard) {
        let pass = self.pass(guard);
        let _ = self
            .records
            .fail(asking.context, self.once.key(), &pass)
            .await;
    }

    fn pass(&self, guard: &Guard) -> Pass {
        Pass::new(self.lock.clone(), Mark::from(guard.token()))
    }

    fn skip(&self, asking: &Asking<'_>, success: &Success) -> Begin {
        let time = humantime::format_rfc3339_seconds;
        let mut text = format!(
            "\"{}\" has succeeded: it started at {} ({} ago) and ended at {}; the command did not run",
            self.key,
            time(success.started),
            duration::show(success.age),
            time(success.ended)
        );
        if let Some(window) = self.once.window() {
            let due = time(success.started + window);
            text = format!("{text}; it is due again from {due} on");
        }
        asking.say(
            Level::Info,
            "skipped",
            &success.by.mark().token().to_string(),
            &text,
        );
        Begin::Over(0)
    }
}

/// The failure of a question that comes before the job.
fn not_run(failure: Failure) -> Failure {
    let message = failure.message + "; the command did not run";
    Failure { message, ..failure }
}

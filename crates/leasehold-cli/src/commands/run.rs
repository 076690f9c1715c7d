//! `leasehold run`: a job under a lock.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Guard, Held, LossReason, Release};

use super::claiming::{Asking, Outcome, on_store};
use super::once::{Attempt, Begin};
use super::{Context, env};
use crate::args::Run;
use crate::duration;
use crate::exit::{Failure, LOST, MAX_HOLD, NOT_EXECUTABLE, NOT_FOUND};
use crate::printer::{Event, Level};
use crate::program;
use crate::supervise::{Ending, Job, ORPHANED, Signals, SuperviseError, supervise};

/// The longest default time between TERM and KILL.
const KILL_AFTER: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: Run, context: &Context) -> Result<u8, Failure> {
    let kill_after = kill_after(&args, context.settings.ttl.value)?;
    let program = program::find(&args.job[0], env("PATH").as_deref())?;
    let attempt = Attempt::of(&args, context).await?;
    on_store(context, async |store, signals| {
        let asking = Asking {
            claim: &args.claim,
            store,
            context,
        };
        let task = Task {
            args: &args,
            asking,
            program,
            kill_after,
            attempt,
        };
        task.run(signals).await
    })
    .await
}

/// The time between TERM and KILL. Lock and job have to end before the lease does, so it is a small part of it.
fn kill_after(args: &Run, ttl: Duration) -> Result<Duration, Failure> {
    match args.kill_after {
        None => Ok(KILL_AFTER.min(ttl / 6)),
        Some(after) if after > ttl / 3 => Err(Failure::usage(format!(
            "--kill-after {} is more than a third of the TTL of {}; a job that has to be stopped in time needs a \
             longer --ttl or a shorter --kill-after",
            duration::exact(after),
            duration::exact(ttl)
        ))),
        Some(after) => Ok(after),
    }
}

/// One job on one store.
struct Task<'a> {
    args: &'a Run,
    asking: Asking<'a>,
    program: PathBuf,
    kill_after: Duration,
    /// Where it is to happen once.
    attempt: Option<Attempt>,
}

impl Task<'_> {
    async fn run(self, signals: &mut Signals) -> Result<u8, Failure> {
        if let Some(attempt) = &self.attempt
            && let Begin::Over(code) = attempt.look(&self.asking).await?
        {
            return Ok(code);
        }
        let mut lock = self
            .asking
            .lock()?
            .hold_at_least(self.args.hold_at_least.unwrap_or_default());
        if let Some(program) = self.program.file_name() {
            lock = lock.program(program.to_string_lossy());
        }
        let unmet = "; the command did not run";
        match self.asking.take(&lock, signals, unmet).await? {
            Outcome::Granted(guard) => self.under(guard, signals).await,
            Outcome::Over(code) => Ok(code),
        }
    }

    /// Runs the job and gives the lock back.
    async fn under(&self, guard: Guard, signals: &mut Signals) -> Result<u8, Failure> {
        let token = guard.token().to_string();
        self.asking.acquired(&token);
        if let Some(attempt) = &self.attempt
            && let Begin::Over(code) = attempt.begin(&self.asking, &guard).await?
        {
            return Ok(self.release(guard, &token, code).await);
        }
        let held = guard.held();
        let told = Cell::new(false);
        let tell = async {
            if let Some(reason) = held.lost().await {
                self.lost(&held, Some(reason));
                told.set(true);
            }
            std::future::pending().await
        };
        let ending = tokio::select! {
            biased;
            never = tell => match never {},
            ending = supervise(self.job(&guard), &guard, signals) => ending,
        };
        match ending {
            Ok(Ending::Exited(code)) => {
                let code = match &self.attempt {
                    Some(attempt) => attempt.end(&self.asking, &guard, code).await,
                    None => code,
                };
                Ok(self.release(guard, &token, code).await)
            }
            Ok(Ending::MaxHold) => {
                self.failed(&guard).await;
                let most = duration::exact(self.args.max_hold.unwrap_or_default());
                let text = format!(
                    "held \"{}\" for {most} (--max-hold); stopped the command",
                    self.args.claim.name
                );
                self.asking.say(Level::Error, "max_hold", &token, &text);
                Ok(self.release(guard, &token, MAX_HOLD).await)
            }
            Ok(Ending::Lost(reason)) => {
                if !told.get() {
                    self.lost(&held, reason);
                }
                // What is left of it, if anything, is released in the background.
                drop(guard);
                Ok(self.args.lost_code.unwrap_or(LOST))
            }
            Err(error) => {
                self.failed(&guard).await;
                drop(guard);
                Err(not_started(&error).named(&self.args.claim.name))
            }
        }
    }

    async fn failed(&self, guard: &Guard) {
        if let Some(attempt) = &self.attempt {
            attempt.fail(&self.asking, guard).await;
        }
    }

    fn job(&self, guard: &Guard) -> Job {
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let mut env = vec![
            variable("LEASEHOLD_NAME", &self.args.claim.name),
            variable("LEASEHOLD_TOKEN", &guard.token().to_string()),
            variable("LEASEHOLD_OWNER", &guard.owner().to_hex()),
            variable("LEASEHOLD_STORE", &self.asking.store.shown),
        ];
        let stores = guard.environment().iter();
        env.extend(stores.map(|(name, value)| variable(name, value)));
        if std::env::var_os("LEASEHOLD_PASSWORD").is_some() {
            // Ours, not the job's. An empty one counts as none.
            env.push(variable("LEASEHOLD_PASSWORD", ""));
        }
        let client = &self.asking.store.client;
        let inherit = client.inherit();
        // What ends with this process, and with nothing that the job has, is the next one's in the same moment.
        let frees_at_once = client.info().capabilities.frees_dead_at_once && inherit.is_none();
        let orphaned_after = if frees_at_once {
            Duration::ZERO
        } else {
            self.kill_after.min(ORPHANED)
        };
        Job {
            program: self.program.clone(),
            args: self.args.job[1..].to_vec(),
            env,
            kill_after: self.kill_after,
            orphaned_after,
            max_hold: self.args.max_hold,
            inherit,
        }
    }

    /// Gives the lock back; answers the exit code.
    async fn release(&self, guard: Guard, token: &str, code: u8) -> u8 {
        let name = &self.args.claim.name;
        match guard.release().await {
            Ok(Release::Freed) => {
                let text = format!("released \"{name}\" with token {token}");
                self.asking.context.printer.detail(&self.asking.event(
                    Level::Info,
                    "released",
                    token,
                    &text,
                ));
                code
            }
            // Part of the job may have run beside another's.
            Ok(found) => {
                let what = match found {
                    Release::Another => "and somebody else has it",
                    Release::Broken => "for an operator took it away",
                    Release::Freed | Release::Expired => "and nobody knows since when",
                };
                let text = format!(
                    "\"{name}\" was no longer held when the command ended with {code}, {what}"
                );
                self.asking.say(Level::Error, "expired", token, &text);
                self.args.lost_code.unwrap_or(LOST)
            }
            // The job is done and was done under the lock.
            Err(error) => {
                let text = format!(
                    "the release of \"{name}\" is not confirmed: {}; the lock is free after its TTL at the latest",
                    error.message()
                );
                self.asking.say(Level::Warn, "unconfirmed", token, &text);
                code
            }
        }
    }

    fn lost(&self, held: &Held, reason: Option<LossReason>) {
        let mut why = match reason {
            Some(reason) => reason.to_string(),
            None => {
                "no renewal was confirmed, and the command has to end before the lease does".into()
            }
        };
        if let (None | Some(LossReason::Unreachable), Some(trouble)) = (reason, held.trouble()) {
            why = format!("{why} ({trouble})");
        }
        let token = held.token().to_string();
        let text = format!(
            "lost \"{}\": {why}; the command is stopped",
            self.args.claim.name
        );
        let event = self
            .asking
            .event(Level::Error, "lost", token.as_str(), &text);
        self.asking.context.printer.event(&Event {
            reason: reason.map(LossReason::as_str),
            ..event
        });
    }
}

fn not_started(error: &SuperviseError) -> Failure {
    let message = error.to_string();
    match error {
        SuperviseError::NotFound(_) => Failure::program(NOT_FOUND, message),
        SuperviseError::NotExecutable(..) => Failure::program(NOT_EXECUTABLE, message),
        SuperviseError::Other(_) => Failure::internal(message),
    }
}

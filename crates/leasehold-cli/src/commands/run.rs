//! `leasehold run`: a job under a lock.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Guard, Inspection, Lock, LossReason, Release};
use leasehold_core::clock;

use super::waiting::{acquire, waited};
use super::{Context, env};
use crate::args::{IfBusy, Run, Wait};
use crate::duration;
use crate::exit::{BUSY, Failure, LOST, MAX_HOLD, NOT_EXECUTABLE, NOT_FOUND, SIGNAL};
use crate::printer::{Event, Level};
use crate::program;
use crate::show::{self, HolderJson};
use crate::store::Store;
use crate::supervise::{Ending, Job, Signals, SuperviseError, supervise};

/// The longest default time between TERM and KILL.
const KILL_AFTER: Duration = Duration::from_secs(5);
/// How long releases that got no answer may go on in the background; after that their holds end by TTL.
const CLOSE: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: Run, context: &Context) -> Result<u8, Failure> {
    let kill_after = kill_after(&args, context.settings.ttl.value)?;
    let program = program::find(&args.job[0], env("PATH").as_deref())?;
    // Before the lock is asked for: from here on no signal ends this process without the lock being given back.
    let mut signals = Signals::install()
        .map_err(|error| Failure::internal(format!("signals can't be received: {error}")))?;
    let store = tokio::select! {
        store = context.connect() => store?,
        signal = signals.next() => return Ok(by_signal(signal)),
    };
    let task = Task {
        args: &args,
        program,
        kill_after,
        store: &store,
        context,
    };
    let ended = task.run(&mut signals).await;
    tokio::select! {
        // Without an answer the holds end by TTL; there is nothing left to do for them here.
        _ = tokio::time::timeout(CLOSE, store.client.close()) => {}
        signal = signals.next() => return Ok(by_signal(signal)),
    }
    ended
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

fn by_signal(signal: i32) -> u8 {
    SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0))
}

/// One job on one store.
struct Task<'a> {
    args: &'a Run,
    program: PathBuf,
    kill_after: Duration,
    store: &'a Store,
    context: &'a Context,
}

impl Task<'_> {
    async fn run(self, signals: &mut Signals) -> Result<u8, Failure> {
        let lock = self.lock()?;
        let begun = clock::now();
        let guard = tokio::select! {
            guard = acquire(&lock, &self.args.name, self.args.wait, self.store, self.context) => guard?,
            // Dropping the attempt leaves the queue; closing the client waits for that.
            signal = signals.next() => return Ok(by_signal(signal)),
        };
        match guard {
            Some(guard) => self.under(guard, signals).await,
            None => Ok(self.busy(waited(begun)).await),
        }
    }

    fn lock(&self) -> Result<Lock, Failure> {
        let mut lock = self
            .store
            .client
            .lock(&self.args.name)?
            .ttl(self.context.settings.ttl.value)
            .hold_at_least(self.args.hold_at_least.unwrap_or_default());
        if let Some(program) = self.program.file_name() {
            lock = lock.program(program.to_string_lossy());
        }
        if let Some(note) = &self.args.note {
            lock = lock.note(note);
        }
        Ok(lock)
    }

    /// Runs the job and gives the lock back.
    async fn under(&self, guard: Guard, signals: &mut Signals) -> Result<u8, Failure> {
        let token = guard.token().to_string();
        self.context.printer.detail(&self.event(
            Level::Info,
            "acquired",
            token.as_str(),
            &format!(
                "acquired \"{}\" with token {token} for {}",
                self.args.name,
                duration::exact(self.context.settings.ttl.value),
            ),
        ));
        let held = guard.held();
        let told = Cell::new(false);
        let tell = async {
            if let Some(reason) = held.lost().await {
                self.lost(&token, Some(reason));
                told.set(true);
            }
            std::future::pending().await
        };
        let ending = tokio::select! {
            biased;
            never = tell => match never {},
            ending = supervise(self.job(&token), &guard, signals) => ending,
        };
        match ending {
            Ok(Ending::Exited(code)) => Ok(self.release(guard, &token, code).await),
            Ok(Ending::MaxHold) => {
                let most = duration::exact(self.args.max_hold.unwrap_or_default());
                let text = format!(
                    "held \"{}\" for {most} (--max-hold); stopped the command",
                    self.args.name
                );
                self.say(Level::Error, "max_hold", token.as_str(), &text);
                Ok(self.release(guard, &token, MAX_HOLD).await)
            }
            Ok(Ending::Lost(reason)) => {
                if !told.get() {
                    self.lost(&token, reason);
                }
                // What is left of it, if anything, is released in the background.
                drop(guard);
                Ok(self.args.lost_code.unwrap_or(LOST))
            }
            Err(error) => {
                drop(guard);
                Err(not_started(&error).named(&self.args.name))
            }
        }
    }

    fn job(&self, token: &str) -> Job {
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let mut env = vec![
            variable("LEASEHOLD_NAME", &self.args.name),
            variable("LEASEHOLD_TOKEN", token),
            variable("LEASEHOLD_STORE", &self.store.shown),
        ];
        if std::env::var_os("LEASEHOLD_PASSWORD").is_some() {
            // Ours, not the job's. An empty one counts as none.
            env.push(variable("LEASEHOLD_PASSWORD", ""));
        }
        Job {
            program: self.program.clone(),
            args: self.args.job[1..].to_vec(),
            env,
            kill_after: self.kill_after,
            max_hold: self.args.max_hold,
            inherit: self.store.client.inherit(),
        }
    }

    /// Gives the lock back; answers the exit code.
    async fn release(&self, guard: Guard, token: &str, code: u8) -> u8 {
        let name = &self.args.name;
        match guard.release().await {
            Ok(Release::Freed) => {
                let text = format!("released \"{name}\" with token {token}");
                self.context
                    .printer
                    .detail(&self.event(Level::Info, "released", token, &text));
                code
            }
            // Part of the job may have run beside another's.
            Ok(found) => {
                let what = match found {
                    Release::Another => "and somebody else has it",
                    _ => "and nobody knows since when",
                };
                let text = format!(
                    "\"{name}\" was no longer held when the command ended with {code}, {what}"
                );
                self.say(Level::Error, "expired", token, &text);
                self.args.lost_code.unwrap_or(LOST)
            }
            // The job is done and was done under the lock.
            Err(error) => {
                let text = format!(
                    "the release of \"{name}\" is not confirmed: {}; the lock is free after its TTL at the latest",
                    error.message()
                );
                self.say(Level::Warn, "unconfirmed", token, &text);
                code
            }
        }
    }

    /// Says who is in the way; answers the exit code.
    async fn busy(&self, waited: Duration) -> u8 {
        let name = &self.args.name;
        let inspect = self.store.client.inspect(name);
        let found = self
            .context
            .once(self.store, "inspect", name, inspect)
            .await
            .ok();
        let skip = self.args.if_busy == IfBusy::Skip;
        let mut text = format!("\"{name}\" is busy: {}", in_the_way(found.as_ref()));
        if self
            .args
            .wait
            .is_some_and(|wait| wait != Wait::AtMost(Duration::ZERO))
        {
            text = format!("{text}; waited {}", duration::show(waited));
        }
        text = format!("{text}; the command did not run");
        let level = if skip { Level::Info } else { Level::Error };
        let holder = found.as_ref().and_then(|found| found.holder.as_ref());
        let event = self.event(level, "busy", None, &text);
        self.context.printer.event(&Event {
            holder: holder.map(HolderJson::from),
            ..event
        });
        match self.args.if_busy {
            IfBusy::Skip => 0,
            IfBusy::Fail => self.args.busy_code.unwrap_or(BUSY),
        }
    }

    fn lost(&self, token: &str, reason: Option<LossReason>) {
        let why = match reason {
            Some(reason) => reason.to_string(),
            None => {
                "the store gave no answer, and the command has to end before the lease does".into()
            }
        };
        let text = format!("lost \"{}\": {why}; the command is stopped", self.args.name);
        let event = self.event(Level::Error, "lost", token, &text);
        self.context.printer.event(&Event {
            reason: reason.map(LossReason::as_str),
            ..event
        });
    }

    fn say(&self, level: Level, event: &'static str, token: &str, text: &str) {
        self.context
            .printer
            .event(&self.event(level, event, token, text));
    }

    fn event<'t>(
        &'t self,
        level: Level,
        event: &'static str,
        token: impl Into<Option<&'t str>>,
        text: &str,
    ) -> Event<'t> {
        Event {
            level,
            event,
            name: &self.args.name,
            store: &self.store.shown,
            token: token.into(),
            holder: None,
            reason: None,
            message: format!("{text} (store {})", self.store.shown),
        }
    }
}

fn in_the_way(found: Option<&Inspection>) -> String {
    match found {
        Some(Inspection {
            holder: Some(holder),
            ..
        }) => show::holder(holder),
        Some(Inspection { waiters, .. }) if !waiters.is_empty() => {
            format!("not held just now, but {} before us", waiters.len())
        }
        Some(_) => "its holder has just let go of it".into(),
        None => "its holder can't be asked for".into(),
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

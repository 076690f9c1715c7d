//! Runs a command and sees to it that it doesn't outlive its lock.
//!
//! ```text
//!  leasehold ── tells when, at each renewal ──► guardian ── TERM, KILL ──► the job's group and whoever
//!      │                                           │ leads the group         descends from it
//!      ├── starts, waits for, passes signals on ───┴──────────────────────►
//!      └── hands the terminal over and takes it back
//! ```
//!
//! `stop` decides when a job has to end, the guardian ends it, also when this process is dead or frozen.

mod child;
mod guardian;
mod processes;
mod run;
mod signals;
mod stop;
mod terminal;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Guard, LossReason};
use leasehold_core::clock::BootTimer;
use rustix::process::Signal;
use tokio::signal::unix;

use run::Run;
use terminal::Terminal;

pub(crate) use guardian::{ORPHANED, guardian_main};
pub(crate) use signals::Signals;

/// A command to run.
#[derive(Debug)]
pub(crate) struct Job {
    /// A path, or a name to be looked for in `PATH`.
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// Added to this process's own.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The time between TERM and KILL.
    pub(crate) kill_after: Duration,
    /// The same where this process was killed, and the next holder may be there already.
    pub(crate) orphaned_after: Duration,
    pub(crate) max_hold: Option<Duration>,
    /// Stays open in every process of the job that doesn't close it.
    pub(crate) inherit: Option<OwnedFd>,
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It ended while the lock was held: its exit code, or 128 and the signal it died of.
    Exited(u8),
    /// It was stopped for having run as long as it may.
    MaxHold,
    /// It was stopped because the lock was lost, or it ended by itself too late. Without a reason, it was
    /// stopped before the lease was over, because no renewal was answered.
    Lost(Option<LossReason>),
}

/// Why a job didn't run.
#[derive(Debug)]
pub(crate) enum SuperviseError {
    NotFound(PathBuf),
    NotExecutable(PathBuf, io::Error),
    Other(io::Error),
}

impl fmt::Display for SuperviseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(program) => write!(
                f,
                "there is no program {}; give its path, or look at PATH",
                program.display()
            ),
            Self::NotExecutable(program, error) => {
                write!(f, "{} can't be run: {error}", program.display())
            }
            Self::Other(error) => write!(f, "the command can't be started: {error}"),
        }
    }
}

impl From<io::Error> for SuperviseError {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

/// Runs the job to its end, under the lock that `guard` holds. Signals that come meanwhile go to the job.
///
/// # Errors
/// When the job didn't run at all.
///
/// # Cancel safety
/// Dropping the future has the job stopped, without waiting for it.
pub(crate) async fn supervise(
    job: Job,
    guard: &Guard,
    signals: &mut Signals,
) -> Result<Ending, SuperviseError> {
    let mut changes = signals::children()?;
    let mut timer = BootTimer::new()?;
    let mut terminal = Terminal::open()?;
    let mut run = Run::start(job, guard, terminal.as_mut())?;
    while !run.is_over() {
        let now = run.look();
        let (suspends, continues) = match &mut terminal {
            Some(terminal) => (terminal.suspends.as_mut(), Some(&mut terminal.continues)),
            None => (None, None),
        };
        tokio::select! {
            _ = changes.recv() => run.take_in(&child::changes(), terminal.as_mut()),
            signal = signals.next_signal() => run.pass_on(signal),
            () = arrival(suspends) => run.signal(Signal::TSTP),
            () = arrival(continues) => run.go_on(terminal.as_mut()),
            _ = guard.lost(), if !run.is_stopping() => {}
            // It fails for want of memory alone; the guardian doesn't depend on it.
            _ = timer.until(run.look_at(now)) => {}
        }
    }
    Ok(run.finish(terminal.as_mut()))
}

/// The next arrival of a signal, if it is waited for at all.
async fn arrival(stream: Option<&mut unix::Signal>) {
    if let Some(stream) = stream {
        stream.recv().await;
    } else {
        std::future::pending().await
    }
}

//! What every server can do.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use leasehold_core::clock;
use rustix::process::Signal;
use tempfile::TempDir;

use super::process::{LOOK, Process};
use super::{Failure, Result};

/// How long a server may take until it answers.
const START_MAX: Duration = Duration::from_secs(60);

/// A server with a folder of its own. It is killed when dropped.
#[derive(Debug)]
pub struct Server {
    folder: TempDir,
    /// None between an end and the next start.
    process: Option<Process>,
}

impl Server {
    /// A server that isn't started yet.
    pub(super) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("leasehold-server-")
            .tempdir()
            .map_err(Failure::of("making a folder for the server"))?;
        Ok(Self {
            folder,
            process: None,
        })
    }

    /// Starts the process.
    pub(super) fn launch(&mut self, command: &Command) -> Result<()> {
        if self.process.is_some() {
            return Err(Failure::new("the server runs already"));
        }
        self.process = Some(Process::start(command, &self.folder.path().join("log"))?);
        Ok(())
    }

    /// Waits until it answers. One that doesn't is ended.
    pub(super) fn wait_until(&mut self, ready: impl Fn() -> bool) -> Result<()> {
        let waited = self.wait(ready);
        if waited.is_err() {
            self.process = None;
        }
        waited
    }

    fn wait(&mut self, ready: impl Fn() -> bool) -> Result<()> {
        let process = self.process.as_mut().ok_or_else(not_running)?;
        let started = clock::now();
        while !ready() {
            if let Some(status) = process.ended() {
                return Err(Failure::new(format!(
                    "the server ended with {status}:\n{}",
                    process.log()
                )));
            }
            if clock::now().since(started).steady > START_MAX {
                return Err(Failure::new(format!(
                    "the server gave no answer within {START_MAX:?}:\n{}",
                    process.log()
                )));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The folder its files are in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its process's id; none when it doesn't run.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Stops it where it stands; connections stay open and nothing is answered.
    ///
    /// # Errors
    /// When it doesn't run.
    pub fn freeze(&self) -> Result<()> {
        self.process.as_ref().ok_or_else(not_running)?.freeze()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it doesn't run.
    pub fn thaw(&self) -> Result<()> {
        self.process.as_ref().ok_or_else(not_running)?.thaw()
    }

    /// Ends it as a crash would. Its port and folder stay.
    ///
    /// # Errors
    /// When it doesn't run.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().ok_or_else(not_running)?.kill()
    }

    /// Ends it in good order. Its port and folder stay.
    ///
    /// # Errors
    /// When it doesn't run or doesn't end.
    pub fn stop(&mut self) -> Result<()> {
        self.stop_by(Signal::TERM)
    }

    /// As [`stop`](Self::stop), by the signal that asks this server to end.
    pub(super) fn stop_by(&mut self, signal: Signal) -> Result<()> {
        self.process.take().ok_or_else(not_running)?.stop(signal)
    }
}

fn not_running() -> Failure {
    Failure::new("the server doesn't run")
}

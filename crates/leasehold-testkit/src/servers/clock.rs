//! Clocks of a server's own, which a test sets while the server runs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::{Failure, Result};

/// What stands between a program and the machine's clocks.
const SOURCE: &str = include_str!("clock.c");

/// Clocks of one server. They are right until they are set.
#[derive(Debug)]
pub struct ServerClock {
    folder: TempDir,
}

impl ServerClock {
    /// Makes one.
    ///
    /// # Errors
    /// When there is no C compiler, or no room for its files.
    pub fn new() -> Result<Self> {
        let folder = TempDir::new().map_err(Failure::of("a folder for a clock"))?;
        let clock = Self { folder };
        clock.set(0, 0)?;
        let source = clock.path("clock.c");
        fs::write(&source, SOURCE).map_err(Failure::of(source.display()))?;
        // It takes all from the program it is loaded into: its C library need not be the machine's.
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-nostdlib", "-o"]);
        compiler.arg(clock.library()).arg(&source);
        let done = compiler
            .output()
            .map_err(Failure::of("cc (a C compiler) can't be started"))?;
        if done.status.success() {
            return Ok(clock);
        }
        Err(Failure::new(String::from_utf8_lossy(&done.stderr)))
    }

    /// Sets the time of day so many seconds off, and lets every clock run faster by `percent`, counted from the
    /// server's start.
    ///
    /// # Errors
    /// When its file can't be written.
    pub fn set(&self, seconds: i64, percent: i64) -> Result<()> {
        let settings = [seconds * 1_000_000_000, percent * 10_000];
        let path = self.path("settings");
        // The file is mapped: it is written over, never made anew.
        fs::write(&path, settings.map(i64::to_ne_bytes).concat())
            .map_err(Failure::of(path.display()))
    }

    /// Has a program started with these clocks.
    pub(super) fn lend(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", self.library())
            .env("SERVER_CLOCK", self.path("settings"));
    }

    fn library(&self) -> PathBuf {
        self.path("clock.so")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Redis, RedisEdition, wire};
    use super::*;

    #[test]
    fn a_server_goes_by_its_own_clocks() {
        let clock = Arc::new(ServerClock::new().unwrap());
        let server = Redis::start_at(RedisEdition::Redis7, &clock).unwrap();
        clock.set(-1_000_000_000, 0).unwrap();
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        // The first digits of the time a billion seconds ago, which stay for a day and more.
        let then = (now - 1_000_000_000).to_string();
        let seen = wire::says(server.address(), "TIME", &[&then[..then.len() - 5]]);
        assert!(seen, "{then}");
    }
}

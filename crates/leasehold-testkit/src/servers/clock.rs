//! Clocks of a server's own, which a test sets while the server runs.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
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
        // The file is mapped: it is written over and never cut off, which would kill a server that reads just then.
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .and_then(|file| file.write_all_at(&settings.map(i64::to_ne_bytes).concat(), 0))
            .map_err(Failure::of(path.display()))
    }

    /// Has a program started with these clocks.
    pub fn lend(&self, command: &mut Command) {
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
        // The server looks at the time once for each turn of its loop, and the first may have been before.
        let then = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() - 1_000_000_000;
        let begun = leasehold_core::clock::now();
        loop {
            let info = wire::ask(server.address(), "INFO server").unwrap();
            let micros = info
                .lines()
                .find_map(|line| line.strip_prefix("server_time_usec:"));
            let seconds = micros.unwrap().parse::<u64>().unwrap() / 1_000_000;
            if seconds.abs_diff(then) < 60 {
                return;
            }
            let waited = leasehold_core::clock::now().since(begun).steady;
            assert!(waited.as_secs() < 10, "{seconds}, and {then} was due");
        }
    }
}

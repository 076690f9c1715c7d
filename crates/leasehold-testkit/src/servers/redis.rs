//! Redis and Valkey.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use leasehold_core::clock;
use tempfile::TempDir;

use super::process::{LOOK, Process};
use super::{Failure, Package, Result, free_port};

/// How long a server may take until it answers.
const START_MAX: Duration = Duration::from_secs(30);
/// How many ports are tried before giving up.
const PORTS_MAX: u32 = 20;

/// Which server, in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisEdition {
    /// Redis 7.0.
    Redis7,
    /// Redis 8.0.
    Redis8,
    /// Valkey 8.1.
    Valkey8,
}

impl RedisEdition {
    /// Every edition.
    pub const ALL: [Self; 3] = [Self::Redis7, Self::Redis8, Self::Valkey8];

    /// Its name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis7 => "redis7",
            Self::Redis8 => "redis8",
            Self::Valkey8 => "valkey8",
        }
    }

    /// Where it comes from.
    #[must_use]
    pub fn package(self) -> Package {
        let redis = |suite| Package {
            suite,
            name: "redis-server",
            program: "usr/bin/redis-server",
            variable: "LEASEHOLD_TEST_REDIS",
        };
        match self {
            Self::Redis7 => redis("bookworm"),
            Self::Redis8 => redis("trixie"),
            Self::Valkey8 => Package {
                suite: "trixie",
                name: "valkey-server",
                program: "usr/bin/valkey-server",
                variable: "LEASEHOLD_TEST_VALKEY",
            },
        }
    }
}

/// A server of one's own, on a free port and on a unix socket. It is killed when dropped.
#[derive(Debug)]
pub struct Redis {
    edition: RedisEdition,
    args: Vec<String>,
    port: u16,
    folder: TempDir,
    /// None between an end and the next start.
    process: Option<Process>,
}

impl Redis {
    /// Starts a server that keeps everything in memory.
    ///
    /// # Errors
    /// When it can't be had or doesn't start, with its log.
    pub fn start(edition: RedisEdition) -> Result<Self> {
        Self::start_with(edition, &[])
    }

    /// As [`start`](Self::start), with more arguments, for example `--appendonly yes`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(edition: RedisEdition, args: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("leasehold-redis-")
            .tempdir()
            .map_err(Failure::of("making a folder for the server"))?;
        let mut redis = Self {
            edition,
            args: args.iter().map(|arg| (*arg).into()).collect(),
            port: 0,
            folder,
            process: None,
        };
        for _ in 0..PORTS_MAX {
            redis.port = free_port()?;
            if redis.launch()? {
                return Ok(redis);
            }
        }
        Err(Failure::new(format!(
            "{PORTS_MAX} ports in a row were taken by others"
        )))
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Its unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
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
        self.running()?.freeze()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it doesn't run.
    pub fn thaw(&self) -> Result<()> {
        self.running()?.thaw()
    }

    /// Ends it as a crash would. Its port and folder stay.
    ///
    /// # Errors
    /// When it doesn't run.
    pub fn kill(&mut self) -> Result<()> {
        self.take()?.kill()
    }

    /// Ends it in good order. Its port and folder stay.
    ///
    /// # Errors
    /// When it doesn't run or doesn't end.
    pub fn stop(&mut self) -> Result<()> {
        self.take()?.stop()
    }

    /// Starts it again after [`kill`](Self::kill) or [`stop`](Self::stop): on the same port and folder, with what it kept there.
    ///
    /// # Errors
    /// When it runs, doesn't start, or another took the port.
    pub fn start_again(&mut self) -> Result<()> {
        if self.process.is_some() {
            return Err(Failure::new("the server runs already"));
        }
        if self.launch()? {
            return Ok(());
        }
        Err(Failure::new(format!(
            "port {} was taken by another",
            self.port
        )))
    }

    fn running(&self) -> Result<&Process> {
        self.process.as_ref().ok_or_else(not_running)
    }

    fn take(&mut self) -> Result<Process> {
        self.process.take().ok_or_else(not_running)
    }

    /// Starts the process and waits until it answers; false when another has its port.
    fn launch(&mut self) -> Result<bool> {
        let folder = self.folder.path();
        let socket = self.socket();
        let mut command = self.edition.package().command()?;
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(folder)
            .args(["--save", "", "--daemonize", "no", "--logfile", ""])
            .args(&self.args);
        // A socket left over from a killed server isn't an answer of the new one.
        let _ = std::fs::remove_file(&socket);
        let mut process = Process::start(&command, &folder.join("log"))?;
        let started = clock::now();
        // The socket is this server's alone, and is there after the port.
        while !answers(&socket) {
            if let Some(status) = process.ended() {
                let log = process.log();
                if log.contains("Address already in use") {
                    return Ok(false);
                }
                return Err(Failure::new(format!(
                    "the server ended with {status}:\n{log}"
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
        self.process = Some(process);
        Ok(true)
    }
}

fn not_running() -> Failure {
    Failure::new("the server doesn't run")
}

/// Whether the server is there for commands. One that asks for a password is.
fn answers(socket: &Path) -> bool {
    let ping = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply)?;
        Ok(matches!(&reply, b"+PONG" | b"-NOAU" | b"-NOPE"))
    };
    ping().unwrap_or(false)
}

#[cfg(test)]
mod tests;

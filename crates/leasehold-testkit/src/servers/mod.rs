//! Real servers for tests, and a proxy to cut them off.
//!
//! [`Redis`] starts the real program on a free port and ends it when dropped. The programs come as Debian
//! packages into the workspace's target folder (see [`Package`]): nothing is installed, no root is needed. A server
//! that can't be had is a [`Failure`] that says what to do, never a test that is skipped.

mod packages;
mod process;
mod proxy;
mod redis;

use std::fmt;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

pub use packages::Package;
pub use proxy::{Direction, Proxy};
pub use redis::{Redis, RedisEdition};

/// Why a server isn't there. Its debug form is its text, so that `unwrap` shows a log as lines.
pub struct Failure(String);

impl Failure {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Puts what was being done before what went wrong.
    fn of<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// What a server comes to.
pub type Result<T> = std::result::Result<T, Failure>;

/// Ports below those that the system gives to outgoing connections: a client that tries again and again to reach
/// a stopped server on one of those would some day be connected to itself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port on the loopback address that nobody listens on now.
fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    // Processes begin in different places, so that they seldom want the same one.
    let first = (std::process::id().wrapping_mul(97) % u32::from(count)) as u16;
    for _ in 0..count {
        let offset = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = PORTS.start + offset;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure::new(format!(
        "no port from {} to {} is free on 127.0.0.1",
        PORTS.start, PORTS.end
    )))
}

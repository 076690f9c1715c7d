//! Ports for servers.

use std::net::{self, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Failure, Result};

/// Ports below those that the system gives to outgoing connections: a client that tries again and again to reach
/// a stopped server on one of those would some day be connected to itself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port on the loopback address that is one's own as long as this lives, also while nothing listens on it: no
/// other test gets it meanwhile.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// An abstract socket with the port's number in its name. Only one can have it, in the very network that the
    /// port is in, and it is gone with its process.
    _reserved: UnixListener,
}

impl Port {
    /// Reserves a port that nobody listens on, and not one that was given back just now: a client of the server
    /// that was there may still try to reach it, and is not to find another test's.
    ///
    /// # Errors
    /// When there is none.
    pub fn reserve() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Processes begin apart from each other, and each goes on where it was.
        let begin = std::process::id().wrapping_mul(97);
        Self::reserve_from(begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// The first that is free from the one of this number among all, round and round.
    fn reserve_from(begin: u32) -> Result<Self> {
        let count = PORTS.len() as u32;
        for step in 0..count {
            let offset = u16::try_from((begin % count + step) % count).unwrap_or(0);
            let number = PORTS.start + offset;
            let name = SocketAddr::from_abstract_name(format!("leasehold-port-{number}"))?;
            let Ok(reserved) = UnixListener::bind_addr(&name) else {
                continue;
            };
            if TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Ok(Self {
                    number,
                    _reserved: reserved,
                });
            }
        }
        Err(Failure::new(format!(
            "no port from {} to {} is free on 127.0.0.1",
            PORTS.start, PORTS.end
        )))
    }

    /// The port's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The port's address.
    #[must_use]
    pub fn address(&self) -> net::SocketAddr {
        ([127, 0, 0, 1], self.number).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_given_once_and_not_again_at_once() {
        let ports: Vec<Port> = (0..20).map(|_| Port::reserve().unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 20);
        drop(ports);
        assert!(!numbers.contains(&Port::reserve().unwrap().number()));
    }

    #[test]
    fn a_port_that_another_has_or_listens_on_is_left_alone() {
        let first = Port::reserve().unwrap();
        let number = first.number();
        let place = u32::from(number - PORTS.start);
        assert_ne!(Port::reserve_from(place).unwrap().number(), number);
        let _listening = TcpListener::bind(first.address()).unwrap();
        drop(first);
        assert_ne!(Port::reserve_from(place).unwrap().number(), number);
    }
}

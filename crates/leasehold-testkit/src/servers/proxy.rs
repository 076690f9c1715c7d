//! A TCP proxy in the test's own process that does to connections what networks do.
//!
//! ```text
//!  client ──► accepting thread ──► a connection to the server
//!             per connection two pumps: bytes to the server, bytes to the client
//! ```
//!
//! It runs on threads of its own, so that a test whose runtime is blocked or whose time is paused is still cut off as
//! it says. Its rules are for all connections, those to come included.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use leasehold_core::clock;
use rustix::net::sockopt::set_socket_linger;

use super::Port;

/// How long a write may be stuck before is looked whether the connection was cut.
const STUCK: Duration = Duration::from_millis(20);
/// How long the server may take to take a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How many bytes are forwarded at once.
const CHUNK: usize = 16 * 1024;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client: requests.
    ToServer,
    /// From the server: replies.
    ToClient,
}

impl Direction {
    /// Both ways.
    pub const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];
}

/// A proxy before one server. Dropping it closes everything.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    /// None while connections are refused.
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    rules: Mutex<Rules>,
    changed: Condvar,
    /// Locked while one is made, so that who sees a connection arrive at the server can cut it.
    connections: Mutex<Vec<Weak<Connection>>>,
}

#[derive(Debug, Default)]
struct Rules {
    /// By direction.
    frozen: [bool; 2],
    delay: [Duration; 2],
    /// How many more bytes go through before the connection that carries the next one is cut.
    cut_after: [Option<usize>; 2],
    refusing: bool,
}

#[derive(Debug)]
struct Connection {
    client: TcpStream,
    server: TcpStream,
    cut: AtomicBool,
    /// By direction.
    half_closed: [AtomicBool; 2],
}

impl Proxy {
    /// Starts a proxy on a free port before `server`, which need not be there yet.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn start(server: SocketAddr) -> io::Result<Self> {
        let mut proxy = Self {
            port: Port::reserve().map_err(io::Error::other)?,
            shared: Arc::new(Shared {
                server,
                rules: Mutex::default(),
                changed: Condvar::new(),
                connections: Mutex::default(),
            }),
            accepting: None,
        };
        proxy.accept()?;
        Ok(proxy)
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections().len()
    }

    /// Resets every connection. New ones are taken.
    pub fn cut(&self) {
        let connections = self.shared.connections();
        for connection in connections {
            connection.cut();
        }
        self.shared.changed.notify_all();
    }

    /// Resets every connection and refuses new ones, as a host whose server is gone does.
    pub fn refuse(&mut self) {
        let Some(accepting) = self.accepting.take() else {
            return;
        };
        self.shared.rules().refusing = true;
        // The thread is in `accept`; a connection makes it look. Where it can't be made it has ended already.
        let _ = TcpStream::connect(self.address());
        let _ = accepting.join();
        self.cut();
    }

    /// Takes new connections again after [`refuse`](Self::refuse).
    ///
    /// # Errors
    /// When another process took the port meanwhile.
    pub fn accept(&mut self) -> io::Result<()> {
        if self.accepting.is_some() {
            return Ok(());
        }
        let listener = TcpListener::bind(self.address())?;
        self.shared.rules().refusing = false;
        let shared = self.shared.clone();
        self.accepting = Some(thread::spawn(move || accept(&listener, &shared)));
        Ok(())
    }

    /// Forwards nothing more in this direction, and loses nothing: it comes after [`thaw`](Self::thaw).
    pub fn freeze(&self, direction: Direction) {
        self.shared.rules().frozen[direction as usize] = true;
    }

    /// Forwards again after [`freeze`](Self::freeze).
    pub fn thaw(&self, direction: Direction) {
        self.shared.rules().frozen[direction as usize] = false;
        self.shared.changed.notify_all();
    }

    /// Holds back what goes in this direction for `delay`.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.shared.rules().delay[direction as usize] = delay;
        self.shared.changed.notify_all();
    }

    /// Lets `bytes` more through in this direction, then resets the connection that carries the next one. Once.
    pub fn cut_after(&self, direction: Direction, bytes: usize) {
        self.shared.rules().cut_after[direction as usize] = Some(bytes);
    }

    /// Ends this direction of every connection in good order; the other goes on. What is still sent in this
    /// direction goes nowhere.
    pub fn half_close(&self, direction: Direction) {
        for connection in self.shared.connections() {
            connection.half_closed[direction as usize].store(true, Ordering::SeqCst);
            let (_, to) = connection.ends(direction);
            // What is closed already is as it should be.
            let _ = to.shutdown(Shutdown::Write);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
    }
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        lock(&self.rules)
    }

    /// The connections there are.
    fn connections(&self) -> Vec<Arc<Connection>> {
        let known = lock(&self.connections);
        known.iter().filter_map(Weak::upgrade).collect()
    }

    /// Holds a chunk back as long as the rules say. False when the connection was cut meanwhile.
    fn hold_back(&self, connection: &Connection, direction: Direction) -> bool {
        let at = direction as usize;
        let since = clock::now();
        let mut rules = self.rules();
        loop {
            if connection.cut.load(Ordering::SeqCst) {
                return false;
            }
            let delay = rules.delay[at].saturating_sub(clock::now().since(since).steady);
            if !rules.frozen[at] && delay.is_zero() {
                return true;
            }
            let most = if delay.is_zero() {
                Duration::MAX
            } else {
                delay
            };
            let woken = self
                .changed
                .wait_timeout(rules, most.min(Duration::from_secs(60)));
            rules = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How many of `count` bytes may go through, and whether the connection is cut after them.
    fn allowed(&self, direction: Direction, count: usize) -> (usize, bool) {
        let rule = &mut self.rules().cut_after[direction as usize];
        match *rule {
            Some(left) if left < count => {
                *rule = None;
                (left, true)
            }
            Some(left) => {
                *rule = Some(left - count);
                (count, false)
            }
            None => (count, false),
        }
    }
}

impl Connection {
    /// Where bytes of this direction come from and go to.
    fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        match direction {
            Direction::ToServer => (&self.client, &self.server),
            Direction::ToClient => (&self.server, &self.client),
        }
    }

    /// Makes both ends be reset when the pumps let go of them, which they do at once.
    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        for end in [&self.client, &self.server] {
            // With a linger time of zero a close is a reset. Shutting down reading sends nothing; it wakes a pump.
            // Both fail only on what is gone already.
            let _ = set_socket_linger(end, Some(Duration::ZERO));
            let _ = end.shutdown(Shutdown::Read);
        }
    }
}

/// Locks a mutex whose data is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.rules().refusing {
            return;
        }
        let Some(connection) = client.ok().and_then(|client| connect(client, shared)) else {
            continue;
        };
        for direction in Direction::BOTH {
            let (shared, connection) = (shared.clone(), connection.clone());
            thread::spawn(move || pump(&shared, &connection, direction));
        }
    }
}

/// Connects a client with the server. Where that isn't there, or is gone at once, the client is reset.
fn connect(client: TcpStream, shared: &Shared) -> Option<Arc<Connection>> {
    let mut known = lock(&shared.connections);
    set_socket_linger(&client, Some(Duration::ZERO)).ok()?;
    let server = TcpStream::connect_timeout(&shared.server, CONNECT_MAX).ok()?;
    for end in [&client, &server] {
        // What the ends do about small packets is theirs; a proxy adds no delay.
        end.set_nodelay(true).ok()?;
        end.set_write_timeout(Some(STUCK)).ok()?;
    }
    set_socket_linger(&client, None).ok()?;
    let connection = Arc::new(Connection {
        client,
        server,
        cut: AtomicBool::new(false),
        half_closed: Default::default(),
    });
    known.retain(|known| known.strong_count() > 0);
    known.push(Arc::downgrade(&connection));
    Some(connection)
}

/// Forwards one direction of one connection until it ends.
fn pump(shared: &Shared, connection: &Connection, direction: Direction) {
    let (mut from, to) = connection.ends(direction);
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = match from.read(&mut chunk) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // One end was reset: so is the other.
            Err(_) => return end(shared, connection),
        };
        if !shared.hold_back(connection, direction) {
            return;
        }
        if count == 0 {
            // The other direction may go on for long.
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        if connection.half_closed[direction as usize].load(Ordering::SeqCst) {
            continue;
        }
        let (allowed, cut) = shared.allowed(direction, count);
        let forwarded = forward(connection, to, &chunk[..allowed]).is_ok();
        if cut || !forwarded && !connection.half_closed[direction as usize].load(Ordering::SeqCst) {
            return end(shared, connection);
        }
    }
}

fn end(shared: &Shared, connection: &Connection) {
    connection.cut();
    // The other pump may be holding something back.
    shared.changed.notify_all();
}

/// Writes all of `bytes`, unless the connection is cut meanwhile.
fn forward(connection: &Connection, mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if connection.cut.load(Ordering::SeqCst) {
                    return Err(error);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

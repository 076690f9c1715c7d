//! Connections between the processes of a [`World`] and simulated servers, as streams of bytes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Connection, MS, Network, World};

/// What is at the other end of connections.
pub trait Server {
    /// Bytes have reached it.
    fn received(&self, wire: usize, bytes: Vec<u8>);

    /// It has noticed that a connection is no more.
    fn ended(&self, wire: usize);
}

/// All connections there ever were.
pub struct Wires {
    world: World,
    network: RefCell<Network>,
    ends: RefCell<Vec<End>>,
    /// Those whose client has done something.
    touched: Arc<Mutex<Vec<usize>>>,
    /// How long until the end of a connection is noticed, at most.
    notices: u64,
    server: RefCell<Option<Rc<dyn Server>>>,
}

struct End {
    connection: Connection,
    machine: usize,
    pipe: Arc<Mutex<Pipe>>,
    over: bool,
}

/// What a client has of a connection.
#[derive(Debug, Default)]
struct Pipe {
    incoming: VecDeque<u8>,
    outgoing: Vec<u8>,
    /// The other end has closed it, or its breaking was noticed.
    closed: bool,
    /// The client has.
    dropped: bool,
    reader: Option<Waker>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wires {
    /// No connections yet, over this network.
    #[must_use]
    pub fn new(world: &World, network: Network, notices: u64) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            network: RefCell::new(network),
            ends: RefCell::default(),
            touched: Arc::default(),
            notices,
            server: RefCell::default(),
        })
    }

    /// Who serves all of them.
    pub fn serve(&self, server: Rc<dyn Server>) {
        self.server.replace(Some(server));
    }

    /// Changes the weather from now on.
    pub fn weather(&self, change: impl FnOnce(&mut super::Weather)) {
        change(&mut self.network.borrow_mut().weather);
    }

    /// A connection from a machine; its number, and the client's end.
    pub fn dial(&self, machine: usize) -> (usize, Stream) {
        let pipe = Arc::default();
        let mut ends = self.ends.borrow_mut();
        ends.push(End {
            connection: self.network.borrow_mut().connect(),
            machine,
            pipe: Arc::clone(&pipe),
            over: false,
        });
        let wire = ends.len() - 1;
        let touched = self.touched.clone();
        (
            wire,
            Stream {
                wire,
                pipe,
                touched,
            },
        )
    }

    /// Whose connection it is.
    #[must_use]
    pub fn machine(&self, wire: usize) -> usize {
        self.ends.borrow()[wire].machine
    }

    /// Sends what clients have written; to be called after each of their turns.
    pub fn flush(self: &Rc<Self>) {
        let touched = std::mem::take(&mut *lock(&self.touched));
        for wire in touched {
            let pipe = self.ends.borrow()[wire].pipe.clone();
            let (bytes, dropped) = {
                let mut pipe = lock(&pipe);
                (std::mem::take(&mut pipe.outgoing), pipe.dropped)
            };
            if !bytes.is_empty() {
                self.carry(wire, false, Some(bytes));
            }
            if dropped {
                self.carry(wire, false, None);
            }
        }
    }

    /// The server sends bytes.
    pub fn send(self: &Rc<Self>, wire: usize, bytes: Vec<u8>) {
        self.carry(wire, true, Some(bytes));
    }

    /// The server closes a connection.
    pub fn close(self: &Rc<Self>, wire: usize) {
        self.carry(wire, true, None);
    }

    /// Bytes, or the end, on their way.
    fn carry(self: &Rc<Self>, wire: usize, back: bool, bytes: Option<Vec<u8>>) {
        let (now, connection) = (self.world.now(), self.ends.borrow()[wire].connection);
        let fate = self
            .world
            .chance(|rng| self.network.borrow_mut().send(rng, now, connection, back));
        if let Some(at) = fate.arrives {
            let wires = self.clone();
            self.world.at(at, move || match bytes {
                Some(bytes) if back => wires.reaches(wire, &bytes),
                Some(bytes) => wires.served(|server| server.received(wire, bytes)),
                None if back => wires.closes(wire),
                None => wires.served(|server| server.ended(wire)),
            });
        }
        if fate.broke {
            self.breaks(wire);
        }
    }

    fn served(&self, call: impl FnOnce(&dyn Server)) {
        let server = self.server.borrow().clone();
        if let Some(server) = server {
            call(&*server);
        }
    }

    /// Breaks a connection. Its ends notice some time, or perhaps never where nobody sends anything.
    pub fn breaks(self: &Rc<Self>, wire: usize) {
        if std::mem::replace(&mut self.ends.borrow_mut()[wire].over, true) {
            return;
        }
        let connection = self.ends.borrow()[wire].connection;
        self.network.borrow_mut().cut(connection);
        let now = self.world.now();
        let notices = |wires: &Rc<Self>| {
            let notices = wires.notices;
            let (does, after) = wires
                .world
                .chance(|rng| (rng.chance(0.6), rng.within(MS..notices)));
            does.then_some(now + after)
        };
        if let Some(at) = notices(self) {
            let wires = self.clone();
            self.world.at(at, move || wires.closes(wire));
        }
        if let Some(at) = notices(self) {
            let wires = self.clone();
            self.world
                .at(at, move || wires.served(|server| server.ended(wire)));
        }
    }

    /// Breaks all connections of a machine.
    pub fn breaks_of(self: &Rc<Self>, machine: usize) {
        let of = |wire: &usize| self.ends.borrow()[*wire].machine == machine;
        let count = self.ends.borrow().len();
        for wire in (0..count).filter(of) {
            self.breaks(wire);
        }
    }

    fn reaches(&self, wire: usize, bytes: &[u8]) {
        self.tell(wire, |pipe| pipe.incoming.extend(bytes));
    }

    fn closes(&self, wire: usize) {
        self.tell(wire, |pipe| pipe.closed = true);
    }

    fn tell(&self, wire: usize, change: impl FnOnce(&mut Pipe)) {
        let pipe = self.ends.borrow()[wire].pipe.clone();
        let reader = {
            let mut pipe = lock(&pipe);
            change(&mut pipe);
            pipe.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// A client's end of a connection.
#[derive(Debug)]
pub struct Stream {
    wire: usize,
    pipe: Arc<Mutex<Pipe>>,
    touched: Arc<Mutex<Vec<usize>>>,
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.pipe);
        if pipe.incoming.is_empty() && !pipe.closed {
            pipe.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = pipe.incoming.len().min(into.remaining());
        let bytes: Vec<u8> = pipe.incoming.drain(..count).collect();
        into.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = lock(&self.pipe);
        if pipe.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        pipe.outgoing.extend(bytes);
        lock(&self.touched).push(self.wire);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        lock(&self.pipe).dropped = true;
        lock(&self.touched).push(self.wire);
    }
}

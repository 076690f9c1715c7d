//! A connection that is made anew when it broke.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, RedisError, Value, cmd};

use crate::config::CONNECT;
use crate::dial::Node;
use crate::error;
use crate::redlock::Seat;
use crate::script::{self, Code};
use crate::sentinel::Sentinels;

/// Which server a connection goes to.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    /// This one.
    At(Arc<Client>),
    /// Whichever is the master.
    Master(Arc<Sentinels>),
    /// One of several that decide together, while it counts among them.
    Node(Arc<Seat>),
}

impl Server {
    /// Whether a connection that was made in this era goes to the wrong server.
    fn is_replaced(&self, era: u64) -> bool {
        match self {
            Self::At(_) => false,
            Self::Node(seat) => seat.is_replaced(era),
            Self::Master(sentinels) => era != sentinels.era(),
        }
    }

    /// Whether what concerns a lock may be asked over a connection of this era.
    fn admits(&self, era: u64) -> Result<()> {
        match self {
            Self::At(_) | Self::Master(_) => Ok(()),
            Self::Node(seat) => seat.admits(era),
        }
    }

    /// How long a connection may take to be made.
    fn connects_within(&self) -> Duration {
        match self {
            Self::At(_) | Self::Master(_) => CONNECT,
            Self::Node(seat) => seat.patience(),
        }
    }

    async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, u64)> {
        let sentinels = match self {
            Self::At(client) => {
                let made = client.get_multiplexed_async_connection_with_config(config);
                return Ok((made.await.map_err(error::connecting)?, 0));
            }
            Self::Node(seat) => return seat.connect(config).await,
            Self::Master(sentinels) => sentinels,
        };
        let (node, client, era) = sentinels.master().await?;
        let made = client.get_multiplexed_async_connection_with_config(config);
        let mut connection = made.await.map_err(|error| {
            sentinels.doubt();
            error::connecting(error)
        })?;
        // In the middle of a failover the sentinels may name a server that is none yet, or none any more.
        let role = cmd("ROLE").query_async(&mut connection).await;
        let role: Value = role.map_err(error::connecting)?;
        let is_master = matches!(&role, Value::Array(parts)
            if matches!(parts.first(), Some(Value::BulkString(role)) if role == b"master"));
        if is_master {
            return Ok((connection, era));
        }
        sentinels.doubt();
        Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "the sentinels name {node} as the master, and it is a replica; a failover may be under way"
            ),
        ))
    }

    /// A connection for messages.
    pub(crate) async fn messages(&self) -> Result<(PubSub, u64)> {
        let (client, era) = match self {
            Self::At(client) => (client.clone(), 0),
            Self::Master(sentinels) => {
                let (_, client, era) = sentinels.master().await?;
                (Arc::new(client), era)
            }
            Self::Node(seat) => (seat.client().clone(), 0),
        };
        let made = client.get_async_pubsub().await.map_err(error::connecting)?;
        Ok((made, era))
    }

    /// Waits until another server is the right one.
    pub(crate) async fn replaced(&self, era: u64) {
        match self {
            Self::At(_) | Self::Node(_) => std::future::pending().await,
            Self::Master(sentinels) => sentinels.after(era).await,
        }
    }
}

/// One multiplexed connection; its driver runs on the runtime of whoever connected it.
pub(crate) struct Link {
    server: Server,
    patience: Duration,
    current: Mutex<Option<Connection>>,
    /// Held while one connects: thousands of waiters that are cut off together need one connection.
    connecting: tokio::sync::Mutex<()>,
}

impl Link {
    /// A link that waits `patience` for each answer; connects on first use.
    pub(crate) fn new(server: Server, patience: Duration) -> Self {
        Self {
            server,
            patience,
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
        }
    }

    /// Calls a script, once.
    pub(crate) async fn call(
        &self,
        script: &Code,
        keys: &[&str],
        args: &[&str],
    ) -> Result<Value, Failure> {
        let connection = self.connection().await.map_err(Failure::Unsent)?;
        self.server
            .admits(connection.era)
            .map_err(Failure::Unsent)?;
        self.call_on(connection, script, keys, args).await
    }

    /// As [`call`](Self::call), also at a node that doesn't count.
    pub(crate) async fn call_uncounted(
        &self,
        script: &Code,
        keys: &[&str],
        args: &[&str],
    ) -> Result<Value, Failure> {
        let connection = self.connection().await.map_err(Failure::Unsent)?;
        self.call_on(connection, script, keys, args).await
    }

    async fn call_on(
        &self,
        mut connection: Connection,
        script: &Code,
        keys: &[&str],
        args: &[&str],
    ) -> Result<Value, Failure> {
        script::call(&mut connection.inner, script, keys, args)
            .await
            .map_err(|error| self.failed(&connection, error))
    }

    /// As [`call`](Self::call), at a node that doesn't have the slot yet and serves it to those it was named to.
    pub(crate) async fn call_asking(
        &self,
        script: &Code,
        keys: &[&str],
        args: &[&str],
    ) -> Result<Value, Failure> {
        let mut connection = self.connection().await.map_err(Failure::Unsent)?;
        script::call_asking(&mut connection.inner, script, keys, args)
            .await
            .map_err(|error| self.failed(&connection, error))
    }

    /// As [`call`](Self::call), with a command right behind it on the same connection; answers both.
    pub(crate) async fn call_and_then(
        &self,
        script: &Code,
        keys: &[&str],
        args: &[&str],
        then: &redis::Cmd,
    ) -> Result<(Value, Value), Failure> {
        let mut connection = self.connection().await.map_err(Failure::Unsent)?;
        script::call_and_then(&mut connection.inner, script, keys, args, then)
            .await
            .map_err(|error| self.failed(&connection, error))
    }

    /// Sends a plain command that only reads; once more where the connection had gone stale.
    pub(crate) async fn command(&self, command: &redis::Cmd) -> Result<Value> {
        match self.command_once(command).await {
            Err(Failure::Stale(_)) => Ok(self.command_once(command).await?),
            answer => Ok(answer?),
        }
    }

    /// Sends plain commands that only read, all over one connection. Each answer may be an error of its own.
    pub(crate) async fn commands(&self, commands: &[redis::Cmd]) -> Result<Vec<Value>> {
        match self.commands_once(commands).await {
            Err(Failure::Stale(_)) => Ok(self.commands_once(commands).await?),
            answers => Ok(answers?),
        }
    }

    async fn commands_once(&self, commands: &[redis::Cmd]) -> Result<Vec<Value>, Failure> {
        let mut connection = self.connection().await.map_err(Failure::Unsent)?;
        let mut pipeline = redis::Pipeline::new();
        for command in commands {
            pipeline.add_command(command.clone());
        }
        pipeline.ignore_errors();
        let answers = pipeline.query_async(&mut connection.inner).await;
        answers.map_err(|error| self.failed(&connection, error))
    }

    async fn command_once(&self, command: &redis::Cmd) -> Result<Value, Failure> {
        let mut connection = self.connection().await.map_err(Failure::Unsent)?;
        command
            .query_async(&mut connection.inner)
            .await
            .map_err(|error| self.failed(&connection, error))
    }

    /// Lets go of the connection.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    fn failed(&self, connection: &Connection, error: RedisError) -> Failure {
        if let Server::Node(seat) = &self.server
            && error.is_timeout()
        {
            seat.unanswered();
        }
        let broke = error.is_io_error() || error.is_connection_dropped();
        // A server that answered is fine, unless it is a master no more; else the next request gets a connection of
        // its own.
        if broke || error.is_timeout() || error::is_read_only(&error) {
            let mut current = self.lock();
            if current
                .as_ref()
                .is_some_and(|known| known.generation == connection.generation)
            {
                *current = None;
            }
        }
        if let Some(way) = Way::of(&error) {
            return Failure::Elsewhere(way, error::sent(error));
        }
        let stale = broke && !error.is_timeout() && !connection.fresh;
        let error = error::sent(error);
        if stale {
            Failure::Stale(error)
        } else {
            Failure::Sent(error)
        }
    }

    /// The connection there is, unless it goes to a server that was replaced.
    fn current(&self) -> Option<Connection> {
        let mut current = self.lock();
        let replaced = |current: &Connection| self.server.is_replaced(current.era);
        if current.as_ref().is_some_and(replaced) {
            *current = None;
        }
        current.clone()
    }

    async fn connection(&self) -> Result<Connection> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.server.connects_within()))
            .set_response_timeout(Some(self.patience));
        let (inner, era) = self.server.connect(&config).await?;
        static GENERATION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let connection = Connection {
            inner,
            generation: GENERATION.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            era,
            fresh: true,
        };
        *self.lock() = Some(Connection {
            fresh: false,
            ..connection.clone()
        });
        Ok(connection)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Connection>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct Connection {
    inner: MultiplexedConnection,
    generation: u64,
    /// The server's when it was made.
    era: u64,
    /// Made for the request that has it; any other may have broken while nobody looked.
    fresh: bool,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("connected", &self.lock().is_some())
            .finish_non_exhaustive()
    }
}

/// A request that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was sent.
    Unsent(Error),
    /// It was sent.
    Sent(Error),
    /// It may have been sent, on a connection from before that turned out to be broken: worth a new one at once.
    Stale(Error),
    /// It had no effect at this node of a cluster.
    Elsewhere(Way, Error),
}

/// Where a node of a cluster sends a request that isn't for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// This node has the slot. It has no host where the node doesn't know its own.
    Moved(Node),
    /// This node is getting the slot, and has these keys already.
    Ask(Node),
    /// Some of the keys are here and some there.
    Again,
    /// Nobody has the slot now.
    Down,
}

impl Way {
    pub(crate) fn of(error: &RedisError) -> Option<Self> {
        use redis::ServerErrorKind as Kind;
        let redis::ErrorKind::Server(kind) = error.kind() else {
            return None;
        };
        let node = || Node::parse(error.redirect_node()?.0, crate::dial::PORT).ok();
        match kind {
            Kind::Moved => node().map(Self::Moved),
            Kind::Ask => node().map(Self::Ask),
            Kind::TryAgain => Some(Self::Again),
            Kind::ClusterDown | Kind::MasterDown => Some(Self::Down),
            _ => None,
        }
    }
}

impl Failure {
    /// Whether the request may still take effect.
    pub(crate) fn may_land(&self) -> bool {
        match self {
            Self::Unsent(_) | Self::Elsewhere(..) => false,
            Self::Sent(error) => error.kind() == ErrorKind::Ambiguous,
            Self::Stale(_) => true,
        }
    }

    pub(crate) fn error(&self) -> &Error {
        match self {
            Self::Unsent(error)
            | Self::Sent(error)
            | Self::Stale(error)
            | Self::Elsewhere(_, error) => error,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsent(error)
            | Failure::Sent(error)
            | Failure::Stale(error)
            | Failure::Elsewhere(_, error) => error,
        }
    }
}

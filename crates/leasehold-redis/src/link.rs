//! A connection that is made anew when it broke.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::Result;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Value};

use crate::config::CONNECT;
use crate::error;
use crate::script::{self, Code};

/// One multiplexed connection; its driver runs on the runtime of whoever connected it.
pub(crate) struct Link {
    client: Client,
    patience: Duration,
    current: Mutex<Option<Connection>>,
    /// Held while one connects: thousands of waiters that are cut off together need one connection.
    connecting: tokio::sync::Mutex<()>,
}

impl Link {
    /// A link that waits `patience` for each answer; connects on first use.
    pub(crate) fn new(client: Client, patience: Duration) -> Self {
        Self {
            client,
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
        let mut connection = self.connection().await.map_err(Failure::Unsent)?;
        script::call(&mut connection.inner, script, keys, args)
            .await
            .map_err(|error| self.failed(&connection, error))
    }

    /// As [`call`](Self::call), for a script that may as well run twice: once more where the connection had gone
    /// stale.
    pub(crate) async fn ask(&self, script: &Code, keys: &[&str], args: &[&str]) -> Result<Value> {
        match self.call(script, keys, args).await {
            Err(Failure::Stale(_)) => Ok(self.call(script, keys, args).await?),
            answer => Ok(answer?),
        }
    }

    /// Sends a plain command that only reads; once more where the connection had gone stale.
    pub(crate) async fn command(&self, command: &redis::Cmd) -> Result<Value> {
        match self.command_once(command).await {
            Err(Failure::Stale(_)) => Ok(self.command_once(command).await?),
            answer => Ok(answer?),
        }
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
        let broke = error.is_io_error() || error.is_connection_dropped();
        // A server that answered is fine; else the next request gets a connection of its own.
        if broke || error.is_timeout() {
            let mut current = self.lock();
            if current
                .as_ref()
                .is_some_and(|known| known.generation == connection.generation)
            {
                *current = None;
            }
        }
        let stale = broke && !error.is_timeout() && !connection.fresh;
        let error = error::sent(error);
        if stale {
            Failure::Stale(error)
        } else {
            Failure::Sent(error)
        }
    }

    async fn connection(&self) -> Result<Connection> {
        if let Some(current) = self.lock().clone() {
            return Ok(current);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(current) = self.lock().clone() {
            return Ok(current);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(self.patience));
        let inner = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(error::connecting)?;
        static GENERATION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let connection = Connection {
            inner,
            generation: GENERATION.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
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
    Unsent(leasehold_core::Error),
    /// It was sent.
    Sent(leasehold_core::Error),
    /// It may have been sent, on a connection from before that turned out to be broken: worth a new one at once.
    Stale(leasehold_core::Error),
}

impl Failure {
    /// Whether the request may still take effect.
    pub(crate) fn may_land(&self) -> bool {
        match self {
            Self::Unsent(_) => false,
            Self::Sent(error) => error.kind() == leasehold_core::ErrorKind::Ambiguous,
            Self::Stale(_) => true,
        }
    }
}

impl From<Failure> for leasehold_core::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsent(error) | Failure::Sent(error) | Failure::Stale(error) => error,
        }
    }
}

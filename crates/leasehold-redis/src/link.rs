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
    current: Mutex<Option<(u64, MultiplexedConnection)>>,
}

impl Link {
    /// A link that waits `patience` for each answer; connects on first use.
    pub(crate) fn new(client: Client, patience: Duration) -> Self {
        Self {
            client,
            patience,
            current: Mutex::new(None),
        }
    }

    /// Calls a script. `Err(None)` inside says that nothing was sent.
    pub(crate) async fn call(
        &self,
        script: &Code,
        keys: &[&str],
        args: &[&str],
    ) -> Result<Value, Failure> {
        let (generation, mut connection) = self.connection().await.map_err(Failure::Unsent)?;
        script::call(&mut connection, script, keys, args)
            .await
            .map_err(|error| self.failed(generation, error))
    }

    /// Sends a plain command.
    pub(crate) async fn command(&self, command: &redis::Cmd) -> Result<Value, Failure> {
        let (generation, mut connection) = self.connection().await.map_err(Failure::Unsent)?;
        command
            .query_async(&mut connection)
            .await
            .map_err(|error| self.failed(generation, error))
    }

    /// Lets go of the connection.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    fn failed(&self, generation: u64, error: RedisError) -> Failure {
        // A server that answered is fine; else the next request gets a connection of its own.
        if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
            let mut current = self.lock();
            if current
                .as_ref()
                .is_some_and(|(known, _)| *known == generation)
            {
                *current = None;
            }
        }
        Failure::Sent(error::sent(error))
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection)> {
        if let Some((generation, connection)) = &*self.lock() {
            return Ok((*generation, connection.clone()));
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(self.patience));
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(error::connecting)?;
        static GENERATION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let generation = GENERATION.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut current = self.lock();
        // Two may have connected at once; one of the connections is enough.
        let (generation, connection) = current.get_or_insert((generation, connection));
        Ok((*generation, connection.clone()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(u64, MultiplexedConnection)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
}

impl From<Failure> for leasehold_core::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsent(error) | Failure::Sent(error) => error,
        }
    }
}

//! One node as all connections to it see it: which run of the server they go to, and whether that run counts.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, cmd};
use tokio::sync::Notify;

use crate::check;
use crate::error;

pub(crate) struct Seat {
    name: String,
    client: Arc<Client>,
    patience: Duration,
    runs: Mutex<Runs>,
    /// It has left something unanswered for as long as it may take, and no census has heard it since.
    silent: AtomicBool,
    /// Told when this node is to be judged anew.
    doubted: Arc<Notify>,
}

/// The runs of the server that were met. A connection's era is the place of its run among them, from one.
#[derive(Debug, Default)]
struct Runs {
    met: Vec<String>,
    /// The era of the run that counts.
    counts: Option<u64>,
}

impl Runs {
    fn era(&mut self, run: &str) -> u64 {
        let at = self.met.iter().position(|met| met == run);
        let at = at.unwrap_or_else(|| {
            self.met.push(run.to_owned());
            self.met.len() - 1
        });
        at as u64 + 1
    }
}

impl Seat {
    pub(super) fn new(
        name: String,
        client: Client,
        patience: Duration,
        doubted: Arc<Notify>,
    ) -> Self {
        Self {
            name,
            client: Arc::new(client),
            patience,
            runs: Mutex::default(),
            silent: AtomicBool::new(false),
            doubted,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// How long the node may take to answer, or to be connected to.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Makes a connection; answers the era of the run that it goes to.
    pub(crate) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, u64)> {
        let made = self
            .client
            .get_multiplexed_async_connection_with_config(config);
        let failed = |error: RedisError| {
            if error.is_timeout() {
                self.unanswered();
            }
            error::connecting(error)
        };
        let mut connection = made.await.map_err(failed)?;
        let info = cmd("INFO").arg("server").query_async(&mut connection).await;
        let info = check::read_info(info.map_err(failed)?)?;
        let run = check::field(&info, "run_id");
        let mut runs = self.runs();
        let era = runs.era(run);
        if runs.counts.is_some_and(|counts| counts != era) {
            // It was started again, so what counted is no more.
            runs.counts = None;
            self.doubt();
        }
        Ok((connection, era))
    }

    /// It has left a request unanswered: until a census hears it nothing waits for it that can do without.
    pub(crate) fn unanswered(&self) {
        self.silent.store(true, Ordering::Release);
        self.doubt();
    }

    /// A census has heard it.
    pub(super) fn heard(&self) {
        self.silent.store(false, Ordering::Release);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// Asks for all nodes to be judged anew.
    pub(super) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// This run counts, or none.
    pub(super) fn judged(&self, run: Option<&str>) {
        let mut runs = self.runs();
        let era = run.map(|run| runs.era(run));
        runs.counts = era;
    }

    pub(super) fn counts(&self) -> bool {
        self.runs().counts.is_some()
    }

    /// Whether another run counts than the one that a connection of this era goes to. What is never sent over it would
    /// never find it broken.
    pub(crate) fn is_replaced(&self, era: u64) -> bool {
        self.runs().counts.is_some_and(|counts| counts != era)
    }

    /// Whether a connection of this era goes to the run that counts.
    ///
    /// # Errors
    /// `Unavailable` where it doesn't.
    pub(crate) fn admits(&self, era: u64) -> Result<()> {
        if self.runs().counts == Some(era) {
            return Ok(());
        }
        self.doubt();
        Err(Error::new(
            ErrorKind::Unavailable,
            "it was started again and doesn't count yet",
        ))
    }

    fn runs(&self) -> std::sync::MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Seat {
    /// Shows no credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("name", &self.name)
            .field("runs", &*self.runs())
            .finish_non_exhaustive()
    }
}

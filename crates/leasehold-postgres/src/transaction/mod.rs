//! Locks inside the caller's own transaction.

mod caller;
mod statements;

pub use caller::Caller;
pub use statements::{ACQUIRE, TOKEN, TRY_ACQUIRE};

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::advisory::Failure;
use leasehold_core::clock::{self, Moment};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, ErrorKind, Name, Result};

use crate::config::Mapping;
use crate::error::unexpected;
use crate::keys::Key;
use crate::sql;

/// Locks inside the caller's own transactions on one database, of the same names and keys as all others of it: whoever
/// holds `jobs/report` by a session keeps out the transaction that asks for it, and the other way round.
///
/// The server frees them when the transaction ends, by a commit, a rollback or the end of its connection, and at the
/// rollback to a savepoint from before. There is no TTL and nothing to renew or release: as long as the transaction is
/// open, nobody else has the lock. What the transaction writes is there with its commit or not at all, so that no stale
/// holder can write; a write to anywhere else is protected by nothing. A transaction that has a lock gets it again.
///
/// The transaction must be READ COMMITTED: above that it sees the database as it was before the wait.
///
/// After an error the transaction is aborted, as after every error in PostgreSQL, but for those of
/// [`acquire_within`](Self::acquire_within).
///
/// ```no_run
/// use leasehold_postgres::TransactionLocks;
///
/// # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let locks = TransactionLocks::new();
/// let transaction = client.transaction().await?;
/// if locks.try_acquire(&transaction, "accounts/7").await? {
///     transaction.execute("UPDATE accounts SET balance = balance - 1 WHERE id = 7", &[]).await?;
///     transaction.commit().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TransactionLocks {
    mapping: Mapping,
    /// What the errors name.
    shown: Arc<str>,
    /// The server that forgot no lock whose holder may believe to have it still.
    settled: Mutex<Option<Server>>,
}

/// A database of a server, as long as that remembers its locks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Server {
    database: String,
    up: String,
}

/// A token that counts in its transaction alone: the next holder gets a higher one if the transaction is committed, and
/// the same one if it isn't. So it is for rows that the transaction writes, and for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionToken(u64);

impl TransactionToken {
    /// Its number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TransactionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Default for TransactionLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl TransactionLocks {
    /// The locks of a URL without `key` and `prefix`.
    #[must_use]
    pub fn new() -> Self {
        Self {
            mapping: Mapping::default(),
            shown: "postgres".into(),
            settled: Mutex::default(),
        }
    }

    /// The locks of this URL, by its `key` and `prefix`. Nothing is connected to.
    ///
    /// # Errors
    /// `Invalid` for a URL that can't be right.
    pub fn of(url: &str) -> Result<Self> {
        let url = StoreUrl::parse(url)?;
        let shown = url.to_string().into();
        Ok(Self {
            mapping: Mapping::of(url)?,
            shown,
            settled: Mutex::default(),
        })
    }

    /// Takes the lock if it is free; whether it was.
    ///
    /// # Errors
    /// `Invalid` for a name that can't be right and a transaction that isn't READ COMMITTED or is aborted, `Unavailable`
    /// when the server can't be asked, `Unauthorized` without the right to read leasehold's table.
    ///
    /// # Cancel safety
    /// Dropped before its end the transaction may have the lock, until it ends.
    pub async fn try_acquire<'a>(
        &self,
        transaction: impl Into<Caller<'a>>,
        name: &str,
    ) -> Result<bool> {
        let mut caller = transaction.into();
        let trying = async {
            let name = self.name(name)?;
            let key = self.key(&mut caller, &name).await?;
            let row = caller.row(&statements::attempt(key)).await?;
            Ok(is_true(&row) && self.held_back(&mut caller, key, &row).await?.is_none())
        };
        trying
            .await
            .map_err(|failure| self.explain("acquire", failure, name))
    }

    /// Takes the lock, waiting for it as long as that takes, or as the transaction's `lock_timeout` and
    /// `statement_timeout` let it.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire); `Unavailable` also when a setting of the transaction ended the wait, and for
    /// a deadlock.
    ///
    /// # Cancel safety
    /// Dropped before its end the server goes on waiting: drop the connection, too.
    pub async fn acquire<'a>(&self, transaction: impl Into<Caller<'a>>, name: &str) -> Result<()> {
        let mut caller = transaction.into();
        let waiting = async {
            let name = self.name(name)?;
            let key = self.key(&mut caller, &name).await?;
            let row = caller.row(&statements::wait(key)).await?;
            while let Some(left) = self.held_back(&mut caller, key, &row).await? {
                clock::sleep(left).await;
            }
            Ok(())
        };
        waiting
            .await
            .map_err(|failure| self.explain("acquire", failure, name))
    }

    /// Takes the lock, waiting at most `wait` for it; whether it was free by then. Whatever comes of it, the transaction
    /// goes on, with the `lock_timeout` that it had.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Dropped before its end the server goes on waiting, for `wait` at most, and the transaction may have the lock then:
    /// end it.
    pub async fn acquire_within<'a>(
        &self,
        transaction: impl Into<Caller<'a>>,
        name: &str,
        wait: Duration,
    ) -> Result<bool> {
        let begun = clock::now();
        let mut caller = transaction.into();
        let waiting = async {
            let name = self.name(name)?;
            caller.batch(statements::SAVE).await?;
            let waited = self.wait_within(&mut caller, &name, begun, wait).await;
            match &waited {
                Ok(_) => caller.batch(statements::KEEP).await?,
                // It says more than what may come of this.
                Err(_) => drop(caller.batch(statements::UNDO).await),
            }
            match waited {
                Err(Failure::NotInTime(_)) => Ok(false),
                waited => waited,
            }
        };
        waiting
            .await
            .map_err(|failure| self.explain("acquire", failure, name))
    }

    /// Counts the lock's token, for a transaction that has the lock.
    ///
    /// # Errors
    /// `Invalid` when the transaction doesn't have it, `Unsupported` without leasehold's table, `Unauthorized` without the
    /// right to write it, and as [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// Safe: at worst a number is left out.
    pub async fn token<'a>(
        &self,
        transaction: impl Into<Caller<'a>>,
        name: &str,
    ) -> Result<TransactionToken> {
        let mut caller = transaction.into();
        let counting = async {
            let name = self.name(name)?;
            let key = self.key(&mut caller, &name).await?;
            let token = caller
                .number(&statements::count(key), name.as_str())
                .await?;
            let token = token.ok_or_else(|| {
                Failure::Refused(Error::new(
                    ErrorKind::Invalid,
                    "the transaction doesn't have the lock that it counts; acquire it first",
                ))
            })?;
            let token = u64::try_from(token).map_err(|_| unexpected("the token"))?;
            Ok(TransactionToken(token))
        };
        counting
            .await
            .map_err(|failure| self.explain("count", failure, name))
    }

    async fn wait_within(
        &self,
        caller: &mut Caller<'_>,
        name: &Name,
        begun: Moment,
        wait: Duration,
    ) -> Result<bool, Failure> {
        let key = self.key(caller, name).await?;
        let left = || wait.saturating_sub(clock::now().since(begun).steady);
        let row = caller.row(&statements::wait_within(key, left())).await?;
        while let Some(more) = self.held_back(caller, key, &row).await? {
            if more > left() {
                // What undoes the wait undoes the lock.
                return Err(Failure::NotInTime(held_back()));
            }
            clock::sleep(more).await;
        }
        Ok(true)
    }

    /// The name with the prefix.
    fn name(&self, name: &str) -> Result<Name, Failure> {
        Name::new(&format!("{}{name}", self.mapping.prefix)).map_err(Failure::Refused)
    }

    async fn key(&self, caller: &mut Caller<'_>, name: &Name) -> Result<Key, Failure> {
        let Mapping {
            scheme, database, ..
        } = &self.mapping;
        if let Some(key) = scheme.key(name.as_str(), database) {
            return Ok(key);
        }
        let number = caller.number(sql::HASH, name.as_str()).await?;
        Ok(Key::one(number.ok_or_else(|| unexpected("a name's hash"))?))
    }

    /// How long somebody may still believe to have a lock that the server has forgotten. That is looked for until once
    /// nobody has been found who may.
    async fn held_back(
        &self,
        caller: &mut Caller<'_>,
        key: Key,
        row: &[Option<String>],
    ) -> Result<Option<Duration>, Failure> {
        let [_, Some(up), Some(database)] = row else {
            return Err(unexpected("a column").into());
        };
        let server = Server {
            database: database.clone(),
            up: up.clone(),
        };
        let settled = || self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled().as_ref() == Some(&server) {
            return Ok(None);
        }
        let there = caller.row(statements::TABLE).await?;
        let left = if is_true(&there) {
            caller.row(&statements::held_back(key)).await?
        } else {
            vec![None, None]
        };
        let [this, any] = &left[..] else {
            return Err(unexpected("a column").into());
        };
        if any.is_none() {
            *settled() = Some(server);
        }
        let millis = this.as_ref().and_then(|millis| millis.parse().ok());
        Ok(millis.map(Duration::from_millis))
    }

    fn explain(&self, operation: &'static str, failure: Failure, name: &str) -> Error {
        let error = match failure {
            Failure::NoTable => no_table(),
            failure => failure.into(),
        };
        error.during(operation).named(name).on(&self.shown)
    }
}

fn is_true(row: &[Option<String>]) -> bool {
    row.first()
        .is_some_and(|first| first.as_deref() == Some("t"))
}

fn held_back() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "somebody may still believe to have the lock from before the server's start",
    )
}

fn no_table() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "there is no table leasehold.locks; make it by `leasehold schema postgres | psql`",
    )
}

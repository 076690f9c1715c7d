//! A connection to the server, which is a session of its own there.
//!
//! It lives on the keeper's thread, whoever asks through it. The server does what is asked in the order that it was sent in,
//! and ends the session when it has heard nothing for the session's TTL.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::advisory::{self, Failure, Tried};
use leasehold_core::clock::{self, Moment};
use leasehold_core::{Claim, Error, ErrorKind, Name, Result, Token, background};
use tokio::sync::{OnceCell, oneshot};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use crate::config::{Config, Place};
use crate::dial::{self, Dialled};
use crate::error::{failed, unexpected};
use crate::keys::Key;
use crate::note;
use crate::probe;
use crate::sql;

/// How long all servers together may take to let us in.
const CONNECT: Duration = Duration::from_secs(4);

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To hold, and before that to wait: it ends when it was idle for so long.
    Hold(Duration),
    /// To look.
    Look,
}

impl Purpose {
    pub(crate) fn idle(self) -> Duration {
        match self {
            Self::Hold(ttl) => ttl,
            Self::Look => Duration::from_secs(60),
        }
    }

    /// How long a statement may take that doesn't wait for a lock. While it runs, the session isn't idle.
    pub(crate) fn statement(self) -> Duration {
        match self {
            Self::Hold(ttl) => (ttl / 4).clamp(Duration::from_millis(250), Duration::from_secs(1)),
            Self::Look => Duration::from_secs(3),
        }
    }
}

pub(crate) struct Link {
    client: Client,
    purpose: Purpose,
    /// The server's process.
    pid: i32,
    /// Since when the server remembers locks, in its microseconds.
    pub(crate) up: i64,
    /// How many locks there can be on the server.
    pub(crate) locks: i64,
    /// When the last statement of its beginning was sent.
    pub(crate) since: Moment,
    attempt: OnceCell<Statement>,
    count: OnceCell<Statement>,
    unlock: OnceCell<Statement>,
    broken: OnceCell<Statement>,
}

impl Link {
    /// Connects to the first of the servers that takes writes. `over` is called when this session has ended.
    ///
    /// # Cancel safety
    /// Safe: what was begun ends.
    pub(crate) async fn open(
        config: &Config,
        purpose: Purpose,
        over: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let count = u32::try_from(config.places.len()).unwrap_or(1).max(1);
        let mut last = None;
        for place in &config.places {
            let connecting = Self::connect(config, place, purpose);
            let failure = match clock::timeout(CONNECT / count, connecting).await {
                Some(Ok((link, ended))) => {
                    background::spawn_here(async move {
                        let _ = ended.await;
                        over();
                    });
                    return Ok(link);
                }
                Some(Err(failure)) => Error::from(failure),
                None => Error::new(
                    ErrorKind::Unavailable,
                    "the server lets nobody in within its time",
                ),
            };
            // Of several errors the one that waiting doesn't cure says most.
            if last.as_ref().is_none_or(Error::is_retryable) {
                last = Some(failure);
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Bug, "no server was named")))
    }

    /// The driver's side of it; the session ends with it.
    pub(crate) fn into_client(self) -> Client {
        self.client
    }

    async fn connect(
        config: &Config,
        place: &Place,
        purpose: Purpose,
    ) -> Result<(Self, oneshot::Receiver<Infallible>), Failure> {
        Self::begin(config, dial::dial(config, place).await?, purpose).await
    }

    /// Makes a connection a session for this purpose.
    pub(crate) async fn begin(
        config: &Config,
        dialled: Dialled,
        purpose: Purpose,
    ) -> Result<(Self, oneshot::Receiver<Infallible>), Failure> {
        let Dialled {
            client,
            version,
            ended,
        } = dialled;
        let ends_idle = match version {
            Some(version) if version >= dial::VERSION => true,
            _ if config.lease_by_tcp => false,
            _ => return Err(Failure::Refused(dial::too_old(version))),
        };
        let settings = dial::settings(purpose, ends_idle);
        client.batch_execute(&settings).await.map_err(failed)?;
        let since = clock::now();
        let hello = client.query_typed(sql::HELLO, &[]);
        let hello = hello.await.map_err(failed)?;
        let hello = hello
            .first()
            .ok_or_else(|| Failure::Refused(unexpected("what it is")))?;
        let link = Self {
            pid: get(hello, 0)?,
            up: get(hello, 2)?,
            locks: get(hello, 5)?,
            client,
            purpose,
            since,
            attempt: OnceCell::new(),
            count: OnceCell::new(),
            unlock: OnceCell::new(),
            broken: OnceCell::new(),
        };
        if get(hello, 1)? {
            return Err(Failure::Refused(Error::new(
                ErrorKind::Unavailable,
                "the server is a standby, and locks are the primary's",
            )));
        }
        let idle: i64 = get(hello, 3)?;
        let commit: &str = get(hello, 4)?;
        let kept = !ends_idle || u128::try_from(idle) == Ok(purpose.idle().as_millis());
        if !kept || !matches!(commit, "on" | "remote_apply") {
            return Err(Failure::Refused(Error::new(
                ErrorKind::Unsupported,
                "the session doesn't keep its settings; is there a pooler before the server? Name the server itself",
            )));
        }
        Ok((link, ended))
    }

    async fn granted(
        &self,
        statement: &Statement,
        key: Key,
        claim: &Claim,
    ) -> Result<Tried, Failure> {
        let ttl = i64::try_from(claim.ttl.as_millis()).unwrap_or(i64::MAX);
        let (name, note) = (claim.name.as_str(), note::text(&claim.identity));
        let params: [&(dyn ToSql + Sync); 6] =
            [&key.number, &name, &key.text(), &ttl, &note, &self.up];
        let row = self.client.query_one(statement, &params);
        let row = row.await.map_err(failed)?;
        Ok(match get(&row, 0)? {
            Some(true) => {
                Tried::Granted(token(get(&row, 1)?).ok_or_else(|| unexpected("the token"))?)
            }
            Some(false) => Tried::Busy,
            None => {
                let left: Option<i64> = get(&row, 2)?;
                let left = left.and_then(|left| u64::try_from(left).ok()).unwrap_or(0);
                Tried::HeldBack(Duration::from_millis(left.max(1)))
            }
        })
    }

    /// The locks and tokens of this session's holds that an operator took away.
    pub(crate) async fn broken(&self) -> Result<Vec<(Name, Token)>, Failure> {
        let statement = self.prepared(&self.broken, sql::BROKEN).await?;
        let rows = self.client.query(statement, &[]).await.map_err(failed)?;
        let broken = rows.iter().map(|row| {
            let lock = Name::new(get(row, 0)?)?;
            Ok((
                lock,
                token(get(row, 1)?).ok_or_else(|| unexpected("a token"))?,
            ))
        });
        broken.collect()
    }

    /// Asks one thing.
    pub(crate) async fn rows(
        &self,
        text: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Failure> {
        self.client.query_typed(text, params).await.map_err(failed)
    }

    /// Does several things.
    pub(crate) async fn batch(&self, text: &str) -> Result<(), Failure> {
        self.client.batch_execute(text).await.map_err(failed)
    }

    async fn prepared<'a>(
        &self,
        cell: &'a OnceCell<Statement>,
        text: &str,
    ) -> Result<&'a Statement, Failure> {
        let preparing = || self.client.prepare(text);
        cell.get_or_try_init(preparing).await.map_err(failed)
    }
}

#[async_trait]
impl advisory::Link for Link {
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    async fn attempt(&self, lock: &Name, claim: &Claim) -> Result<Tried, Failure> {
        let key = key(lock)?;
        let text = sql::attempt(key.space);
        let statement = self.prepared(&self.attempt, &text).await?;
        self.granted(statement, key, claim).await
    }

    /// Both statements are sent without a pause between.
    async fn wait(self: Arc<Self>, lock: Name) -> Result<bool, Failure> {
        let wait = sql::wait(key(&lock)?);
        let (unbound, waited) = tokio::join!(
            biased;
            self.batch("SET statement_timeout = 0"),
            self.batch(&wait)
        );
        unbound?;
        waited.map(|()| true)
    }

    async fn count(&self, lock: &Name, claim: &Claim) -> Result<Tried, Failure> {
        let key = key(lock)?;
        let bound = format!(
            "SET statement_timeout = {}",
            self.purpose.statement().as_millis()
        );
        let counting = async {
            let statement = self.prepared(&self.count, &sql::count()).await?;
            self.granted(statement, key, claim).await
        };
        let (bound, counted) = tokio::join!(biased; self.batch(&bound), counting);
        bound?;
        counted
    }

    async fn unlock(&self, lock: &Name) -> Result<bool, Failure> {
        let key = key(lock)?;
        let text = sql::unlock(key.space);
        let statement = self.prepared(&self.unlock, &text).await?;
        let row = self.client.query_one(statement, &[&key.number]).await;
        get(&row.map_err(failed)?, 0)
    }

    async fn beat(&self) -> Result<(), Failure> {
        let rows = self.rows("SELECT pg_backend_pid()", &[]).await?;
        let row = rows.first().ok_or_else(|| unexpected("its process"))?;
        if get::<i32>(row, 0)? == self.pid {
            Ok(())
        } else {
            Err(Failure::Refused(probe::pooled()))
        }
    }
}

fn key(lock: &Name) -> Result<Key> {
    Key::of_lock(lock).ok_or_else(|| Error::new(ErrorKind::Bug, "a lock that is no key"))
}

/// A token as the table has it.
pub(crate) fn token(number: Option<i64>) -> Option<Token> {
    Token::new(u64::try_from(number?).ok()?)
}

/// A column of an answer.
pub(crate) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    at: usize,
) -> Result<T, Failure> {
    row.try_get(at)
        .map_err(|error| Failure::Refused(unexpected("a column").because(error)))
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("pid", &self.pid)
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_of_a_holding_session_keeps_it_from_being_idle_for_a_second_at_most() {
        for (ttl, bound) in [(1, 250), (2, 500), (30, 1000), (3600, 1000)] {
            let purpose = Purpose::Hold(Duration::from_secs(ttl));
            assert_eq!(purpose.statement(), Duration::from_millis(bound));
        }
    }
}

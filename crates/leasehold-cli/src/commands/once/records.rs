//! Where records of what happened once are kept: the one place that knows which stores keep them.

use leasehold::{Error, ErrorKind, Name, StoreUrl};
use leasehold_fence::Mark;
use leasehold_once::{Begun, Finished, Once, Record, Success, postgres, sqlite};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::commands::{Context, database};
use crate::exit::Failure;

/// How many records whose time is over go with one that is written.
const SWEPT: u32 = 100;

/// The records at the store that was chosen.
pub(super) struct Records {
    kept: Kept,
    prefix: String,
    /// The store's URL without secrets.
    pub(super) shown: String,
}

enum Kept {
    Sqlite(Connection),
    /// A connection for each question: between the beginning of a job and its end one can break.
    Postgres(StoreUrl),
}

impl Records {
    /// The records at the store that was chosen, which isn't asked yet.
    pub(super) async fn of(context: &Context) -> Result<Self, Failure> {
        let (url, shown) = context.chosen()?;
        let mut bare = url.clone();
        let prefix = bare.take("prefix").unwrap_or_default();
        let kept = match url.scheme() {
            "sqlite" => database::sqlite(context, url, &bare)
                .await
                .map(Kept::Sqlite),
            "postgres" | "postgresql" => Ok(Kept::Postgres(bare)),
            other => Err(Failure::config(format!(
                "a store of {other}:// keeps no records of what happened once; sqlite:// does, and postgres:// for \
                 several hosts: name one of them with --store"
            ))),
        };
        let kept = kept.map_err(|failure| failure.during("connect").on(&shown))?;
        Ok(Self {
            kept,
            prefix,
            shown,
        })
    }

    /// A key as the store has it.
    pub(super) fn key(&self, key: &str) -> Result<Name, Failure> {
        Ok(Name::new(&format!("{}{key}", self.prefix))?)
    }

    /// The success, if it has happened and still counts.
    pub(super) async fn done(
        &self,
        context: &Context,
        once: &Once,
    ) -> Result<Option<Success>, Failure> {
        self.ask(
            context,
            |database| sqlite::done(database, once),
            async |client| postgres::done(client, once).await,
        )
        .await
    }

    /// Begins an attempt. Asked again after an answer that was lost, it finds itself running.
    pub(super) async fn begin(
        &self,
        context: &Context,
        once: &Once,
        mark: Mark,
    ) -> Result<Begun, Failure> {
        self.ask(
            context,
            |database| {
                let transaction = open(database)?;
                sqlite::prepare(&transaction)?;
                let begun = sqlite::begin(&transaction, once, mark)?;
                transaction.commit().map_err(unwritten)?;
                Ok(begun)
            },
            async |client| {
                postgres::prepare(client).await?;
                let transaction = client.transaction().await.map_err(unwritten)?;
                let begun = postgres::begin(&transaction, once, mark).await?;
                transaction.commit().await.map_err(unwritten)?;
                Ok(begun)
            },
        )
        .await
    }

    /// Records a success, if the lock is still held when it is about to be committed; `None` if it isn't. Makes room
    /// then; that it can't changes nothing.
    pub(super) async fn finish(
        &self,
        context: &Context,
        once: &Once,
        mark: Mark,
        is_held: impl Fn() -> bool,
    ) -> Result<Option<Finished>, Failure> {
        self.ask(
            context,
            |database| {
                let transaction = open(database)?;
                let finished = sqlite::finish(&transaction, once, mark, b"")?;
                if !is_held() {
                    return Ok(None);
                }
                transaction.commit().map_err(unwritten)?;
                let _ = sqlite::sweep(database, SWEPT);
                Ok(Some(finished))
            },
            async |client| {
                let transaction = client.transaction().await.map_err(unwritten)?;
                let finished = postgres::finish(&transaction, once, mark, b"").await?;
                if !is_held() {
                    return Ok(None);
                }
                transaction.commit().await.map_err(unwritten)?;
                let _ = postgres::sweep(client, SWEPT).await;
                Ok(Some(finished))
            },
        )
        .await
    }

    /// Says that an attempt failed, for `list` to show.
    pub(super) async fn fail(
        &self,
        context: &Context,
        key: &Name,
        mark: Mark,
    ) -> Result<bool, Failure> {
        self.ask(
            context,
            |database| sqlite::fail(database, key, mark),
            async |client| postgres::fail(client, key, mark).await,
        )
        .await
    }

    /// The records of all keys that begin with this, and their keys without the store's prefix.
    pub(super) async fn list(
        &self,
        context: &Context,
        prefix: &str,
    ) -> Result<Vec<Record>, Failure> {
        let all = format!("{}{prefix}", self.prefix);
        let mut found = self
            .ask(
                context,
                |database| sqlite::list(database, &all),
                async |client| postgres::list(client, &all).await,
            )
            .await?;
        for record in &mut found {
            record.key.drain(..self.prefix.len());
        }
        Ok(found)
    }

    /// Forgets a key; answers whether there was a record.
    pub(super) async fn forget(&self, context: &Context, key: &Name) -> Result<bool, Failure> {
        self.ask(
            context,
            |database| sqlite::forget(database, key),
            async |client| postgres::forget(client, key).await,
        )
        .await
    }

    /// Asks the store until it answers, for as long as an answer may take.
    async fn ask<T>(
        &self,
        context: &Context,
        sqlite: impl Fn(&Connection) -> leasehold::Result<T>,
        postgres: impl AsyncFn(&mut tokio_postgres::Client) -> leasehold::Result<T>,
    ) -> Result<T, Failure> {
        let question = async || match &self.kept {
            Kept::Sqlite(database) => sqlite(database),
            Kept::Postgres(url) => {
                let mut client = leasehold_postgres::connection(url.clone()).await?;
                postgres(&mut client).await
            }
        };
        // The key has been checked: what can't be right is in the store.
        let question = async || {
            question()
                .await
                .map_err(|error| Failure::connecting(&error))
        };
        let most = context.settings.connect_timeout.value;
        let answer = context.answer_within(most, question).await;
        answer.map_err(|failure| failure.on(&self.shown))
    }
}

fn open(database: &Connection) -> leasehold::Result<Transaction<'_>> {
    Transaction::new_unchecked(database, TransactionBehavior::Immediate).map_err(unwritten)
}

fn unwritten(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, "the record can't be written").because(error)
}

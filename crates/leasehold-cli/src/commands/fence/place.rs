//! Where a resource's mark is kept, by the store's URL: the one place that knows which stores have a fence.

use std::future::Future;

use leasehold::{Error, ErrorKind, Name, StoreUrl};
use leasehold_fence::file::FencedFile;
use leasehold_fence::{Checked, Mark, Seen, mysql, postgres, redis, sqlite};
use mysql_async::TxOpts;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::commands::{Context, database};
use crate::exit::Failure;
use crate::usage::is_path;

/// A resource, where its mark is kept.
pub(super) struct Place {
    kept: Kept,
    /// The store's URL without secrets, or the file.
    pub(super) shown: String,
}

/// The store, and the resource in it, prefix included.
enum Kept {
    File(FencedFile),
    Mysql(mysql_async::Conn, Name),
    Postgres(tokio_postgres::Client, Name),
    Sqlite(Connection, Name),
    Redis(::redis::aio::MultiplexedConnection, Name),
}

impl Place {
    /// The file of this path, or the resource of this name at the store that was chosen.
    pub(super) async fn of(context: &Context, resource: &str) -> Result<Self, Failure> {
        if is_path(resource) {
            return Ok(Self {
                kept: Kept::File(FencedFile::at(resource)?),
                shown: resource.to_owned(),
            });
        }
        let (url, shown) = context.chosen()?;
        let kept = connect(context, url, resource).await;
        Ok(Self {
            kept: kept.map_err(|failure| failure.during("connect").on(&shown))?,
            shown,
        })
    }

    pub(super) async fn check(
        &mut self,
        context: &Context,
        mark: Mark,
    ) -> Result<Checked, Failure> {
        let checked = match &mut self.kept {
            Kept::File(file) => return Ok(file.check(mark)?),
            Kept::Mysql(conn, name) => {
                answered(context, async {
                    let mut transaction = begin_mysql(conn).await?;
                    let checked = mysql::check(&mut transaction, name, mark).await?;
                    transaction.commit().await.map_err(unwritten)?;
                    Ok(checked)
                })
                .await
            }
            Kept::Postgres(client, name) => {
                answered(context, async {
                    let transaction = begin(client).await?;
                    let checked = postgres::check(&transaction, name, mark).await?;
                    transaction.commit().await.map_err(unwritten)?;
                    Ok(checked)
                })
                .await
            }
            Kept::Sqlite(database, name) => committed(database, |transaction| {
                sqlite::check(transaction, name, mark)
            }),
            Kept::Redis(connection, name) => {
                answered(context, redis::check(connection, name, mark)).await
            }
        };
        checked.map_err(|failure| failure.on(&self.shown))
    }

    pub(super) async fn seen(&mut self, context: &Context) -> Result<Seen, Failure> {
        let seen = match &mut self.kept {
            Kept::File(file) => return Ok(file.seen()?),
            Kept::Mysql(conn, name) => answered(context, mysql::seen(conn, name)).await,
            Kept::Postgres(client, name) => answered(context, postgres::seen(client, name)).await,
            Kept::Sqlite(database, name) => sqlite::seen(database, name).map_err(Failure::from),
            Kept::Redis(connection, name) => answered(context, redis::seen(connection, name)).await,
        };
        seen.map_err(|failure| failure.on(&self.shown))
    }

    pub(super) async fn advance(&mut self, context: &Context, epoch: u32) -> Result<Seen, Failure> {
        let seen = match &mut self.kept {
            Kept::File(file) => return Ok(file.advance(epoch)?),
            Kept::Mysql(conn, name) => {
                answered(context, async {
                    let mut transaction = begin_mysql(conn).await?;
                    let seen = mysql::advance(&mut transaction, name, epoch).await?;
                    transaction.commit().await.map_err(unwritten)?;
                    Ok(seen)
                })
                .await
            }
            Kept::Postgres(client, name) => {
                answered(context, async {
                    let transaction = begin(client).await?;
                    let seen = postgres::advance(&transaction, name, epoch).await?;
                    transaction.commit().await.map_err(unwritten)?;
                    Ok(seen)
                })
                .await
            }
            Kept::Sqlite(database, name) => committed(database, |transaction| {
                sqlite::advance(transaction, name, epoch)
            }),
            Kept::Redis(connection, name) => {
                answered(context, redis::advance(connection, name, epoch)).await
            }
        };
        seen.map_err(|failure| failure.on(&self.shown))
    }
}

async fn connect(context: &Context, url: StoreUrl, resource: &str) -> Result<Kept, Failure> {
    let mut bare = url.clone();
    let prefix = bare.take("prefix").unwrap_or_default();
    let name = Name::new(&format!("{prefix}{resource}"))?;
    match url.scheme() {
        "sqlite" => Ok(Kept::Sqlite(
            database::sqlite(context, url, &bare).await?,
            name,
        )),
        "mysql" | "mariadb" => {
            let connecting = async || {
                let connected = leasehold_mysql::connection(bare.clone()).await;
                connected.map_err(|error| Failure::connecting(&error))
            };
            Ok(Kept::Mysql(context.first_answer(connecting).await?, name))
        }
        "postgres" | "postgresql" => {
            let connecting = async || {
                let connected = leasehold_postgres::connection(bare.clone()).await;
                connected.map_err(|error| Failure::connecting(&error))
            };
            Ok(Kept::Postgres(
                context.first_answer(connecting).await?,
                name,
            ))
        }
        "redis" | "rediss" | "redis+unix" => {
            let connecting = async || {
                let connected = leasehold_redis::connection(bare.clone()).await;
                connected.map_err(|error| Failure::connecting(&error))
            };
            Ok(Kept::Redis(context.first_answer(connecting).await?, name))
        }
        other => Err(Failure::config(format!(
            "there is no fence at a store of {other}://; sqlite://, mysql://, mariadb://, postgres://, redis://, rediss:// \
             and redis+unix:// have one, and files do: name with --store where the resource is, which need not be where its lock is"
        ))),
    }
}

fn committed<T>(
    database: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> leasehold::Result<T>,
) -> Result<T, Failure> {
    let refused = |error: rusqlite::Error| {
        Failure::unavailable(format!("the mark can't be written: {error}"))
    };
    let transaction = database
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(refused)?;
    sqlite::prepare(&transaction)?;
    let done = work(&transaction)?;
    transaction.commit().map_err(refused)?;
    Ok(done)
}

async fn begin(
    client: &mut tokio_postgres::Client,
) -> leasehold::Result<tokio_postgres::Transaction<'_>> {
    postgres::prepare(client).await?;
    client.transaction().await.map_err(unwritten)
}

async fn begin_mysql(
    conn: &mut mysql_async::Conn,
) -> leasehold::Result<mysql_async::Transaction<'_>> {
    mysql::prepare(conn).await?;
    let begun = conn.start_transaction(TxOpts::default()).await;
    begun.map_err(unwritten)
}

/// With its causes: some drivers keep what the server said in them.
fn unwritten(error: impl std::error::Error) -> Error {
    let causes = std::iter::successors(error.source(), |error| error.source());
    let said = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
    Error::new(ErrorKind::Unavailable, "the mark can't be written").because(said)
}

async fn answered<T>(
    context: &Context,
    question: impl Future<Output = leasehold::Result<T>>,
) -> Result<T, Failure> {
    let most = context.settings.connect_timeout.value;
    match tokio::time::timeout(most, question).await {
        Ok(answer) => answer.map_err(Failure::from),
        Err(_) => Err(context.no_answer(most)),
    }
}

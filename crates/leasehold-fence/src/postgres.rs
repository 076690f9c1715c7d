//! A fence in a PostgreSQL database, for `tokio-postgres`.
//!
//! ```no_run
//! use leasehold_core::Name;
//! use leasehold_fence::{Checked, Mark, postgres};
//! # async fn example(mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! postgres::prepare(&client).await?;
//!
//! let (resource, mark): (Name, Mark) = ("stock".parse()?, "41".parse()?);
//! let transaction = client.transaction().await?;
//! match postgres::check(&transaction, &resource, mark).await? {
//!     Checked::Accepted => {
//!         transaction.execute("UPDATE stock SET count = count - 1", &[]).await?;
//!         transaction.commit().await?;
//!     }
//!     // Dropping the transaction rolls it back.
//!     Checked::Stale(stale) => return Err(stale.into()),
//! }
//! # Ok(())
//! # }
//! ```

use leasehold_core::{Error, Name, Result};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row, Statement, Transaction};

use crate::mark::{Checked, Mark, Seen};
use crate::on_postgres::{ADVANCE, CHECK, NO_TABLE, THERE, meaning, meaning_for_maker};
use crate::sql::{self, POSTGRES};

pub use crate::on_postgres::DURABLE;

/// Makes the table for the marks, unless it is there: then the role needs no right to make one.
///
/// # Errors
/// As [`check`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn prepare(client: &impl GenericClient) -> Result<()> {
    let is_there =
        async || Ok::<_, tokio_postgres::Error>(!client.query_typed(THERE, &[]).await?.is_empty());
    let prepare = async || {
        if is_there().await? {
            return Ok(());
        }
        let made = client.batch_execute(POSTGRES.table).await;
        // Somebody else made it in the same moment, which "if not exists" doesn't see.
        if made.is_err() && is_there().await.unwrap_or(false) {
            return Ok(());
        }
        made
    };
    prepare().await.map_err(|error| {
        let (kind, what) = meaning_for_maker(code(&error));
        let made = Error::new(kind, what).because(said(&error));
        made.during("prepare")
    })
}

/// Accepts the mark for this transaction, or says that it is stale: roll back then. Call it before anything is read
/// that the transaction's writes depend on; from here to the commit no other fenced transaction comes in between. One
/// round trip. The commit waits for the disk, also where `synchronous_commit` is off.
///
/// # Errors
/// `Unavailable` when the server can't answer, and above READ COMMITTED when it waited for another fenced transaction:
/// try the whole transaction again; `Unsupported` for a token above SQL's integers; `Unauthorized` when the role lacks a
/// right; `Invalid` without the table.
///
/// # Cancel safety
/// Dropped, the transaction can only be rolled back.
pub async fn check(transaction: &Transaction<'_>, resource: &Name, mark: Mark) -> Result<Checked> {
    check_by(None, transaction, resource, mark).await
}

/// The check, prepared on one connection, for whoever writes often: the server parses and plans it once, and not for
/// each write.
#[derive(Clone, Debug)]
pub struct Prepared(Statement);

impl Prepared {
    /// Makes the table as [`prepare`] does, and prepares the check on this connection.
    ///
    /// # Errors
    /// As [`check`].
    ///
    /// # Cancel safety
    /// Dropped, it may have taken effect.
    pub async fn on(client: &impl GenericClient) -> Result<Self> {
        prepare(client).await?;
        let prepared = client.prepare_typed(&CHECK, &TYPES).await;
        let prepared = prepared.map_err(|error| fault(error).during("prepare"))?;
        Ok(Self(prepared))
    }

    /// As [`check`], in a transaction of the connection that it was prepared on.
    ///
    /// # Errors
    /// As [`check`]; `Unavailable` on another connection.
    ///
    /// # Cancel safety
    /// Dropped, the transaction can only be rolled back.
    pub async fn check(
        &self,
        transaction: &Transaction<'_>,
        resource: &Name,
        mark: Mark,
    ) -> Result<Checked> {
        check_by(Some(&self.0), transaction, resource, mark).await
    }
}

const TYPES: [Type; 3] = [Type::TEXT, Type::INT8, Type::INT8];

async fn check_by(
    prepared: Option<&Statement>,
    transaction: &Transaction<'_>,
    resource: &Name,
    mark: Mark,
) -> Result<Checked> {
    let check = async || -> Result<Checked> {
        let (epoch, token) = sql::parameters(mark)?;
        let name = resource.as_str();
        let values: [&(dyn ToSql + Sync); 3] = [&name, &epoch, &token];
        let accepted = match prepared {
            Some(prepared) => transaction.query(prepared, &values).await,
            None => {
                let typed: Vec<_> = values.into_iter().zip(TYPES).collect();
                transaction.query_typed(&CHECK, &typed).await
            }
        };
        if accepted.map_err(fault)?.len() == 1 {
            return Ok(Checked::Accepted);
        }
        Ok(read(transaction, resource).await?.check(mark))
    };
    check()
        .await
        .map_err(|error| error.during("check").named(resource.as_str()))
}

/// The highest mark that the resource has seen; nothing where there is no table yet.
///
/// # Errors
/// As [`check`].
///
/// # Cancel safety
/// Safe.
pub async fn seen(client: &impl GenericClient, resource: &Name) -> Result<Seen> {
    let seen = match rows(client, resource).await {
        Err(error) if code(&error) == NO_TABLE => Ok(Seen::default()),
        Err(error) => Err(fault(error)),
        Ok(rows) => of(&rows),
    };
    seen.map_err(|error| error.during("show").named(resource.as_str()))
}

/// Begins an epoch: every write of an older one is stale once the transaction is committed. Answers what has been seen
/// afterwards, which is of a higher epoch where that has begun already; nothing is changed then, and nothing when it is
/// this one.
///
/// # Errors
/// As [`check`].
///
/// # Cancel safety
/// Dropped, the transaction can only be rolled back.
pub async fn advance(transaction: &Transaction<'_>, resource: &Name, epoch: u32) -> Result<Seen> {
    let advance = async || -> Result<Seen> {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [
            (&resource.as_str(), Type::TEXT),
            (&i64::from(epoch), Type::INT8),
        ];
        transaction
            .query_typed(&ADVANCE, &parameters)
            .await
            .map_err(fault)?;
        read(transaction, resource).await
    };
    advance()
        .await
        .map_err(|error| error.during("advance").named(resource.as_str()))
}

async fn read(client: &impl GenericClient, resource: &Name) -> Result<Seen> {
    of(&rows(client, resource).await.map_err(fault)?)
}

async fn rows(
    client: &impl GenericClient,
    resource: &Name,
) -> Result<Vec<Row>, tokio_postgres::Error> {
    client
        .query_typed(POSTGRES.seen, &[(&resource.as_str(), Type::TEXT)])
        .await
}

fn of(rows: &[Row]) -> Result<Seen> {
    let Some(row) = rows.first() else {
        return Ok(Seen::default());
    };
    let column = |at: usize| row.try_get(at).map_err(fault);
    sql::seen(column(0)?, column(1)?)
}

/// The code of an error of the server's; empty for any other.
fn code(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("", SqlState::code)
}

fn fault(error: tokio_postgres::Error) -> Error {
    let (kind, what) = meaning(code(&error));
    Error::new(kind, what).because(said(&error))
}

/// What the server said, or with its causes what went wrong on the way there: the error's own text has neither.
#[must_use]
pub fn said(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} ({})", said.message(), said.code().code());
    }
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

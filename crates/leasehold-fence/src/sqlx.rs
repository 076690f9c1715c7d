//! A fence in a PostgreSQL database, for `sqlx`.
//!
//! ```no_run
//! use leasehold_core::Name;
//! use leasehold_fence::{Checked, Mark, sqlx as fence};
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! fence::prepare(&mut *pool.acquire().await?).await?;
//!
//! let (resource, mark): (Name, Mark) = ("stock".parse()?, "41".parse()?);
//! let mut transaction = pool.begin().await?;
//! match fence::check(&mut transaction, &resource, mark).await? {
//!     Checked::Accepted => {
//!         sqlx::query("UPDATE stock SET count = count - 1").execute(&mut *transaction).await?;
//!         transaction.commit().await?;
//!     }
//!     // Dropping the transaction rolls it back.
//!     Checked::Stale(stale) => return Err(stale.into()),
//! }
//! # Ok(())
//! # }
//! ```

use std::pin::Pin;

use leasehold_core::{Error, Name, Result};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Executor as _, PgConnection, Postgres, Row as _, Transaction};

use crate::mark::{Checked, Mark, Seen};
use crate::on_postgres::{ADVANCE, CHECK, NO_TABLE, THERE, meaning, meaning_for_maker};
use crate::sql::{self, POSTGRES};

/// Makes the table for the marks, unless it is there: then the role needs no right to make one.
///
/// # Errors
/// As [`check`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn prepare(connection: &mut PgConnection) -> Result<()> {
    let prepare = async {
        if is_there(connection).await? {
            return Ok(());
        }
        let made = rows(connection, sqlx::query(POSTGRES.table)).await;
        // Somebody else made it in the same moment, which "if not exists" doesn't see.
        if made.is_err() && is_there(connection).await.unwrap_or(false) {
            return Ok(());
        }
        made.map(drop)
    };
    prepare.await.map_err(|error| {
        let (kind, what) = meaning_for_maker(&code(&error));
        let made = Error::new(kind, what).because(error);
        made.during("prepare")
    })
}

async fn is_there(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    Ok(!rows(connection, sqlx::query(THERE)).await?.is_empty())
}

/// Accepts the mark for this transaction, or says that it is stale: roll back then. Call it before anything is read
/// that the transaction's writes depend on; from here to the commit no other fenced transaction comes in between. One
/// round trip, once the connection knows the statement. The commit waits for the disk, also where `synchronous_commit` is
/// off.
///
/// # Errors
/// `Unavailable` when the server can't answer, and above READ COMMITTED when it waited for another fenced transaction:
/// try the whole transaction again; `Unsupported` for a token above SQL's integers; `Unauthorized` when the role lacks a
/// right; `Invalid` without the table.
///
/// # Cancel safety
/// Dropped, the transaction can only be rolled back.
pub async fn check(
    transaction: &mut Transaction<'_, Postgres>,
    resource: &Name,
    mark: Mark,
) -> Result<Checked> {
    let checked = async {
        let (epoch, token) = sql::parameters(mark)?;
        let check = sqlx::query(&CHECK).bind(resource.as_str());
        let accepted = rows(transaction, check.bind(epoch).bind(token)).await;
        if accepted.map_err(fault)?.len() == 1 {
            return Ok(Checked::Accepted);
        }
        Ok::<_, Error>(read(transaction, resource).await?.check(mark))
    };
    checked
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
pub async fn seen(connection: &mut PgConnection, resource: &Name) -> Result<Seen> {
    let seen = match columns(connection, resource).await {
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
pub async fn advance(
    transaction: &mut Transaction<'_, Postgres>,
    resource: &Name,
    epoch: u32,
) -> Result<Seen> {
    let advanced = async {
        let advance = sqlx::query(&ADVANCE).bind(resource.as_str());
        let begun = rows(transaction, advance.bind(i64::from(epoch))).await;
        begun.map_err(fault)?;
        read(transaction, resource).await
    };
    advanced
        .await
        .map_err(|error| error.during("advance").named(resource.as_str()))
}

async fn read(connection: &mut PgConnection, resource: &Name) -> Result<Seen> {
    of(&columns(connection, resource).await.map_err(fault)?)
}

type Asking<'a> = Pin<Box<dyn Future<Output = sqlx::Result<Vec<PgRow>>> + Send + 'a>>;

/// Asks. Boxed, as the compiler doesn't see otherwise that whatever awaits it can be sent.
fn rows<'a>(
    connection: &'a mut PgConnection,
    query: Query<'a, Postgres, PgArguments>,
) -> Asking<'a> {
    connection.fetch_all(query)
}

fn columns<'a>(connection: &'a mut PgConnection, resource: &'a Name) -> Asking<'a> {
    rows(
        connection,
        sqlx::query(POSTGRES.seen).bind(resource.as_str()),
    )
}

fn of(rows: &[PgRow]) -> Result<Seen> {
    let Some(row) = rows.first() else {
        return Ok(Seen::default());
    };
    let column = |at: usize| row.try_get(at).map_err(fault);
    sql::seen(column(0)?, column(1)?)
}

/// The code of an error of the server's; empty for any other.
fn code(error: &sqlx::Error) -> String {
    let code = error.as_database_error().and_then(|said| said.code());
    code.map(String::from).unwrap_or_default()
}

fn fault(error: sqlx::Error) -> Error {
    let (kind, what) = meaning(&code(&error));
    Error::new(kind, what).because(error)
}

//! Records in a PostgreSQL database, for `tokio-postgres`.
//!
//! ```no_run
//! use leasehold_fence::Pass;
//! use leasehold_once::{Begun, Once, postgres};
//! # async fn example(mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! postgres::prepare(&client).await?;
//!
//! let (charge, pass): (_, Pass) = (Once::new("charge/4711/2026-11".parse()?), "charges:41".parse()?);
//! let transaction = client.transaction().await?;
//! match postgres::begin(&transaction, &charge, &pass).await? {
//!     Begun::First => {
//!         transaction.execute("INSERT INTO invoices VALUES ('4711', 990)", &[]).await?;
//!         let _ = postgres::finish(&transaction, &charge, &pass, b"receipt 1").await?;
//!         transaction.commit().await?;
//!     }
//!     // Dropping the transaction rolls it back.
//!     Begun::Done(success) => println!("{:?}", success.result),
//!     Begun::Running(attempt) => return Err(attempt.to_string().into()),
//!     Begun::Stale(stale) => return Err(stale.into()),
//! }
//! # Ok(())
//! # }
//! ```

mod prepared;

use std::sync::LazyLock;

use leasehold_core::{Error, ErrorKind, Name, Result};
use leasehold_fence::Pass;
use leasehold_fence::postgres::{DURABLE, said};
use leasehold_fence::sql::parameters;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Statement, Transaction};

use crate::record::{Begun, Finished, Once, Record, Success};
use crate::row::{ROUNDS, Row, span, undecided};
use crate::sql::POSTGRES;

pub use prepared::Prepared;

/// Answers a row where the table is there.
const THERE: &str = "SELECT 1 WHERE to_regclass('leasehold_once') IS NOT NULL";

static BEGIN: LazyLock<String> = LazyLock::new(|| format!("{}\n{DURABLE}", POSTGRES.begin));
static FINISH: LazyLock<String> = LazyLock::new(|| format!("{}\n{DURABLE}", POSTGRES.finish));

const BEGIN_TYPES: [Type; 6] = [
    Type::TEXT,
    Type::TEXT,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::INT8,
];
const FINISH_TYPES: [Type; 6] = [
    Type::BYTEA,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::INT8,
    Type::INT8,
];

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);
type Values<'a> = [&'a (dyn ToSql + Sync); 6];

fn typed(values: Values<'_>, types: [Type; 6]) -> Vec<Parameter<'_>> {
    values.into_iter().zip(types).collect()
}

/// Makes the table for the records, unless it is there: then the role needs no right to make one.
///
/// # Errors
/// As [`begin`].
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
        // One transaction, so that nobody finds the table without its index.
        let both = format!("{};\n{}", POSTGRES.table, POSTGRES.index);
        let made = client.batch_execute(&both).await;
        // Somebody else made it in the same moment, which "if not exists" doesn't see.
        if made.is_err() && is_there().await.unwrap_or(false) {
            return Ok(());
        }
        made
    };
    match prepare().await {
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Err(Error::new(
            ErrorKind::Unauthorized,
            "the role may not make the table leasehold_once; let one that may run \
             `leasehold schema postgres once --role ROLE | psql` in this database",
        )
        .because(said(&error))
        .during("prepare")),
        made => made.map_err(|error| fault(error).during("prepare")),
    }
}

/// Begins an attempt, or says why not: roll back then. Call it before anything is read that the work depends on; from
/// here to the end of the transaction no other attempt comes in between, and one that asks waits. The commit waits for
/// the disk, also where `synchronous_commit` is off.
///
/// # Errors
/// `Unavailable` when the server can't answer, and above READ COMMITTED when it waited for another attempt: try the
/// whole transaction again; `Unsupported` for a token above SQL's integers; `Unauthorized` when the role lacks a right;
/// `Invalid` without the table, or with rows that leasehold never writes.
///
/// # Cancel safety
/// Dropped, the transaction can only be rolled back.
pub async fn begin(transaction: &Transaction<'_>, once: &Once, pass: &Pass) -> Result<Begun> {
    begin_by(None, transaction, once, pass).await
}

async fn begin_by(
    prepared: Option<&Statement>,
    transaction: &Transaction<'_>,
    once: &Once,
    pass: &Pass,
) -> Result<Begun> {
    let (key, lock) = (once.key().as_str(), pass.name().as_str());
    let begin = async || -> Result<Begun> {
        let (epoch, token) = parameters(pass.mark())?;
        let (kept, window) = (span(once.attempt_kept()), span(once.window()));
        let values: Values<'_> = [&key, &lock, &epoch, &token, &kept, &window];
        for _ in 0..ROUNDS {
            let first = match prepared {
                Some(prepared) => transaction.query(prepared, &values).await,
                None => {
                    transaction
                        .query_typed(&BEGIN, &typed(values, BEGIN_TYPES))
                        .await
                }
            };
            let first = first.map_err(fault)?;
            if first.len() == 1 {
                return Ok(Begun::First);
            }
            // What refused it may be over now, as time goes on between the two statements.
            if let Some(row) = read(transaction, key).await.map_err(fault)?
                && let Some(refusal) = columns(&row)?.refusal(once, pass)?
            {
                return Ok(refusal);
            }
        }
        Err(undecided())
    };
    begin()
        .await
        .map_err(|error| error.during("begin").named(key))
}

/// Stores the result of the attempt: it has happened once the transaction is committed. Unless it is recorded, roll
/// back.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, the transaction can only be rolled back.
pub async fn finish(
    transaction: &Transaction<'_>,
    once: &Once,
    pass: &Pass,
    result: &[u8],
) -> Result<Finished> {
    finish_by(None, transaction, once, pass, result).await
}

async fn finish_by(
    prepared: Option<&Statement>,
    transaction: &Transaction<'_>,
    once: &Once,
    pass: &Pass,
    result: &[u8],
) -> Result<Finished> {
    let (key, lock) = (once.key().as_str(), pass.name().as_str());
    let finish = async || -> Result<Finished> {
        let (epoch, token) = parameters(pass.mark())?;
        let kept = span(once.kept());
        let values: Values<'_> = [&result, &kept, &key, &lock, &epoch, &token];
        let recorded = match prepared {
            Some(prepared) => transaction.query(prepared, &values).await,
            None => {
                transaction
                    .query_typed(&FINISH, &typed(values, FINISH_TYPES))
                    .await
            }
        };
        if recorded.map_err(fault)?.len() == 1 {
            return Ok(Finished::Recorded);
        }
        match read(transaction, key).await.map_err(fault)? {
            Some(row) => columns(&row)?.unfinished(pass),
            None => Ok(Finished::NotBegun),
        }
    };
    finish()
        .await
        .map_err(|error| error.during("finish").named(key))
}

/// Says that the attempt failed, so that nobody takes it for one under way. A newer attempt doesn't need that; another
/// one of the same mark does. Answers whether this attempt was the newest, and running.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn fail(client: &impl GenericClient, key: &Name, pass: &Pass) -> Result<bool> {
    let fail = async || -> Result<bool> {
        let (epoch, token) = parameters(pass.mark())?;
        let statement = format!("{} RETURNING 1", POSTGRES.fail);
        let parameters: [Parameter<'_>; 4] = [
            (&key.as_str(), Type::TEXT),
            (&pass.name().as_str(), Type::TEXT),
            (&epoch, Type::INT8),
            (&token, Type::INT8),
        ];
        let failed = client.query_typed(&statement, &parameters).await;
        Ok(!failed.map_err(fault)?.is_empty())
    };
    fail()
        .await
        .map_err(|error| error.during("fail").named(key.as_str()))
}

/// The success, if it has happened and still counts; nothing where there is no table yet. For looking only: who is to
/// work asks [`begin`].
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Safe.
pub async fn done(
    client: &impl GenericClient,
    once: &Once,
    lock: &Name,
) -> Result<Option<Success>> {
    let key = once.key().as_str();
    let done = match read(client, key).await {
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
        Err(error) => Err(fault(error)),
        Ok(None) => Ok(None),
        Ok(Some(row)) => columns(&row).and_then(|row| row.success(once, lock)),
    };
    done.map_err(|error| error.during("look").named(key))
}

/// All records whose keys begin with this, in the order of their keys; none where there is no table yet.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Safe.
pub async fn list(client: &impl GenericClient, prefix: &str) -> Result<Vec<Record>> {
    let rows = client
        .query_typed(POSTGRES.list, &[(&prefix, Type::TEXT)])
        .await;
    let list = match rows {
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(Vec::new()),
        Err(error) => Err(fault(error)),
        Ok(rows) => rows.iter().map(|row| columns(row)?.record()).collect(),
    };
    list.map_err(|error| error.during("list"))
}

/// Forgets a key: the work may happen again, and an attempt that is at it can't store its result. Answers whether there
/// was a record.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn forget(client: &impl GenericClient, key: &Name) -> Result<bool> {
    let statement = format!("{} RETURNING 1", POSTGRES.forget);
    let forgotten = client
        .query_typed(&statement, &[(&key.as_str(), Type::TEXT)])
        .await;
    match forgotten {
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(false),
        Err(error) => Err(fault(error).during("forget").named(key.as_str())),
        Ok(rows) => Ok(!rows.is_empty()),
    }
}

/// Deletes records whose time is over, at most so many; answers how many. They count no more without that, too: it is
/// for the room, and for outside of the work's transaction.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn sweep(client: &impl GenericClient, most: u32) -> Result<usize> {
    let statement = format!("{} RETURNING 1", POSTGRES.sweep);
    let swept = client
        .query_typed(&statement, &[(&i64::from(most), Type::INT8)])
        .await;
    swept
        .map(|rows| rows.len())
        .map_err(|error| fault(error).during("sweep"))
}

async fn read(
    client: &impl GenericClient,
    key: &str,
) -> Result<Option<tokio_postgres::Row>, tokio_postgres::Error> {
    let rows = client
        .query_typed(POSTGRES.read, &[(&key, Type::TEXT)])
        .await?;
    Ok(rows.into_iter().next())
}

fn columns(row: &tokio_postgres::Row) -> Result<Row> {
    let read = || {
        Ok(Row {
            key: row.try_get(0)?,
            lock: row.try_get(1)?,
            epoch: row.try_get(2)?,
            token: row.try_get(3)?,
            state: row.try_get(4)?,
            started: row.try_get(5)?,
            ended: row.try_get(6)?,
            expires: row.try_get(7)?,
            now: row.try_get(8)?,
            result: row.try_get(9)?,
        })
    };
    read().map_err(fault)
}

fn fault(error: tokio_postgres::Error) -> Error {
    let (kind, what) = match error.code() {
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED) => (
            ErrorKind::Unavailable,
            "another attempt came before this one, whose transaction has to be tried again as a whole; at READ \
             COMMITTED it would have waited",
        ),
        Some(&SqlState::UNDEFINED_TABLE) => (
            ErrorKind::Invalid,
            "the database has no table leasehold_once; make it once with postgres::prepare, or by \
             `leasehold schema postgres once | psql`",
        ),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => (
            ErrorKind::Unauthorized,
            "the role lacks a right: it needs SELECT, INSERT, UPDATE and DELETE on the table leasehold_once, which \
             `leasehold schema postgres once --role ROLE | psql` grants",
        ),
        Some(&SqlState::CHECK_VIOLATION) => (
            ErrorKind::Invalid,
            "the table leasehold_once refuses the record",
        ),
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => (
            ErrorKind::Unavailable,
            "the server or the transaction is read-only",
        ),
        _ => (
            ErrorKind::Unavailable,
            "PostgreSQL gave no answer, or refused the statement",
        ),
    };
    Error::new(kind, what).because(said(&error))
}

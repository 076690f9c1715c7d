//! The caller's transaction, of one of the drivers.

use std::fmt;

use leasehold_core::advisory::Failure;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::types::Type;

#[cfg(feature = "sqlx")]
use crate::error::failed_in_sqlx;
use crate::error::{failed, unexpected};
use crate::link::get;

/// A transaction of the caller's: `&tokio_postgres::Transaction`, and with the feature `sqlx`
/// `&mut sqlx::Transaction<Postgres>`.
pub struct Caller<'a>(Driver<'a>);

enum Driver<'a> {
    Tokio(&'a tokio_postgres::Transaction<'a>),
    #[cfg(feature = "sqlx")]
    Sqlx(&'a mut sqlx::PgConnection),
}

impl<'a> From<&'a tokio_postgres::Transaction<'_>> for Caller<'a> {
    fn from(transaction: &'a tokio_postgres::Transaction<'_>) -> Self {
        Self(Driver::Tokio(transaction))
    }
}

#[cfg(feature = "sqlx")]
impl<'a> From<&'a mut sqlx::Transaction<'_, sqlx::Postgres>> for Caller<'a> {
    fn from(transaction: &'a mut sqlx::Transaction<'_, sqlx::Postgres>) -> Self {
        Self(Driver::Sqlx(transaction))
    }
}

/// What is asked by sqlx. Boxed, as the compiler doesn't see otherwise that whatever awaits it can be sent.
#[cfg(feature = "sqlx")]
mod by_sqlx {
    use std::pin::Pin;

    use sqlx::postgres::PgRow;
    use sqlx::{Executor as _, PgConnection, Result};

    type Asking<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

    pub(super) fn rows<'a>(
        connection: &'a mut PgConnection,
        text: &'a str,
    ) -> Asking<'a, Vec<PgRow>> {
        connection.fetch_all(sqlx::raw_sql(text))
    }

    pub(super) fn number<'a>(
        connection: &'a mut PgConnection,
        text: &'a str,
        parameter: &'a str,
    ) -> Asking<'a, Option<i64>> {
        // The text is another one for each key, and not to be kept.
        let query = sqlx::query_scalar(text).bind(parameter).persistent(false);
        Box::pin(query.fetch_optional(connection))
    }
}

impl Caller<'_> {
    /// The first row that statements without parameters answer with, as text.
    pub(super) async fn row(&mut self, text: &str) -> Result<Vec<Option<String>>, Failure> {
        let row = match &mut self.0 {
            Driver::Tokio(transaction) => {
                let messages = transaction.simple_query(text).await.map_err(failed)?;
                let mut rows = messages.iter().filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => Some(row),
                    _ => None,
                });
                rows.next().map(|row| {
                    let columns = 0..row.len();
                    columns.map(|at| row.get(at).map(str::to_owned)).collect()
                })
            }
            #[cfg(feature = "sqlx")]
            Driver::Sqlx(connection) => {
                use sqlx::Row as _;
                let rows = by_sqlx::rows(connection, text)
                    .await
                    .map_err(failed_in_sqlx)?;
                let row = rows.first().map(|row| {
                    let columns = 0..row.len();
                    columns
                        .map(|at| row.try_get_unchecked(at))
                        .collect::<Result<Vec<Option<String>>, _>>()
                });
                row.transpose().map_err(failed_in_sqlx)?
            }
        };
        row.ok_or_else(|| Failure::Refused(unexpected("a row")))
    }

    /// Does several things.
    pub(super) async fn batch(&mut self, text: &str) -> Result<(), Failure> {
        match &mut self.0 {
            Driver::Tokio(transaction) => transaction.batch_execute(text).await.map_err(failed)?,
            #[cfg(feature = "sqlx")]
            Driver::Sqlx(connection) => {
                by_sqlx::rows(connection, text)
                    .await
                    .map_err(failed_in_sqlx)?;
            }
        }
        Ok(())
    }

    /// The number that a statement with one parameter answers with; none where it has no row.
    pub(super) async fn number(
        &mut self,
        text: &str,
        parameter: &str,
    ) -> Result<Option<i64>, Failure> {
        match &mut self.0 {
            Driver::Tokio(transaction) => {
                let parameters = [(&parameter as _, Type::TEXT)];
                let rows = transaction
                    .query_typed(text, &parameters)
                    .await
                    .map_err(failed)?;
                rows.first().map(|row| get(row, 0)).transpose()
            }
            #[cfg(feature = "sqlx")]
            Driver::Sqlx(connection) => by_sqlx::number(connection, text, parameter)
                .await
                .map_err(failed_in_sqlx),
        }
    }
}

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

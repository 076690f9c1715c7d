//! The statements, prepared on one connection.

use leasehold_core::Result;
use leasehold_fence::Pass;
use tokio_postgres::{GenericClient, Statement, Transaction};

use super::{BEGIN, BEGIN_TYPES, FINISH, FINISH_TYPES, begin_by, fault, finish_by, prepare};
use crate::record::{Begun, Finished, Once};

/// Beginning and finishing, prepared on one connection, for whoever does both often: the server parses and plans them
/// once, and not for each key.
#[derive(Clone, Debug)]
pub struct Prepared {
    begin: Statement,
    finish: Statement,
}

impl Prepared {
    /// Makes the table as [`prepare`] does, and prepares the statements on this connection.
    ///
    /// # Errors
    /// As [`begin`](super::begin).
    ///
    /// # Cancel safety
    /// Dropped, it may have taken effect.
    pub async fn on(client: &impl GenericClient) -> Result<Self> {
        prepare(client).await?;
        let begin = client.prepare_typed(&BEGIN, &BEGIN_TYPES).await;
        let finish = client.prepare_typed(&FINISH, &FINISH_TYPES).await;
        Ok(Self {
            begin: begin.map_err(|error| fault(error).during("prepare"))?,
            finish: finish.map_err(|error| fault(error).during("prepare"))?,
        })
    }

    /// As [`begin`](super::begin), in a transaction of the connection that it was prepared on.
    ///
    /// # Errors
    /// As [`begin`](super::begin); `Unavailable` on another connection.
    ///
    /// # Cancel safety
    /// Dropped, the transaction can only be rolled back.
    pub async fn begin(
        &self,
        transaction: &Transaction<'_>,
        once: &Once,
        pass: &Pass,
    ) -> Result<Begun> {
        begin_by(Some(&self.begin), transaction, once, pass).await
    }

    /// As [`finish`](super::finish), in a transaction of the connection that it was prepared on.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    ///
    /// # Cancel safety
    /// Dropped, the transaction can only be rolled back.
    pub async fn finish(
        &self,
        transaction: &Transaction<'_>,
        once: &Once,
        pass: &Pass,
        result: &[u8],
    ) -> Result<Finished> {
        finish_by(Some(&self.finish), transaction, once, pass, result).await
    }
}

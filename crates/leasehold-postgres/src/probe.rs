//! Whether a pooler before the server gives each transaction a session of its own. Then a lock would stay in a session
//! that is somebody else's by then.

use std::time::Duration;

use leasehold_core::advisory::{Failure, within};
use leasehold_core::{Error, ErrorKind, Result, clock};

use crate::config::{Config, Place};
use crate::dial::{Dialled, dial};
use crate::error::failed;
use crate::link::get;

/// How long a statement may take. A pooler that has one session for everybody doesn't answer at all.
const PATIENCE: Duration = Duration::from_secs(2);

/// The error of a pooler.
pub(crate) fn pooled() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "a pooler before the server gives each transaction another session (transaction pooling), and a lock needs one \
         of its own; name the server itself, or a pool in session mode",
    )
}

/// Refuses such a pooler. Sets nothing, as that would stay in sessions of others. Answers a connection that is one's own.
pub(crate) async fn probe(config: &Config) -> Result<Dialled> {
    let mut last = None;
    for place in &config.places {
        match within(PATIENCE * 2, processes(config, place)).await {
            Ok((_, seen)) if is_pooled(&seen) => return Err(pooled()),
            Ok((first, _)) => return Ok(first),
            Err(failure) => {
                let error = Error::from(failure);
                // Of several errors the one that waiting doesn't cure says most.
                if last.as_ref().is_none_or(Error::is_retryable) {
                    last = Some(error);
                }
            }
        }
    }
    Err(last.unwrap_or_else(|| Error::new(ErrorKind::Bug, "no server was named")))
}

/// The server's processes that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// The first connection, before the second one's transaction.
    before: i32,
    /// The second, in its transaction.
    other: i32,
    /// The first again, meanwhile; none where there was no answer.
    meanwhile: Option<i32>,
    /// And when that is over, twice.
    after: [i32; 2],
}

fn is_pooled(seen: &Seen) -> bool {
    seen.other == seen.before
        || seen.meanwhile != Some(seen.before)
        || seen.after.iter().any(|pid| *pid != seen.before)
}

async fn processes(config: &Config, place: &Place) -> Result<(Dialled, Seen), Failure> {
    let (dialled, other) = tokio::try_join!(dial(config, place), dial(config, place))?;
    let (first, second) = (&dialled.client, other.client);
    let process = async |client: &tokio_postgres::Client| -> Result<i32, Failure> {
        let rows = client.query_typed("SELECT pg_backend_pid()", &[]);
        let rows = rows.await.map_err(failed)?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::Refused(crate::error::unexpected("its process")))?;
        get(row, 0)
    };
    let before = process(first).await?;
    second.batch_execute("BEGIN").await.map_err(failed)?;
    let other = process(&second).await?;
    let meanwhile = if other == before {
        None
    } else {
        clock::timeout(PATIENCE / 2, process(first))
            .await
            .transpose()?
    };
    second.batch_execute("ROLLBACK").await.map_err(failed)?;
    let after = [process(first).await?, process(first).await?];
    let seen = Seen {
        before,
        other,
        meanwhile,
        after,
    };
    Ok((dialled, seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sessions_that_stay_the_same_are_ones_own() {
        let own = Seen {
            before: 1,
            other: 2,
            meanwhile: Some(1),
            after: [1, 1],
        };
        assert!(!is_pooled(&own));
        for pooled in [
            Seen { other: 1, ..own },
            Seen {
                meanwhile: None,
                ..own
            },
            Seen {
                meanwhile: Some(3),
                ..own
            },
            Seen {
                after: [1, 2],
                ..own
            },
        ] {
            assert!(is_pooled(&pooled), "{pooled:?}");
        }
    }
}

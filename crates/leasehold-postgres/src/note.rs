//! What a row of the table says of a hold.

use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::{Error, Holder, Identity, Token};
use tokio_postgres::Row;

use crate::error::unexpected;

/// The text of a note.
pub(crate) fn text(identity: &Identity) -> String {
    // A struct of texts and numbers always has a JSON form.
    serde_json::to_string(identity).unwrap_or_default()
}

/// The hold of a row whose columns from `first` on are token, time of the grant, TTL and note. Only the server knows when
/// it last heard of its session, so it may end earlier than this says.
pub(crate) fn holder(row: &Row, first: usize) -> Result<Holder, Error> {
    let lacks = |_| unexpected("a hold's row");
    let number = |at: usize| -> Result<u64, Error> {
        let number: i64 = row.try_get(first + at).map_err(lacks)?;
        Ok(u64::try_from(number).unwrap_or(0))
    };
    let ttl = Duration::from_millis(number(2)?);
    let mut holder = Holder::new(Token::new(number(0)?), Some(ttl));
    holder.since = UNIX_EPOCH.checked_add(Duration::from_micros(number(1)?));
    let note: &str = row.try_get(first + 3).map_err(lacks)?;
    holder.identity = serde_json::from_str(note).ok();
    Ok(holder)
}

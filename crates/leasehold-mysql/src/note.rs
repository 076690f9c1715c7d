//! What a row of the table says of a hold.

use std::time::{Duration, UNIX_EPOCH};

use leasehold_core::{Holder, Identity, Result, Token};
use mysql_async::Row;

use crate::link::get;

/// The text of a note.
pub(crate) fn text(identity: &Identity) -> String {
    // A struct of texts and numbers always has a JSON form.
    serde_json::to_string(identity).unwrap_or_default()
}

/// The hold of a row whose columns from `first` on are token, time of the grant, TTL and note. Only the server knows when
/// it last heard of its session, so it may end earlier than this says.
pub(crate) fn holder(row: &Row, first: usize) -> Result<Holder> {
    let ttl = Duration::from_millis(get(row, first + 2)?);
    let mut holder = Holder::new(Token::new(get(row, first)?), Some(ttl));
    holder.since = UNIX_EPOCH.checked_add(Duration::from_micros(get(row, first + 1)?));
    let note: String = get(row, first + 3)?;
    holder.identity = serde_json::from_str(&note).ok();
    Ok(holder)
}

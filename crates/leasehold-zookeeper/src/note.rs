//! What the data of a place says of who has it. Clients of other makes don't look at it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{Holder, Identity, Token};
use serde::{Deserialize, Serialize};

use crate::wire::Stat;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    #[serde(flatten)]
    identity: Identity,
    /// When the place was made, in milliseconds since 1970.
    since_ms: u64,
    /// How long it lasts at most after its session's last beat.
    ttl_ms: u64,
}

impl Note {
    /// The text of a note, of a place that is made at `since`.
    pub(crate) fn text(identity: &Identity, since: SystemTime, ttl: Duration) -> Vec<u8> {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let note = Self {
            identity: identity.clone(),
            since_ms: millis(since),
            ttl_ms: millis(ttl),
        };
        // A struct of texts and numbers always has a JSON form.
        serde_json::to_vec(&note).unwrap_or_default()
    }
}

/// Who has this place; none where a client of another make has it.
pub(crate) fn identity(data: &[u8]) -> Option<Identity> {
    let note: Note = serde_json::from_slice(data).ok()?;
    Some(note.identity)
}

/// Who has this place, as shown to people. Only the leader knows when its session was renewed last, so it may end
/// earlier than this says.
pub(crate) fn holder(data: &[u8], stat: Stat) -> Holder {
    let mut holder = Holder::new(token(stat), None);
    if let Ok(note) = serde_json::from_slice::<Note>(data) {
        holder.expires_in = Some(Duration::from_millis(note.ttl_ms));
        holder.since = UNIX_EPOCH.checked_add(Duration::from_millis(note.since_ms));
        holder.identity = Some(note.identity);
    }
    holder
}

/// A grant's token: the change that made its node.
pub(crate) fn token(stat: Stat) -> Option<Token> {
    u64::try_from(stat.made).ok().and_then(Token::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let mut identity = (*Identity::of_this_process()).clone();
        identity.note = Some("nightly".into());
        let since = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let holder = holder(
            &Note::text(&identity, since, Duration::from_secs(30)),
            Stat { made: 7 },
        );
        assert_eq!(holder.identity, Some(identity));
        assert_eq!(holder.since, Some(since));
        assert_eq!(holder.expires_in, Some(Duration::from_secs(30)));
        assert_eq!(holder.token, Token::new(7));
    }

    #[test]
    fn another_clients_data_is_no_note() {
        for data in ["", "127.0.0.1", "{}", "[1]"] {
            let holder = holder(data.as_bytes(), Stat { made: 7 });
            assert_eq!((holder.identity, holder.since), (None, None));
        }
    }
}

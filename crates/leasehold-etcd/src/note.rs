//! What the value of a place says of who has it. Clients of other makes don't look at it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{Holder, Identity, Owner, Token};
use serde::{Deserialize, Serialize};

use crate::wire::KeyValue;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Whoever knows it may release the hold.
    owner: String,
    #[serde(flatten)]
    pub(crate) identity: Identity,
    /// When it was granted, in milliseconds since 1970; only where it was granted at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
}

impl Note {
    /// The text of a note, for a hold that begins at `since`.
    pub(crate) fn text(owner: Owner, identity: &Identity, since: Option<SystemTime>) -> Vec<u8> {
        let since_ms = since
            .and_then(|since| since.duration_since(UNIX_EPOCH).ok())
            .and_then(|since| u64::try_from(since.as_millis()).ok());
        let note = Self {
            owner: owner.to_hex(),
            identity: identity.clone(),
            since_ms,
        };
        // A struct of texts and numbers always has a JSON form.
        serde_json::to_vec(&note).unwrap_or_default()
    }

    /// The note on a place; none where a client of another make has it.
    pub(crate) fn of(kv: &KeyValue) -> Option<Self> {
        serde_json::from_slice(&kv.value).ok()
    }

    pub(crate) fn is_of(&self, owner: Owner) -> bool {
        self.owner == owner.to_hex()
    }
}

/// Who has this place, as shown to people.
pub(crate) fn holder(kv: &KeyValue) -> Holder {
    let token = u64::try_from(kv.create_revision).ok().and_then(Token::new);
    let mut holder = Holder::new(token, None);
    if let Some(note) = Note::of(kv) {
        holder.since = note
            .since_ms
            .map(|since| UNIX_EPOCH + Duration::from_millis(since));
        holder.identity = Some(note.identity);
    }
    holder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let owner = Owner::random().unwrap();
        let mut identity = (*Identity::of_this_process()).clone();
        identity.note = Some("nightly".into());
        let since = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let kv = KeyValue {
            value: Note::text(owner, &identity, Some(since)),
            create_revision: 7,
            ..KeyValue::default()
        };
        assert!(Note::of(&kv).unwrap().is_of(owner));
        assert!(!Note::of(&kv).unwrap().is_of(Owner::random().unwrap()));
        let holder = holder(&kv);
        assert_eq!(holder.identity, Some(identity));
        assert_eq!(holder.since, Some(since));
        assert_eq!(holder.token, Token::new(7));
    }

    #[test]
    fn another_clients_value_is_no_note() {
        for value in ["", "host:1234", "{}", "[1]"] {
            let kv = KeyValue {
                value: value.into(),
                create_revision: 7,
                ..KeyValue::default()
            };
            assert!(Note::of(&kv).is_none());
            assert_eq!(holder(&kv).identity, None);
        }
    }
}

//! What a key's value says of who holds the lock. Clients of other makes don't look at it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{Holder, Identity, Owner, Token};
use serde::{Deserialize, Serialize};

use crate::wire::Entry;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Whoever knows it may release the hold.
    owner: String,
    #[serde(flatten)]
    pub(crate) identity: Identity,
    /// When it was granted, in milliseconds since 1970.
    since_ms: u64,
    /// The token, where the key was written again since: then it isn't the index any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

impl Note {
    /// The note of a hold that begins at `since`.
    pub(crate) fn new(owner: Owner, identity: &Identity, since: SystemTime) -> Self {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            owner: owner.to_hex(),
            identity: identity.clone(),
            since_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            token: None,
        }
    }

    /// The note on a key; none where a client of another make has written it.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        serde_json::from_slice(&entry.value()).ok()
    }

    /// The same note on a key that is written again.
    pub(crate) fn with_token(self, token: u64) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    pub(crate) fn text(&self) -> Vec<u8> {
        // A struct of texts and numbers always has a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn is_of(&self, owner: Owner) -> bool {
        self.owner == owner.to_hex()
    }
}

/// The token of the hold on a key.
pub(crate) fn token(entry: &Entry) -> u64 {
    let written = Note::of(entry).and_then(|note| note.token);
    written.unwrap_or(entry.modify_index)
}

/// Who has this key, as shown to people.
pub(crate) fn holder(entry: &Entry) -> Holder {
    let mut holder = Holder::new(Token::new(token(entry)), None);
    if let Some(note) = Note::of(entry) {
        holder.since = Some(UNIX_EPOCH + Duration::from_millis(note.since_ms));
        holder.identity = Some(note.identity);
    }
    holder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::FLAGS;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let owner = Owner::random().unwrap();
        let mut identity = (*Identity::of_this_process()).clone();
        identity.note = Some("nightly".into());
        let since = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let note = Note::new(owner, &identity, since);
        let entry = Entry::of("x/.lock", FLAGS, "s", 7, &note.text());
        let read = Note::of(&entry).unwrap();
        assert!(read.is_of(owner) && !read.is_of(Owner::random().unwrap()));
        let seen = holder(&entry);
        assert_eq!(seen.identity, Some(identity));
        assert_eq!(seen.since, Some(since));
        assert_eq!(seen.token, Token::new(7));
        let again = Entry::of("x/.lock", FLAGS, "s", 9, &read.with_token(7).text());
        assert_eq!(holder(&again).token, Token::new(7));
    }

    #[test]
    fn another_clients_value_is_no_note() {
        for value in ["", "host:1234", "{}", "[1]"] {
            let entry = Entry::of("x/.lock", FLAGS, "s", 7, value.as_bytes());
            assert!(Note::of(&entry).is_none());
            assert_eq!(holder(&entry).identity, None);
            assert_eq!(token(&entry), 7);
        }
    }
}

//! What goes to Consul and what comes back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// A key with all that belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Entry {
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) flags: u64,
    /// In base64; none where it is empty or wasn't asked for.
    #[serde(default)]
    value: Option<String>,
    /// The session that has it locked.
    #[serde(default)]
    session: Option<String>,
    pub(crate) modify_index: u64,
}

impl Entry {
    /// The session that has it locked.
    pub(crate) fn session(&self) -> Option<&str> {
        self.session
            .as_deref()
            .filter(|session| !session.is_empty())
    }

    pub(crate) fn value(&self) -> Vec<u8> {
        let value = self.value.as_deref().unwrap_or_default();
        // What isn't base64 isn't ours.
        STANDARD.decode(value).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn of(key: &str, flags: u64, session: &str, index: u64, value: &[u8]) -> Self {
        Self {
            key: key.into(),
            flags,
            value: Some(STANDARD.encode(value)),
            session: Some(session.into()),
            modify_index: index,
        }
    }
}

/// One step of a transaction.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Op<'a> {
    #[serde(rename = "KV")]
    kv: Step<'a>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Step<'a> {
    verb: &'static str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

impl<'a> Op<'a> {
    fn new(verb: &'static str, key: &'a str) -> Self {
        Self {
            kv: Step {
                verb,
                key,
                value: None,
                flags: None,
                index: None,
                session: None,
            },
        }
    }

    /// There is no such key.
    pub(crate) fn absent(key: &'a str) -> Self {
        Self::new("check-not-exists", key)
    }

    /// The key was last modified at `index`.
    pub(crate) fn unchanged(key: &'a str, index: u64) -> Self {
        let mut op = Self::new("check-index", key);
        op.kv.index = Some(index);
        op
    }

    /// The session has the key locked.
    pub(crate) fn is_of(key: &'a str, session: &'a str) -> Self {
        let mut op = Self::new("check-session", key);
        op.kv.session = Some(session);
        op
    }

    pub(crate) fn get(key: &'a str) -> Self {
        Self::new("get", key)
    }

    fn with(verb: &'static str, key: &'a str, session: &'a str, flags: u64, value: &[u8]) -> Self {
        let mut op = Self::new(verb, key);
        op.kv.session = Some(session);
        op.kv.flags = Some(flags);
        op.kv.value = Some(STANDARD.encode(value));
        op
    }

    /// Locks the key for the session, which must not be another's.
    pub(crate) fn lock(key: &'a str, session: &'a str, flags: u64, value: &[u8]) -> Self {
        Self::with("lock", key, session, flags, value)
    }

    /// Takes the lock from the session.
    pub(crate) fn unlock(key: &'a str, session: &'a str, flags: u64, value: &[u8]) -> Self {
        Self::with("unlock", key, session, flags, value)
    }

    /// Deletes the key, which must have been modified last at `index`.
    pub(crate) fn delete(key: &'a str, index: u64) -> Self {
        let mut op = Self::new("delete-cas", key);
        op.kv.index = Some(index);
        op
    }
}

/// What a transaction came to. Nothing of it was done where there are errors.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TxnAnswer {
    results: Option<Vec<TxnResult>>,
    errors: Option<Vec<TxnError>>,
}

#[derive(Debug, Deserialize)]
struct TxnResult {
    #[serde(rename = "KV")]
    kv: Option<Entry>,
}

/// Why a step was refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TxnError {
    pub(crate) op_index: usize,
    pub(crate) what: String,
}

impl TxnAnswer {
    pub(crate) fn errors(&self) -> &[TxnError] {
        self.errors.as_deref().unwrap_or_default()
    }

    /// The keys that its steps answered.
    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        let results = self.results.iter().flatten();
        results.filter_map(|result| result.kv.as_ref())
    }

    /// The key that its last step answered.
    pub(crate) fn last(&self) -> Option<&Entry> {
        self.entries().next_back()
    }
}

/// A session to be made.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NewSession {
    pub(crate) name: &'static str,
    #[serde(rename = "TTL")]
    pub(crate) ttl: String,
    pub(crate) lock_delay: String,
    pub(crate) behavior: &'static str,
    /// The node that it hangs on; none for the agent's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// None: a check that fails would end the session before its TTL.
    pub(crate) node_checks: [&'static str; 0],
}

/// A session that was made.
#[derive(Debug, Deserialize)]
pub(crate) struct MadeSession {
    #[serde(rename = "ID")]
    pub(crate) id: String,
}

/// Who offers a service.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Service {
    pub(crate) node: String,
}

/// A session as it is.
#[derive(Debug, Deserialize)]
pub(crate) struct SessionInfo {
    #[serde(rename = "TTL", default)]
    pub(crate) ttl: String,
}

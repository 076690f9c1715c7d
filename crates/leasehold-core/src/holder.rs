//! What others see of a holder.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::claim::Token;
use crate::name::Name;

/// Who holds a lock or waits for it, as shown to people. Never arguments, never the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The host's name.
    pub host: String,
    /// The user's name, or its number where it has none.
    pub user: String,
    /// The process.
    pub pid: u32,
    /// The program's file name without its folder.
    pub program: String,
    /// Free text of the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 200;

impl Identity {
    /// This process.
    #[must_use]
    pub fn of_this_process() -> Arc<Self> {
        static THIS: OnceLock<Arc<Identity>> = OnceLock::new();
        let this = THIS.get_or_init(|| {
            Arc::new(Self {
                host: rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned(),
                user: user(),
                pid: std::process::id(),
                program: program(),
                note: None,
            })
        });
        this.clone()
    }
}

fn program() -> String {
    std::env::current_exe()
        .ok()
        .as_deref()
        .and_then(std::path::Path::file_name)
        .map_or_else(|| "?".into(), |name| name.to_string_lossy().into_owned())
}

/// The effective user's name from the password file; reading it needs no foreign function.
fn user() -> String {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let name = std::fs::read_to_string("/etc/passwd")
        .ok()
        .and_then(|file| {
            file.lines().find_map(|line| {
                let mut fields = line.split(':');
                let name = fields.next()?;
                (fields.nth(1) == Some(uid.as_str())).then(|| name.to_owned())
            })
        });
    name.unwrap_or(uid)
}

/// A hold as the store shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The token of the grant; `None` where a client of another make holds.
    pub token: Option<Token>,
    /// Who holds; `None` where a client of another make holds.
    pub identity: Option<Identity>,
    /// The wall clock's time of the grant.
    pub since: Option<SystemTime>,
    /// How much longer the hold lasts unless it is renewed.
    pub expires_in: Option<Duration>,
}

impl Holder {
    /// A holder of whom only this is known; the fields can be set.
    #[must_use]
    pub fn new(token: Option<Token>, expires_in: Option<Duration>) -> Self {
        Self {
            token,
            identity: None,
            since: None,
            expires_in,
        }
    }
}

/// One lock as [`Client::inspect`](crate::Client::inspect) sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The lock's name.
    pub name: Name,
    /// Who holds it; `None` when it is free.
    pub holder: Option<Holder>,
    /// Who waits, in the order of service where the store has one; `None` where it doesn't say who, as of clients of another
    /// make.
    pub waiters: Vec<Option<Identity>>,
    /// The newest token granted, kept when the lock is free; `None` before the first grant and where the
    /// store doesn't keep it.
    pub last_token: Option<Token>,
    /// What a person is to know of the store besides, each a sentence: a node that has no vote, for example.
    pub remarks: Vec<String>,
}

impl Inspection {
    /// A free lock that nobody waits for; the fields can be set.
    #[must_use]
    pub fn free(name: Name) -> Self {
        Self {
            name,
            holder: None,
            waiters: Vec::new(),
            last_token: None,
            remarks: Vec::new(),
        }
    }
}

//! Locks and holders for people and as JSON.

use std::time::{Duration, SystemTime};

use leasehold::{Holder, Identity, Inspection};
use leasehold_core::clock;
use serde::Serialize;

use crate::duration;
use crate::printer::SCHEMA;

/// A time as JSON has it: RFC 3339, UTC, milliseconds.
pub(crate) fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// Rows under a head, in columns.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> String {
    let rows: Vec<[String; N]> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Text of others, made harmless to a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            // Bidirectional overrides can make a line read as another.
            let harmful =
                c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            let escaped = harmful.then(|| c.escape_default());
            escaped.into_iter().flatten().chain((!harmful).then_some(c))
        })
        .collect()
}

#[derive(Debug, Serialize)]
pub(crate) struct HolderJson {
    token: Option<String>,
    #[serde(flatten)]
    identity: IdentityJson,
    since: Option<String>,
    expires_in_ms: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
struct IdentityJson {
    host: Option<String>,
    user: Option<String>,
    pid: Option<u32>,
    program: Option<String>,
    note: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LockJson<'a> {
    schema: u8,
    name: &'a str,
    store: &'a str,
    held: bool,
    holder: Option<HolderJson>,
    waiters: Vec<IdentityJson>,
    last_token: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    remarks: &'a [String],
}

impl From<&Holder> for HolderJson {
    fn from(holder: &Holder) -> Self {
        Self {
            token: holder.token.map(|token| token.to_string()),
            identity: holder.identity.as_ref().into(),
            since: holder.since.map(time),
            expires_in_ms: holder.expires_in.map(millis),
        }
    }
}

impl From<Option<&Identity>> for IdentityJson {
    fn from(identity: Option<&Identity>) -> Self {
        identity.map_or_else(Self::default, |identity| Self {
            host: Some(identity.host.clone()),
            user: Some(identity.user.clone()),
            pid: Some(identity.pid),
            program: Some(identity.program.clone()),
            note: identity.note.clone(),
        })
    }
}

impl<'a> LockJson<'a> {
    pub(crate) fn new(inspection: &'a Inspection, store: &'a str) -> Self {
        Self {
            schema: SCHEMA,
            name: inspection.name.as_str(),
            store,
            held: inspection.holder.is_some(),
            holder: inspection.holder.as_ref().map(HolderJson::from),
            waiters: inspection
                .waiters
                .iter()
                .map(|waiter| waiter.as_ref().into())
                .collect(),
            last_token: inspection.last_token.map(|token| token.to_string()),
            remarks: &inspection.remarks,
        }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `root@host (rsync, pid 41)`.
pub(crate) fn who(identity: Option<&Identity>) -> String {
    match identity {
        Some(Identity {
            host,
            user,
            pid,
            program,
            ..
        }) => clean(&format!("{user}@{host} ({program}, pid {pid})")),
        None => {
            "somebody who has left no note: a client of another make, or one that has just got it"
                .into()
        }
    }
}

/// Who waits. Not every store says, and not of every client.
pub(crate) fn waiter(identity: Option<&Identity>) -> String {
    match identity {
        Some(_) => who(identity),
        None => "somebody; the store doesn't say who".into(),
    }
}

/// `since 2026-01-01T00:00:00Z (12s)`; nothing where it isn't known.
pub(crate) fn since(holder: &Holder) -> Option<String> {
    let since = holder.since?;
    let ago = clock::wall().duration_since(since).unwrap_or_default();
    Some(format!(
        "since {} ({})",
        humantime::format_rfc3339_seconds(since),
        duration::show(ago)
    ))
}

/// `for 18s more unless renewed`.
pub(crate) fn expires(holder: &Holder) -> Option<String> {
    let left = holder.expires_in?;
    Some(format!("for {} more unless renewed", duration::show(left)))
}

/// Everything about a holder in one phrase.
pub(crate) fn holder(holder: &Holder) -> String {
    let mut text = format!("held by {}", who(holder.identity.as_ref()));
    if let Some(since) = since(holder) {
        text = format!("{text} {since}");
    }
    if let Some(expires) = expires(holder) {
        text = format!("{text}, {expires}");
    }
    if let Some(note) = note(holder) {
        text = format!("{text}, note \"{note}\"");
    }
    text
}

pub(crate) fn note(holder: &Holder) -> Option<String> {
    holder.identity.as_ref()?.note.as_deref().map(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holders_text_can_not_drive_the_terminal() {
        let identity = Identity {
            host: "h\u{1b}[2J".into(),
            user: "u\r\n".into(),
            pid: 7,
            program: "p\u{202e}".into(),
            note: Some("a\u{7}b\u{9b}ü".into()),
        };
        let mut held = Holder::new(None, Some(Duration::from_secs(5)));
        held.identity = Some(identity);
        assert_eq!(
            holder(&held),
            "held by u\\r\\n@h\\u{1b}[2J (p\\u{202e}, pid 7), for 5s more unless renewed, note \"a\\u{7}b\\u{9b}ü\""
        );
    }

    #[test]
    fn a_waiter_that_the_store_does_not_name_is_not_said_to_be_of_another_make() {
        assert_eq!(waiter(None), "somebody; the store doesn't say who");
    }

    #[test]
    fn a_holder_without_a_note_is_not_named() {
        assert_eq!(
            holder(&Holder::new(None, None)),
            "held by somebody who has left no note: a client of another make, or one that has just got it"
        );
        let json = serde_json::to_value(HolderJson::from(&Holder::new(None, None))).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"token": null, "host": null, "user": null, "pid": null, "program": null,
                "note": null, "since": null, "expires_in_ms": null})
        );
    }
}

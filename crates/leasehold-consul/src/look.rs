//! What operators see and do.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::backend::{Broken, Inspection};
use leasehold_core::{Holder, Name, Result, Token};

use crate::api::STEPS_MAX;
use crate::attempt;
use crate::backend::Shared;
use crate::ending;
use crate::keys;
use crate::note;
use crate::wire::{Entry, Op, SessionInfo};

/// Who holds a lock. Consul knows of no waiters.
pub(crate) async fn inspect(shared: &Shared, name: &Name) -> Result<Inspection> {
    let mut inspection = Inspection::free(name.clone());
    if let Some(entry) = held(shared, &keys::key(name)).await? {
        inspection.holder = Some(holder(shared, &entry).await?);
    }
    Ok(inspection)
}

/// All locks held now whose name begins with `prefix`.
pub(crate) async fn list(shared: &Shared, prefix: &str) -> Result<Vec<Inspection>> {
    let (link, patience) = (shared.link(), shared.patience());
    let mut keys = link.keys(prefix, patience).await?;
    keys.retain(|key| keys::lock_of(key).is_some_and(|name| name.as_str().starts_with(prefix)));
    let mut entries = Vec::new();
    for some in keys.chunks(STEPS_MAX) {
        let ops: Vec<Op<'_>> = some.iter().map(|key| Op::get(key)).collect();
        let answer = link.look(&ops, patience).await?;
        if answer.errors().is_empty() {
            entries.extend(answer.entries().cloned());
            continue;
        }
        // One of them is gone since, and then none is answered.
        for key in some {
            entries.extend(link.entry(key, patience).await?);
        }
    }
    let mut ends = HashMap::new();
    let mut held = Vec::new();
    for entry in entries {
        let (Some(name), Some(session)) = (keys::lock_of(&entry.key), entry.session()) else {
            continue;
        };
        if attempt::check(&entry).is_err() {
            continue;
        }
        if !ends.contains_key(session) {
            let info = link.session(session, patience).await?;
            ends.insert(session.to_owned(), info.as_ref().and_then(ttl));
        }
        let mut holder = note::holder(&entry);
        holder.expires_in = ends.get(session).copied().flatten();
        let mut inspection = Inspection::free(name);
        inspection.holder = Some(holder);
        held.push(inspection);
    }
    held.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(held)
}

/// Deletes the holder's key; with `token`, only where that is the hold's.
pub(crate) async fn break_hold(
    shared: &Shared,
    name: &Name,
    token: Option<Token>,
) -> Result<Broken> {
    let key = keys::key(name);
    loop {
        let Some(entry) = held(shared, &key).await? else {
            return Ok(Broken::Free);
        };
        let holder = holder(shared, &entry).await?;
        if token.is_some() && token != holder.token {
            return Ok(Broken::OtherToken(holder));
        }
        if ending::delete(shared.link(), &key, entry.modify_index, shared.patience()).await? {
            return Ok(Broken::Ended(holder));
        }
        // It was changed meanwhile: look who holds now.
    }
}

/// A lock's key, where it is held.
async fn held(shared: &Shared, key: &str) -> Result<Option<Entry>> {
    let Some(entry) = shared.link().entry(key, shared.patience()).await? else {
        return Ok(None);
    };
    attempt::check(&entry)?;
    Ok(entry.session().is_some().then_some(entry))
}

/// A holder with what its session is renewed for.
async fn holder(shared: &Shared, entry: &Entry) -> Result<Holder> {
    let mut holder = note::holder(entry);
    if let Some(session) = entry.session() {
        let info = shared.link().session(session, shared.patience()).await?;
        holder.expires_in = info.as_ref().and_then(ttl);
    }
    Ok(holder)
}

/// The TTL of a session; none where it has none.
pub(crate) fn ttl(session: &SessionInfo) -> Option<Duration> {
    duration(&session.ttl).filter(|ttl| !ttl.is_zero())
}

/// Reads a duration as Consul writes it, `1h30m0.5s` for example.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (digits, after) = rest.split_at(number);
        let unit = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        let part = digits.parse::<f64>().ok()? * seconds;
        sum = sum.checked_add(Duration::try_from_secs_f64(part).ok()?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [
            ("10s", 10_000),
            ("0s", 0),
            ("500ms", 500),
            ("1m0s", 60_000),
            ("24h0m0s", 86_400_000),
            ("1m0.5s", 60_500),
        ] {
            assert_eq!(
                duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for wrong in ["", "10", "s", "x", "1d", "1..2s", "-1s"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }
}

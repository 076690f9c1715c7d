//! How a place ends: its key deleted, or kept for a while by time alone.
//!
//! A deletion names the index that the key was modified at, so one that lands late harms nothing.

use std::time::Duration;

use leasehold_core::Name;

use crate::error::{Failure, unauthorized, unexpected};
use crate::keys::{self, FLAGS};
use crate::link::Link;
use crate::note::Note;
use crate::session::{Session, new_session};
use crate::wire::{Entry, Op, TxnAnswer};

/// How often others may write a key while it is being deleted.
const ROUNDS: u32 = 8;

/// Deletes a place's key. Answers whether it was there. A try without an answer may still make it anew.
pub(crate) async fn end(
    link: &Link,
    session: &Session,
    name: &Name,
    patience: Duration,
) -> Result<bool, Failure> {
    let Some(id) = session.live() else {
        // It let go of its keys when it ended.
        return Ok(false);
    };
    let what = session.place(name, |place| (place.made, place.unanswered));
    let (made, unanswered) = what.unwrap_or_default();
    let key = keys::key(name);
    match made {
        Some(made) if delete(link, &key, made.index, patience).await? => return Ok(true),
        None if unanswered == 0 => return Ok(false),
        _ => {}
    }
    // A try landed that had no answer, or somebody wrote to the key.
    for _ in 0..ROUNDS {
        let entry = link.entry(&key, patience).await?;
        let Some(entry) = entry.filter(|entry| entry.session() == Some(&*id)) else {
            return Ok(false);
        };
        if delete(link, &key, entry.modify_index, patience).await? {
            return Ok(true);
        }
    }
    Err(Failure::Refused(unexpected("an end of the key's changes")))
}

/// Deletes a key that was modified last at `index`. Answers whether it was.
pub(crate) async fn delete(
    link: &Link,
    key: &str,
    index: u64,
    patience: Duration,
) -> Result<bool, Failure> {
    // The comparison that a deletion makes itself takes a key that isn't there for deleted.
    let ops = [Op::unchanged(key, index), Op::delete(key, index)];
    done(&link.txn(&ops, patience).await?)
}

/// Has a hold last `ttl` more, by time alone: hangs it on a session of its own. Answers when its key was modified by
/// that, or none where the session `from` didn't have it.
pub(crate) async fn keep(
    link: &Link,
    key: &str,
    from: &str,
    note: &Note,
    ttl: Duration,
    patience: Duration,
) -> Result<Option<u64>, Failure> {
    // It isn't renewed, so its end is no failure that others would have to wait for.
    let new = new_session(ttl, Duration::ZERO);
    let to = link.create_session(new, patience).await?;
    let kept = rehang(link, key, from, &to, note, patience).await?;
    if kept.is_none() {
        // Left, it would end by itself.
        let _ = link.destroy_session(&to, patience).await;
    }
    Ok(kept)
}

/// Hangs a key on another session, in one step. Answers when it was modified by that, or none where the session
/// `from` didn't have it.
pub(crate) async fn rehang(
    link: &Link,
    key: &str,
    from: &str,
    to: &str,
    note: &Note,
    patience: Duration,
) -> Result<Option<u64>, Failure> {
    let text = note.text();
    let ops = [
        Op::is_of(key, from),
        Op::unlock(key, from, FLAGS, &text),
        Op::lock(key, to, FLAGS, &text),
    ];
    let answer = link.txn(&ops, patience).await?;
    if !done(&answer)? {
        return Ok(None);
    }
    let locked: Option<&Entry> = answer.last();
    let index = locked.map(|entry| entry.modify_index);
    index
        .map(Some)
        .ok_or_else(|| Failure::Refused(unexpected("the key")))
}

/// Whether a transaction was done; false where a comparison failed.
fn done(answer: &TxnAnswer) -> Result<bool, Failure> {
    let denied = answer
        .errors()
        .iter()
        .find(|error| error.what.starts_with("Permission denied"));
    match denied {
        Some(error) => Err(Failure::Refused(unauthorized(&error.what))),
        None => Ok(answer.errors().is_empty()),
    }
}

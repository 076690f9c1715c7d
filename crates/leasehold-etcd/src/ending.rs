//! How a place ends: deleted, so that nothing brings it back, or kept for a while by time alone.

use std::time::Duration;

use leasehold_core::Name;

use crate::error::{Failure, unexpected};
use crate::keys;
use crate::link::Link;
use crate::session::{Lease, Place, Session, seconds};
use crate::wire::{
    Compare, LeaseGrantRequest, LeaseRevokeRequest, Op, OpAnswer, TxnRequest, TxnResponse,
};

/// How often the canary may have been written by others meanwhile.
const ROUNDS: u32 = 8;

/// Deletes a place's key. After tries without an answer, first voids them by writing the canary anew: both at once.
/// Answers whether the key was there. It names what it deletes by its revision or by the canary's, so a request that
/// lands late harms nothing.
pub(crate) async fn end(
    link: &Link,
    session: &Session,
    name: &Name,
    patience: Duration,
) -> Result<bool, Failure> {
    for _ in 0..ROUNDS {
        let Some(lease) = session.live() else {
            // Its keys ended with it.
            return Ok(false);
        };
        let next = session.place(name, |place| next(name, place, &lease));
        let void = match next.unwrap_or(Next::Nothing) {
            Next::Nothing => return Ok(false),
            Next::Delete(delete) => return Ok(link.call(delete, patience).await?.succeeded),
            Next::Void(void) => void,
        };
        match link.call(void, patience).await {
            Ok(answer) => match taken(session, &answer)? {
                Voided::Done { deleted, .. } => return Ok(deleted),
                Voided::Over => return Ok(false),
                Voided::Again { .. } => {}
            },
            Err(Failure::LeaseGone) => return Ok(false),
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Refused(unexpected(
        "an end of its canary's changes",
    )))
}

/// Has a hold last `keep` more, by time alone: hangs it on a lease of its own. Answers whether it was there.
pub(crate) async fn keep(
    link: &Link,
    session: &Session,
    name: &Name,
    keep: Duration,
    patience: Duration,
) -> Result<bool, Failure> {
    void(link, session, name, patience).await?;
    let Some(lease) = session.live() else {
        return Ok(false);
    };
    let (made, _, key) = what(session, name, &lease);
    match made {
        Some(made) => Ok(rehang(link, &key, made, keep, patience).await?.is_some()),
        None => Ok(false),
    }
}

/// Hangs a key on a new lease of this TTL; the lease's TTL, or none where the key wasn't there.
pub(crate) async fn rehang(
    link: &Link,
    key: &[u8],
    made: i64,
    ttl: Duration,
    patience: Duration,
) -> Result<Option<Duration>, Failure> {
    let granted = link
        .ask(LeaseGrantRequest { ttl: seconds(ttl) }, patience)
        .await?;
    let rehang = rehanging(key, made, granted.id);
    if link.call(rehang, patience).await?.succeeded {
        return Ok(Some(Duration::from_secs(granted.ttl.unsigned_abs())));
    }
    // Left, it would end by itself.
    let _ = link
        .call(LeaseRevokeRequest { id: granted.id }, patience)
        .await;
    Ok(None)
}

/// Hangs the key made at `made` on this lease.
pub(crate) fn rehanging(key: &[u8], made: i64, lease: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![Compare::created(key, made)],
        success: vec![Op::rehang(key, lease)],
        failure: Vec::new(),
    }
}

/// Voids tries without an answer, so that none lands from now on.
pub(crate) async fn void(
    link: &Link,
    session: &Session,
    name: &Name,
    patience: Duration,
) -> Result<(), Failure> {
    for _ in 0..ROUNDS {
        let Some(lease) = session.live() else {
            return Ok(());
        };
        if what(session, name, &lease).1 == 0 {
            return Ok(());
        }
        match link.call(voiding(&lease, Vec::new()), patience).await {
            Ok(answer) => match taken(session, &answer)? {
                Voided::Done { .. } => {
                    session.place(name, |place| place.unanswered = 0);
                }
                Voided::Over => return Ok(()),
                Voided::Again { .. } => {}
            },
            Err(Failure::LeaseGone) => return Ok(()),
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Refused(unexpected(
        "an end of its canary's changes",
    )))
}

/// What of a place may be in the store: when its key was made, tries without an answer, its key.
fn what(session: &Session, name: &Name, lease: &Lease) -> (Option<i64>, u32, Vec<u8>) {
    let what = session.place(name, |place| {
        let made = place.made.as_ref().map(|made| made.at);
        (made, place.unanswered, key(name, place, lease))
    });
    what.unwrap_or_default()
}

fn key(name: &Name, place: &Place, lease: &Lease) -> Vec<u8> {
    let key = place.made.as_ref().and_then(|made| made.key.clone());
    key.unwrap_or_else(|| keys::place(name, lease.id))
}

/// What is to be sent next to end a place.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing of it is in the store.
    Nothing,
    /// Its deletion: the answer is the end of it.
    Delete(TxnRequest),
    /// Its deletion together with what voids its tries: the answer is to be read by [`voided`].
    Void(TxnRequest),
}

pub(crate) fn next(name: &Name, place: &Place, lease: &Lease) -> Next {
    let key = key(name, place, lease);
    if place.unanswered > 0 {
        return Next::Void(voiding(lease, vec![Op::delete(&key)]));
    }
    match &place.made {
        Some(made) => Next::Delete(TxnRequest {
            compare: vec![Compare::created(&key, made.at)],
            success: vec![Op::delete(&key)],
            failure: Vec::new(),
        }),
        None => Next::Nothing,
    }
}

/// Writes the canary anew, and does `more` with it.
fn voiding(lease: &Lease, more: Vec<crate::wire::RequestOp>) -> TxnRequest {
    let mut success = vec![
        Op::put(&lease.canary, Vec::new(), lease.id),
        Op::get(&lease.canary),
    ];
    success.extend(more);
    TxnRequest {
        compare: vec![Compare::written(&lease.canary, lease.written)],
        success,
        failure: vec![Op::get(&lease.canary)],
    }
}

/// What a voiding came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Voided {
    /// The canary was written anew at this revision; whether a deletion with it found its key.
    Done { written: i64, deleted: bool },
    /// Others wrote it at this revision: once more.
    Again { written: i64 },
    /// Not needed: the lease has ended.
    Over,
}

/// Reads the answer to a voiding; none where it can't be one.
pub(crate) fn voided(answer: &TxnResponse) -> Option<Voided> {
    let canary = answer.range(usize::from(answer.succeeded))?.kvs.first();
    let Some(written) = canary.map(|canary| canary.mod_revision) else {
        return Some(Voided::Over);
    };
    if !answer.succeeded {
        return Some(Voided::Again { written });
    }
    let deleted = answer.responses.iter().any(|response| {
        matches!(&response.response, Some(OpAnswer::Delete(delete)) if delete.deleted > 0)
    });
    Some(Voided::Done { written, deleted })
}

/// Takes the answer to a voiding in.
fn taken(session: &Session, answer: &TxnResponse) -> Result<Voided, Failure> {
    let voided = voided(answer).ok_or_else(|| Failure::Refused(unexpected("the canary")))?;
    if let Voided::Done { written, .. } | Voided::Again { written } = voided {
        session.update(|lease| lease.written_at(written));
    }
    Ok(voided)
}

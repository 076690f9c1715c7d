//! How a place ends: deleted, so that nothing brings it back, or kept for a while by time alone.

use std::time::Duration;

use leasehold_core::Name;

use crate::error::{Failure, unexpected};
use crate::keys;
use crate::link::Link;
use crate::pool::seconds;
use crate::session::{Lease, Session};
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
        let Some(lease) = session.lease() else {
            // Its keys ended with it.
            return Ok(false);
        };
        let (made, unanswered, key) = what(session, name, &lease);
        if unanswered == 0 {
            let Some(made) = made else {
                return Ok(false);
            };
            let delete = TxnRequest {
                compare: vec![Compare::created(&key, made)],
                success: vec![Op::delete(&key)],
                failure: Vec::new(),
            };
            return Ok(link.call(delete, patience).await?.succeeded);
        }
        let void = voiding(&lease, vec![Op::delete(&key)]);
        match link.call(void, patience).await {
            Ok(answer) => {
                if let Some(voided) = voided(session, &answer)? {
                    return Ok(voided && deleted(&answer));
                }
            }
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
    let Some(lease) = session.lease() else {
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
        let Some(lease) = session.lease() else {
            return Ok(());
        };
        if what(session, name, &lease).1 == 0 {
            return Ok(());
        }
        match link.call(voiding(&lease, Vec::new()), patience).await {
            Ok(answer) => match voided(session, &answer)? {
                Some(true) => {
                    if let Some(place) = session.lock().places().get_mut(name) {
                        place.unanswered = 0;
                    }
                }
                Some(false) => return Ok(()),
                None => {}
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
    let mut state = session.lock();
    match state.places().get(name) {
        Some(place) => {
            let key = place.key.clone();
            let key = key.unwrap_or_else(|| keys::place(name, lease.id));
            (place.made, place.unanswered, key)
        }
        None => (None, 0, Vec::new()),
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

/// What a voiding came to: done, or not needed as the lease has ended; none where it is to be tried again.
fn voided(session: &Session, answer: &TxnResponse) -> Result<Option<bool>, Failure> {
    let canary = answer
        .range(usize::from(answer.succeeded))
        .ok_or_else(|| Failure::Refused(unexpected("the canary")))?;
    match canary.kvs.first() {
        Some(canary) => {
            session.written_at(canary.mod_revision);
            Ok(answer.succeeded.then_some(true))
        }
        None => Ok(Some(false)),
    }
}

/// Whether the deletion that came with a voiding found its key.
fn deleted(answer: &TxnResponse) -> bool {
    answer.responses.iter().any(|response| {
        matches!(&response.response, Some(OpAnswer::Delete(delete)) if delete.deleted > 0)
    })
}

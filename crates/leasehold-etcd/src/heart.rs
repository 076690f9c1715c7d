//! A session's task: begins the lease, keeps it alive, ends what its time is over.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::clock;
use leasehold_core::{Error, ErrorKind, Name, Result};
use tokio::sync::watch;

use crate::beat::{Evidence, Verdict, Witness, verdict};
use crate::ending;
use crate::error::{Failure, unexpected};
use crate::keys;
use crate::link::Link;
use crate::pool::Pool;
use crate::session::{Lease, Pulse, Session};
use crate::wire::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeRequest, LeaseTimeToLiveRequest, Op,
    RangeRequest, TxnRequest,
};

/// How long a lease or its end may take to be answered.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a beat is repeated at once because its answers proved nothing: a leader was elected meanwhile.
const ROUNDS: u32 = 4;
/// How long the task sleeps at most.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Runs a session to its end.
pub(crate) async fn run(
    session: Arc<Session>,
    link: Arc<Link>,
    pool: Weak<Pool>,
    mut breaks: watch::Receiver<u64>,
) {
    let begun = match begin(&session, &link).await {
        Ok(lease) => lease,
        Err(error) => return session.fail(&error),
    };
    if session.lease().is_none() {
        // Closed meanwhile.
        return revoke(&link, begun).await;
    }
    let mut retry_at = 0;
    while let Some(lease) = session.lease() {
        give_up(&session, &link);
        if pool.upgrade().is_none_or(|pool| pool.may_end(&session)) {
            session.end();
            revoke(&link, lease.id).await;
            return;
        }
        let now = clock::now();
        let due = due(&session);
        if now.boot >= due.beat.max(retry_at) {
            retry_at = match beat(&session, &link, &lease).await {
                Ok(()) => 0,
                // Another cluster: a lease of this number there may have a place of ours, which is to end.
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    tracing::warn!(%error, lease = lease.id, "the session is given up");
                    return session.end();
                }
                Err(error) => {
                    tracing::debug!(%error, lease = lease.id, "beat unanswered");
                    session.missed(&error);
                    let ttl = Duration::from_secs(session.asked.unsigned_abs());
                    clock::now().boot + nanos((ttl / 24).min(Duration::from_secs(1)))
                }
            };
            continue;
        }
        let wake = due.beat.max(retry_at).min(due.end);
        let pause = Duration::from_nanos(wake.saturating_sub(now.boot)).min(SLEEP_MAX);
        tokio::select! {
            () = session.called.notified() => {}
            () = tokio::time::sleep(pause) => {}
            broke = breaks.changed() => if broke.is_ok() {
                // Disconnected: every hold is uncertain until a beat says otherwise.
                session.tell_all();
                session.lock().wanted = true;
            },
        }
    }
}

/// Gets a lease and writes its canary; the lease.
async fn begin(session: &Session, link: &Link) -> Result<i64> {
    let since = clock::now();
    let LeaseGrantResponse { id, ttl, .. } = link
        .ask(LeaseGrantRequest { ttl: session.asked }, PATIENCE)
        .await?;
    if id == 0 || ttl <= 0 {
        return Err(unexpected("the lease"));
    }
    let canary = keys::canary(id);
    let write = TxnRequest {
        success: vec![Op::put(&canary, Vec::new(), id), Op::get(&canary)],
        ..TxnRequest::default()
    };
    let answer = link.ask(write, PATIENCE).await?;
    let written = answer
        .range(1)
        .and_then(|range| range.kvs.first())
        .map(|kv| kv.mod_revision)
        .ok_or_else(|| unexpected("the canary"))?;
    let pulse = Pulse {
        since,
        ttl: Duration::from_secs(ttl.unsigned_abs()),
        keys: Arc::default(),
    };
    session.begin(
        Lease {
            id,
            canary,
            written,
        },
        pulse,
    );
    Ok(id)
}

/// Keeps the lease alive and finds out whether that counted.
async fn beat(session: &Session, link: &Link, lease: &Lease) -> Result<()> {
    session.lock().wanted = false;
    let ttl = Duration::from_secs(session.asked.unsigned_abs());
    // Several must fit into a lease.
    let patience = (ttl / 10).clamp(Duration::from_millis(200), PATIENCE);
    for _ in 0..ROUNDS {
        let before = link.witness();
        let since = clock::now();
        let renewed = link.keep_alive(lease.id, patience).await?;
        let request = LeaseTimeToLiveRequest {
            id: lease.id,
            keys: true,
        };
        let left = link.call(request, patience).await?;
        let read = link
            .call(RangeRequest::one(&lease.canary), patience)
            .await?;
        let evidence = Evidence {
            before,
            renewed: Witness::of(&renewed.header.unwrap_or_default()),
            alive: renewed.ttl > 0 && left.ttl > 0,
            read: Witness::of(&read.header.unwrap_or_default()),
            canary: !read.kvs.is_empty(),
        };
        match verdict(evidence) {
            Verdict::Renewed => {
                session.beaten(Pulse {
                    since,
                    ttl: Duration::from_secs(renewed.ttl.unsigned_abs()),
                    keys: Arc::new(left.keys.into_iter().collect()),
                });
                return Ok(());
            }
            Verdict::Gone => {
                tracing::warn!(lease = lease.id, "the session has ended");
                session.end();
                return Ok(());
            }
            Verdict::Again => {}
        }
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        "the cluster's leader changes; no renewal counted",
    ))
}

/// Begins to delete the places whose time is over.
fn give_up(session: &Arc<Session>, link: &Arc<Link>) {
    let now = clock::now().boot;
    let mut state = session.lock();
    state.sweep();
    let due: Vec<Name> = state
        .places()
        .iter_mut()
        .filter_map(|(name, place)| place.give_up(now).then(|| name.clone()))
        .collect();
    drop(state);
    for name in due {
        let (session, link) = (session.clone(), link.clone());
        tokio::spawn(async move {
            let ended = ending::end(&link, &session, &name, PATIENCE).await;
            let mut state = session.lock();
            if let Some(place) = state.places().get_mut(&name) {
                match ended {
                    Ok(_) => place.deleted(),
                    Err(failure) => {
                        tracing::debug!(?failure, %name, "a place is not given up yet");
                        place.give_up_again(clock::now().boot + nanos(Duration::from_secs(1)));
                    }
                }
                place.mailbox.put();
            }
            drop(state);
            session.called.notify_one();
        });
    }
}

/// When there is something to do next (boot time).
struct Due {
    beat: u64,
    end: u64,
}

fn due(session: &Session) -> Due {
    let mut state = session.lock();
    let wanted = state.wanted;
    let end = state
        .places()
        .values()
        .filter_map(crate::place::Place::due)
        .min()
        .unwrap_or(u64::MAX);
    drop(state);
    let beat = match session.pulse() {
        Some(pulse) if !wanted => pulse.since.boot.saturating_add(nanos(pulse.ttl / 4)),
        _ => 0,
    };
    Due { beat, end }
}

/// Ends a lease; one that isn't ended so ends by its TTL.
pub(crate) async fn revoke(link: &Link, id: i64) {
    match link.call(LeaseRevokeRequest { id }, PATIENCE).await {
        Ok(_) | Err(Failure::LeaseGone) => {}
        Err(failure) => tracing::debug!(?failure, lease = id, "the lease is left to end by itself"),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

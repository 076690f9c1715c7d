//! A session's task: begins it, keeps it alive, ends what its time is over.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Place, Pool, Pulse, Session, SessionStore, nanos};
use crate::error::ErrorKind;
use crate::name::Name;
use crate::{background, clock};

/// How long the task sleeps at most.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Runs a session to its end.
pub(super) async fn run<S: SessionStore>(
    session: Arc<Session<S>>,
    store: Arc<S>,
    pool: Weak<Pool<S>>,
) {
    let (live, pulse) = match store.begin(&session).await {
        Ok(begun) => begun,
        Err(error) => return session.fail(&error),
    };
    if !session.begin(live.clone(), pulse) {
        // Closed meanwhile.
        return store.end(live).await;
    }
    let mut retry_at = 0;
    while let Some(live) = session.live() {
        give_up(&session, &store);
        if pool.upgrade().is_none_or(|pool| pool.may_end(&session)) {
            session.end();
            return store.end(live).await;
        }
        if let Some(pause) = pause(&session, retry_at) {
            tokio::select! {
                biased;
                () = session.called.notified() => {}
                () = clock::sleep(pause) => {}
            }
            continue;
        }
        session.lock().wanted = false;
        retry_at = match store.beat(&session, &live).await {
            Ok(Some(pulse)) => {
                session.beaten(pulse);
                0
            }
            Ok(None) => {
                tracing::warn!(?live, "the session has ended");
                return session.end();
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                tracing::warn!(%error, ?live, "the session is given up");
                return session.end();
            }
            Err(error) => {
                tracing::debug!(%error, ?live, "beat unanswered");
                session.missed(&error);
                clock::now().boot + nanos((session.asked / 24).min(Duration::from_secs(1)))
            }
        };
    }
}

/// Begins to delete what the places made whose time is over.
fn give_up<S: SessionStore>(session: &Arc<Session<S>>, store: &Arc<S>) {
    let now = clock::now().boot;
    let mut state = session.lock();
    state.sweep();
    let due: Vec<Name> = state
        .places
        .iter_mut()
        .filter_map(|(name, place)| place.give_up(now).then(|| name.clone()))
        .collect();
    drop(state);
    for name in due {
        let (session, store) = (session.clone(), store.clone());
        background::spawn_here(async move {
            let given_up = store.give_up(&session, &name).await;
            session.place(&name, |place| {
                match given_up {
                    Ok(()) => place.deleted(),
                    Err(error) => {
                        tracing::debug!(%error, %name, "a place is not given up yet");
                        place.give_up_again(clock::now().boot + nanos(Duration::from_secs(1)));
                    }
                }
                place.mailbox.put();
            });
            session.called.notify_one();
        });
    }
}

/// How long the task has nothing to do; none where a beat is due, and not before `retry_at` (boot time).
fn pause<S: SessionStore>(session: &Session<S>, retry_at: u64) -> Option<Duration> {
    let now = clock::now().boot;
    let mut state = session.lock();
    let beat = match &state.pulse {
        _ if state.lent => u64::MAX,
        Some(pulse) if !state.wanted => beat_at(pulse),
        _ => 0,
    };
    let beat = beat.max(retry_at);
    if now >= beat {
        return None;
    }
    // One that is given back is due no earlier than this, with a beat from after now.
    let most = if state.lent {
        session.asked / 4
    } else {
        SLEEP_MAX
    };
    let ends = state.places.values().filter_map(Place::due).min();
    let at = beat.min(ends.unwrap_or(u64::MAX));
    state.looks_at = at.min(now.saturating_add(nanos(most)));
    Some(Duration::from_nanos(state.looks_at.saturating_sub(now)))
}

/// When the beat after this one is due (boot time).
pub(super) fn beat_at(pulse: &Pulse) -> u64 {
    pulse.since.boot.saturating_add(nanos(pulse.ttl / 4))
}

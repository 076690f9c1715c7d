//! What tests of a store do again and again. Each step panics where it can't be done.

use std::time::Duration;

use leasehold::{Client, Guard, Inspection, Lock};
use leasehold_core::clock::{self, Moment};

/// A TTL that no test waits for.
pub const LONG: Duration = Duration::from_secs(60);
/// How much later than promised anything may be on a busy machine.
pub const SLACK: Duration = Duration::from_secs(5);
/// How long anything may take to be seen on a busy machine.
const SEEN_WITHIN: Duration = Duration::from_secs(20);
/// How often it is looked for.
const PAUSE: Duration = Duration::from_millis(5);

/// So many milliseconds.
#[must_use]
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A client of the store.
pub async fn connect(url: &str) -> Client {
    let connected = leasehold::connect(url).await;
    connected.unwrap_or_else(|error| panic!("{error:?}"))
}

/// A lock with this TTL.
#[must_use]
pub fn lock(client: &Client, name: &str, ttl: Duration) -> Lock {
    let lock = client.lock(name);
    lock.unwrap_or_else(|error| panic!("{error:?}")).ttl(ttl)
}

/// Takes a lock that must be free.
pub async fn take(client: &Client, name: &str, ttl: Duration) -> Guard {
    let got = lock(client, name, ttl).try_acquire().await;
    let got = got.unwrap_or_else(|error| panic!("{error:?}"));
    got.unwrap_or_else(|| panic!("{name} was to be free and is busy"))
}

/// Somebody has the lock.
pub async fn assert_busy(client: &Client, name: &str) {
    let got = lock(client, name, LONG).try_acquire().await;
    assert!(
        matches!(got, Ok(None)),
        "{name} was to be busy, and it is {got:?}"
    );
}

/// The time since then.
#[must_use]
pub fn since(moment: Moment) -> Duration {
    clock::now().since(moment).steady
}

/// Waits until it is so; how long that took. Panics after `most`.
pub async fn until(most: Duration, mut so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = clock::now();
    while !so().await {
        let waited = since(begun);
        assert!(waited < most, "not so after {waited:?}");
        tokio::time::sleep(PAUSE).await;
    }
    since(begun)
}

/// Waits until `inspect` shows what is wanted.
pub async fn seen(client: &Client, name: &str, wanted: impl Fn(&Inspection) -> bool) {
    until(SEEN_WITHIN, async || {
        client
            .inspect(name)
            .await
            .is_ok_and(|inspection| wanted(&inspection))
    })
    .await;
}

/// Waits until so many wait for the lock.
pub async fn queued(client: &Client, name: &str, count: usize) {
    seen(client, name, |seen| seen.waiters.len() == count).await;
}

/// Everything that leaves something in a store for a while: holding, trying, waiting to the end and not to the end,
/// extending, releasing, dropping. Then the client ends.
pub async fn come_and_go(client: Client) {
    let ordered = client.info().capabilities.ordered;
    let holder = take(&client, "a", LONG).await;
    assert_busy(&client, "a").await;
    let waited = lock(&client, "a", LONG);
    let got = waited.acquire_within(ms(300)).await;
    assert!(matches!(got, Ok(None)), "{got:?}");
    let dropped = tokio::spawn(async move { waited.acquire().await });
    if ordered {
        queued(&client, "a", 1).await;
    } else {
        tokio::time::sleep(ms(200)).await;
    }
    dropped.abort();
    queued(&client, "a", 0).await;
    let extended = holder.extend(LONG).await;
    assert!(extended.is_ok(), "{extended:?}");
    let released = holder.release().await;
    assert!(released.is_ok(), "{released:?}");
    drop(take(&client, "b", client.info().capabilities.ttl_min).await);
    client.close().await;
}

/// Holds so many locks, taken a hundred at a time.
pub async fn hold_many(client: &Client, count: usize, ttl: Duration) -> Vec<Guard> {
    let mut guards = Vec::with_capacity(count);
    while guards.len() < count {
        let batch = guards.len()..count.min(guards.len() + 100);
        let taken = batch.map(|number| {
            let lock = lock(client, &format!("held/{number}"), ttl);
            tokio::spawn(async move { lock.try_acquire().await })
        });
        for guard in taken.collect::<Vec<_>>() {
            match guard.await {
                Ok(Ok(Some(guard))) => guards.push(guard),
                other => panic!("a lock of its own can't be taken: {other:?}"),
            }
        }
    }
    guards
}

//! Clusters of one's own, and what other programs do with them.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

use std::time::Duration;

use leasehold::{Client, Guard, Inspection, Lock};
use leasehold_core::clock::{self, Moment};
use leasehold_testkit::servers::Consul;

/// A TTL that no test waits for.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// How much later than promised anything may be on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(5);
/// A shorter shortest TTL than a server has by itself, so that tests don't wait for minutes.
pub(crate) const SHORT_TTLS: &str = r#""session_ttl_min":"2s""#;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn single() -> Consul {
    Consul::start_with(1, SHORT_TTLS, None).unwrap()
}

pub(crate) fn three() -> Consul {
    // A dead leader is noticed within a TTL.
    let settings = format!(r#"{SHORT_TTLS},"performance":{{"raft_multiplier":1}}"#);
    Consul::start_with(3, &settings, None).unwrap()
}

pub(crate) async fn connect(url: &str) -> Client {
    leasehold::connect(url).await.unwrap()
}

pub(crate) fn lock(client: &Client, name: &str, ttl: Duration) -> Lock {
    client.lock(name).unwrap().ttl(ttl)
}

/// Takes a lock that must be free.
pub(crate) async fn take(client: &Client, name: &str, ttl: Duration) -> Guard {
    let got = lock(client, name, ttl).try_acquire().await.unwrap();
    got.unwrap_or_else(|| panic!("{name} was to be free and is busy"))
}

pub(crate) async fn assert_busy(client: &Client, name: &str) {
    let got = lock(client, name, LONG).try_acquire().await.unwrap();
    assert!(got.is_none(), "{name} was to be busy: {got:?}");
}

pub(crate) fn since(moment: Moment) -> Duration {
    clock::now().since(moment).steady
}

/// Waits until it is so; how long that took. Panics after `most`.
pub(crate) async fn until(most: Duration, mut so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = clock::now();
    while !so().await {
        let waited = since(begun);
        assert!(waited < most, "not so after {waited:?}");
        tokio::time::sleep(ms(10)).await;
    }
    since(begun)
}

/// Waits until `inspect` shows what is wanted.
pub(crate) async fn seen(client: &Client, name: &str, wanted: impl Fn(&Inspection) -> bool) {
    until(ms(20_000), async || {
        client
            .inspect(name)
            .await
            .is_ok_and(|inspection| wanted(&inspection))
    })
    .await;
}

/// All keys there are.
pub(crate) fn keys(consul: &Consul) -> Vec<String> {
    match consul.call(0, "GET", "/v1/kv/?keys&consistent", "") {
        Ok(text) => texts(&text),
        // There are none.
        Err(failure) if failure.to_string().contains(" 404 ") => Vec::new(),
        Err(failure) => panic!("{failure}"),
    }
}

/// The ids of leasehold's sessions.
pub(crate) fn sessions(consul: &Consul) -> Vec<String> {
    let text = consul
        .call(0, "GET", "/v1/session/list?consistent", "")
        .unwrap();
    values(&text, "ID")
}

/// The values of this field in a JSON text, which has no quotes within texts.
pub(crate) fn values(text: &str, field: &str) -> Vec<String> {
    let mark = format!("\"{field}\":");
    text.split(&mark)
        .skip(1)
        .map(|rest| {
            let rest = rest.trim_start().trim_start_matches('"');
            let end = rest.find(['"', ',', '}', '\n']).unwrap();
            rest[..end].to_owned()
        })
        .collect()
}

/// The texts of a JSON list.
fn texts(text: &str) -> Vec<String> {
    text.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The session that has a lock.
pub(crate) fn session_of(consul: &Consul, name: &str) -> Option<String> {
    let text = consul.call(0, "GET", &format!("/v1/kv/{name}/.lock?consistent"), "");
    values(&text.ok()?, "Session").pop()
}

//! Clusters of one's own, and what other programs do with them.

use leasehold_testkit::servers::Consul;
pub(crate) use leasehold_testkit::steps::*;

/// A shorter shortest TTL than a server has by itself, so that tests don't wait for minutes.
pub(crate) const SHORT_TTLS: &str = r#""session_ttl_min":"2s""#;

pub(crate) fn single() -> Consul {
    Consul::start_with(1, SHORT_TTLS, None).unwrap()
}

pub(crate) fn three() -> Consul {
    // A dead leader is noticed within a TTL.
    let settings = format!(r#"{SHORT_TTLS},"performance":{{"raft_multiplier":1}}"#);
    Consul::start_with(3, &settings, None).unwrap()
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

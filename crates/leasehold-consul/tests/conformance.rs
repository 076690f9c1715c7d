//! The conformance suite on real servers.

use std::process::ExitCode;

use leasehold_testkit::conformance::{self, Shared};
use leasehold_testkit::servers::Consul;

/// The shortest TTL is ten seconds unless a server is set otherwise, and most cases wait for several.
const SETTINGS: &str = r#""session_ttl_min":"2s""#;

// The server waits two TTLs; no lock-delay is asked for.
static SINGLE: Shared<Consul> = Shared::new(|| start(1), Consul::url).frees_dead_within_ttls(2);
static CLUSTER: Shared<Consul> = Shared::new(|| start(3), Consul::url)
    .alone(|| start(1))
    .frees_dead_within_ttls(2);

fn start(servers: usize) -> Consul {
    Consul::start_with(servers, SETTINGS, None).expect("Consul starts")
}

fn main() -> ExitCode {
    conformance::main(&[("single", &SINGLE), ("cluster", &CLUSTER)])
}

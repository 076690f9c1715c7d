//! The conformance suite on a real cluster: every case has a prefix of its own.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use leasehold_testkit::conformance::{self, TestStore};
use leasehold_testkit::servers::Consul;

/// Started by the cases, not in the worker processes: one for most, and others for cases that need one of their own.
static CLUSTER: Mutex<Option<Consul>> = Mutex::new(None);
static OWN: Mutex<Vec<Consul>> = Mutex::new(Vec::new());

/// The shortest TTL is ten seconds unless a server is set otherwise, and most cases wait for several.
const SETTINGS: &str = r#""session_ttl_min":"2s""#;

struct OneCluster(usize);

impl TestStore for OneCluster {
    fn url(&self, case: &str) -> String {
        static CASE: AtomicU32 = AtomicU32::new(0);
        if case.starts_with("naming-") {
            // Names as long as names can be leave no room for a prefix.
            let own = Consul::start_with(1, SETTINGS, None).expect("Consul starts");
            let url = own.url();
            OWN.lock().expect("nobody panics with it").push(own);
            return url;
        }
        let mut cluster = CLUSTER
            .lock()
            .expect("no case panics while it starts the cluster");
        let cluster = cluster.get_or_insert_with(|| {
            Consul::start_with(self.0, SETTINGS, None).expect("Consul starts")
        });
        let number = CASE.fetch_add(1, Ordering::Relaxed);
        format!("{}?prefix=case{number}/", cluster.url())
    }

    fn stopped_write_is_an_outage(&self) -> bool {
        // A client that stops leaves nothing open on the server.
        false
    }

    fn frees_dead_within(&self, ttl: Duration) -> Duration {
        // The server waits two TTLs; no lock-delay is asked for.
        ttl * 2
    }
}

/// Runs the suite on a cluster of this many servers.
pub(crate) fn main(servers: usize) -> ExitCode {
    static STORE: OnceLock<OneCluster> = OnceLock::new();
    let code = conformance::main(STORE.get_or_init(|| OneCluster(servers)));
    // A static is never dropped, and no cluster must outlive its tests.
    drop(CLUSTER.lock().expect("every case is over").take());
    OWN.lock().expect("every case is over").clear();
    code
}

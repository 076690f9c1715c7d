//! The conformance suite on a real cluster: every case has a prefix of its own.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use leasehold_testkit::conformance::{self, TestStore};
use leasehold_testkit::servers::{Etcd, EtcdEdition};

/// Started by the cases, not in the worker processes: one for most, and others for cases that need one of their own.
static CLUSTER: Mutex<Option<Etcd>> = Mutex::new(None);
static OWN: Mutex<Vec<Etcd>> = Mutex::new(Vec::new());

/// No case cuts the machine's power, and three members on one disk wait for one another.
const FAST: &[&str] = &["--unsafe-no-fsync"];

struct OneCluster(EtcdEdition, usize);

impl TestStore for OneCluster {
    fn url(&self, case: &str) -> String {
        static CASE: AtomicU32 = AtomicU32::new(0);
        if case.starts_with("naming-") {
            // Names as long as names can be leave no room for a prefix.
            let own = Etcd::start_with(self.0, 1, FAST).expect("etcd starts");
            let url = own.url();
            OWN.lock().expect("nobody panics with it").push(own);
            return url;
        }
        let mut cluster = CLUSTER
            .lock()
            .expect("no case panics while it starts the cluster");
        let cluster = cluster
            .get_or_insert_with(|| Etcd::start_with(self.0, self.1, FAST).expect("etcd starts"));
        let number = CASE.fetch_add(1, Ordering::Relaxed);
        format!("{}?prefix=case{number}/", cluster.url())
    }

    fn stopped_write_is_an_outage(&self) -> bool {
        // A client that stops leaves nothing open on the server.
        false
    }
}

/// Runs the suite on a cluster of this many members.
pub(crate) fn main(edition: EtcdEdition, members: usize) -> ExitCode {
    static STORE: OnceLock<OneCluster> = OnceLock::new();
    let code = conformance::main(STORE.get_or_init(|| OneCluster(edition, members)));
    // A static is never dropped, and no cluster must outlive its tests.
    drop(CLUSTER.lock().expect("every case is over").take());
    OWN.lock().expect("every case is over").clear();
    code
}

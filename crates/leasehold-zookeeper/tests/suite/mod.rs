//! The conformance suite on a real ensemble: every case has a prefix of its own.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use leasehold_testkit::conformance::{self, TestStore};
use leasehold_testkit::servers::ZooKeeper;

/// Started by the cases, not in the worker processes: one for most, and others for cases that need one of their own.
static ENSEMBLE: Mutex<Option<ZooKeeper>> = Mutex::new(None);
static OWN: Mutex<Vec<ZooKeeper>> = Mutex::new(Vec::new());

/// No case cuts the machine's power, and three members on one disk wait for one another.
const FAST: &[&str] = &["forceSync=no"];

/// A server that has just started compiles itself while it works, and takes a hundred times as long for each request.
fn warm_up(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        // Sessions too: each client begins its own.
        for _ in 0..20 {
            let client = leasehold::connect(url).await.expect("the server answers");
            for _ in 0..10 {
                let lock = client.lock("warm").expect("a name");
                let guard = lock.acquire().await.expect("the server answers");
                guard.release().await.expect("the server answers");
            }
            client.close().await;
        }
    });
}

struct OneEnsemble {
    members: usize,
    /// More parameters of the URL, each with its `&`.
    parameters: &'static str,
}

impl TestStore for OneEnsemble {
    fn url(&self, case: &str) -> String {
        static CASE: AtomicU32 = AtomicU32::new(0);
        if case.starts_with("naming-") {
            // Names as long as names can be leave no room for a prefix.
            let own = ZooKeeper::start_with(1, FAST, None).expect("ZooKeeper starts");
            let url = own.url();
            OWN.lock().expect("nobody panics with it").push(own);
            return format!("{url}?{}", self.parameters);
        }
        let mut ensemble = ENSEMBLE
            .lock()
            .expect("no case panics while it starts the ensemble");
        let ensemble = ensemble.get_or_insert_with(|| {
            let ensemble =
                ZooKeeper::start_with(self.members, FAST, None).expect("ZooKeeper starts");
            warm_up(&ensemble.url());
            ensemble
        });
        let number = CASE.fetch_add(1, Ordering::Relaxed);
        format!("{}?{}prefix=case{number}/", ensemble.url(), self.parameters)
    }

    fn stopped_write_is_an_outage(&self) -> bool {
        // A client that stops leaves nothing open on the server.
        false
    }
}

/// Runs the suite on an ensemble of this many members, with these parameters of the URL, each with an `&` behind it.
pub(crate) fn main(members: usize, parameters: &'static str) -> ExitCode {
    static STORE: OnceLock<OneEnsemble> = OnceLock::new();
    let store = STORE.get_or_init(|| OneEnsemble {
        members,
        parameters,
    });
    let code = conformance::main(store);
    // A static is never dropped, and no ensemble must outlive its tests.
    drop(ENSEMBLE.lock().expect("every case is over").take());
    OWN.lock().expect("every case is over").clear();
    code
}

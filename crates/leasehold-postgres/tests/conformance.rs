//! The conformance suite on PostgreSQL 15: every case has a prefix of its own.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_testkit::conformance::{self, TestStore};
use leasehold_testkit::servers::Postgres;

/// Started by the cases, not in the worker processes: one for most, and others for cases that need one of their own.
static SERVER: Mutex<Option<Postgres>> = Mutex::new(None);
static OWN: Mutex<Vec<Postgres>> = Mutex::new(Vec::new());

/// Dozens of processes of one test have several sessions each.
const SETTINGS: &[&str] = &["max_connections=400"];

struct OneServer;

impl TestStore for OneServer {
    fn url(&self, case: &str) -> String {
        static CASE: AtomicU32 = AtomicU32::new(0);
        let start = || Postgres::start_with(SETTINGS, None).expect("PostgreSQL starts");
        if case.starts_with("naming-") {
            // Names as long as names can be leave no room for a prefix.
            let own = start();
            let url = own.url();
            OWN.lock().expect("nobody panics with it").push(own);
            return url;
        }
        let mut server = SERVER
            .lock()
            .expect("no case panics while it starts the server");
        let url = server.get_or_insert_with(start).url();
        let number = CASE.fetch_add(1, Ordering::Relaxed);
        format!("{url}?prefix=case{number}/")
    }

    fn stopped_write_is_an_outage(&self) -> bool {
        // A client that stops leaves nothing open on the server.
        false
    }
}

fn main() -> ExitCode {
    let code = conformance::main(&OneServer);
    // A static is never dropped, and no server must outlive its tests.
    drop(SERVER.lock().expect("every case is over").take());
    OWN.lock().expect("every case is over").clear();
    code
}

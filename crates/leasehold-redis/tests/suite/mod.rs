//! The conformance suite on a real server: every case has a database of its own.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use leasehold_testkit::conformance::{self, TestStore};
use leasehold_testkit::servers::{Redis, RedisEdition};

/// Started by the first case, not in the worker processes.
static SERVER: Mutex<Option<Redis>> = Mutex::new(None);

struct OneServer(RedisEdition);

impl TestStore for OneServer {
    fn url(&self, _case: &str) -> String {
        static DATABASE: AtomicU32 = AtomicU32::new(0);
        let database = DATABASE.fetch_add(1, Ordering::Relaxed);
        let mut server = SERVER
            .lock()
            .expect("no case panics while it starts the server");
        let server = server.get_or_insert_with(|| {
            Redis::start_with(self.0, &["--databases", "200"]).expect("Redis starts")
        });
        format!("{}/{database}", server.url())
    }

    fn stopped_write_is_an_outage(&self) -> bool {
        // A client that stops leaves nothing open on the server.
        false
    }
}

/// Runs the suite on this edition.
pub(crate) fn main(edition: RedisEdition) -> ExitCode {
    static STORE: OnceLock<OneServer> = OnceLock::new();
    let code = conformance::main(STORE.get_or_init(|| OneServer(edition)));
    // A static is never dropped, and the server must not outlive its tests.
    drop(SERVER.lock().expect("every case is over").take());
    code
}

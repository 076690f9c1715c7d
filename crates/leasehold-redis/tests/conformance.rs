//! The conformance suite on a real Redis: every case has a database of its own.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_testkit::conformance::{self, TestStore};
use leasehold_testkit::servers::{Redis, RedisEdition};

/// Started by the first case, not in the worker processes.
static SERVER: Mutex<Option<Redis>> = Mutex::new(None);

struct OneServer;

impl TestStore for OneServer {
    fn url(&self, _case: &str) -> String {
        static DATABASE: AtomicU32 = AtomicU32::new(0);
        let database = DATABASE.fetch_add(1, Ordering::Relaxed);
        let mut server = SERVER
            .lock()
            .expect("no case panics while it starts the server");
        let server = server.get_or_insert_with(|| {
            Redis::start_with(RedisEdition::Redis7, &["--databases", "200"]).expect("Redis starts")
        });
        format!("{}/{database}", server.url())
    }

    fn stopped_write_is_an_outage(&self) -> bool {
        // A client that stops leaves nothing open on the server.
        false
    }
}

fn main() -> ExitCode {
    let code = conformance::main(&OneServer);
    // A static is never dropped, and the server must not outlive its tests.
    drop(SERVER.lock().expect("every case is over").take());
    code
}

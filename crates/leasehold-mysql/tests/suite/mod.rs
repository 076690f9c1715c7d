//! The conformance suite on one server: every case has a prefix of its own.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_testkit::conformance::{self, TestStore};
use leasehold_testkit::servers::{Mysql, MysqlEdition};

/// Started by the cases, not in the worker processes: one for most, and others for cases that need one of their own.
pub(crate) struct OneServer {
    edition: MysqlEdition,
    server: Mutex<Option<Mysql>>,
    own: Mutex<Vec<Mysql>>,
}

/// Dozens of processes of one test have several sessions each, and none of them is to wait for a disk that others use.
const SETTINGS: &[&str] = &["max-connections=400", "innodb-flush-log-at-trx-commit=2"];

impl OneServer {
    pub(crate) const fn new(edition: MysqlEdition) -> Self {
        Self {
            edition,
            server: Mutex::new(None),
            own: Mutex::new(Vec::new()),
        }
    }

    /// Runs the suite.
    pub(crate) fn main(&'static self) -> ExitCode {
        let code = conformance::main(self);
        // A static is never dropped, and no server must outlive its tests.
        drop(self.server.lock().expect("every case is over").take());
        self.own.lock().expect("every case is over").clear();
        code
    }
}

impl TestStore for OneServer {
    fn url(&self, case: &str) -> String {
        static CASE: AtomicU32 = AtomicU32::new(0);
        let start = || Mysql::start_with(self.edition, SETTINGS, None).expect("the server starts");
        if case.starts_with("naming-") {
            // Names as long as names can be leave no room for a prefix.
            let own = start();
            let url = own.url();
            self.own.lock().expect("nobody panics with it").push(own);
            return url;
        }
        let mut server = self
            .server
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

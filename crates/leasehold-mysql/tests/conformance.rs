//! The conformance suite on MySQL 9.

use std::process::ExitCode;

use leasehold_testkit::servers::MysqlEdition;

mod suite;

static STORE: suite::OneServer = suite::OneServer::new(MysqlEdition::MySql);

fn main() -> ExitCode {
    STORE.main()
}

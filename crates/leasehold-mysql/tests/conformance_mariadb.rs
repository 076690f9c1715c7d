//! The conformance suite on MariaDB 10.11.

use std::process::ExitCode;

use leasehold_testkit::servers::MysqlEdition;

mod suite;

static STORE: suite::OneServer = suite::OneServer::new(MysqlEdition::MariaDb);

fn main() -> ExitCode {
    STORE.main()
}

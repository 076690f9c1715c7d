//! The conformance suite on MySQL 9 and MariaDB 10.11.

use std::process::ExitCode;

use leasehold_testkit::conformance::{self, Shared};
use leasehold_testkit::servers::{Mysql, MysqlEdition};

/// Dozens of processes of one test have several sessions each, and none of them is to wait for a disk that others use.
const SETTINGS: &[&str] = &["max-connections=400", "innodb-flush-log-at-trx-commit=2"];

static MYSQL: Shared<Mysql> = Shared::new(|| start(MysqlEdition::MySql), Mysql::url);
static MARIADB: Shared<Mysql> = Shared::new(|| start(MysqlEdition::MariaDb), Mysql::url);

fn start(edition: MysqlEdition) -> Mysql {
    Mysql::start_with(edition, SETTINGS, None).expect("the server starts")
}

fn main() -> ExitCode {
    conformance::main(&[("mysql", &MYSQL), ("mariadb", &MARIADB)])
}

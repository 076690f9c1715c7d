//! Servers of one's own, and what other programs do with them.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_testkit::program::Program;
pub(crate) use leasehold_testkit::servers::{Mysql, MysqlEdition};
pub(crate) use leasehold_testkit::steps::*;

/// What is written is the system's after each commit and the disk's a second later: so it is safe from a crash of the
/// server, and no test waits for a disk that others use.
const QUICK: &str = "innodb-flush-log-at-trx-commit=2";

/// Runs a test on a server of each edition.
pub(crate) async fn on_each(test: impl AsyncFn(Mysql)) {
    for edition in MysqlEdition::ALL {
        test(Mysql::start_with(edition, &[QUICK], None).unwrap()).await;
    }
}

/// The URL of a server through this address.
pub(crate) fn url_at(mysql: &Mysql, address: SocketAddr) -> String {
    format!("{}://root@{address}", mysql.edition().name())
}

/// How many sessions there are besides those of the server itself and the one that asks.
pub(crate) fn sessions(mysql: &Mysql) -> usize {
    let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
        WHERE USER = 'root' AND COMMAND <> 'Daemon' AND ID <> CONNECTION_ID()";
    mysql.query(count).unwrap().parse().unwrap()
}

/// The sessions that hold locks of leasehold's.
pub(crate) fn holding(mysql: &Mysql) -> Vec<u32> {
    let of = "SELECT DISTINCT session FROM leasehold.locks WHERE IS_USED_LOCK(lock_name) = session";
    let ids = mysql.query(of).unwrap();
    ids.lines().map(|id| id.parse().unwrap()).collect()
}

/// How many sessions wait for a lock.
pub(crate) fn waiting(mysql: &Mysql) -> usize {
    let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'";
    mysql.query(count).unwrap().parse().unwrap()
}

/// The server's own client, which stays and does what it is told.
pub(crate) struct Session(Program);

impl Session {
    pub(crate) fn start(mysql: &Mysql) -> Self {
        Self(Program::start(&mut mysql.client().unwrap()))
    }

    /// Has it do something; its answer, or none where that takes longer.
    pub(crate) fn answer(&mut self, sql: &str, most: Duration) -> Option<String> {
        self.0.tell(sql);
        self.0.line_within(most)
    }

    /// Has it do something that it must do soon.
    pub(crate) fn ask(&mut self, sql: &str) -> String {
        let answer = self.answer(sql, SLACK);
        answer.unwrap_or_else(|| panic!("no answer to {sql}"))
    }
}

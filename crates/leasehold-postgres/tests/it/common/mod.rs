//! Servers of one's own, and what other programs do with them.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_testkit::program::Program;
use leasehold_testkit::servers::Postgres;
pub(crate) use leasehold_testkit::steps::*;

pub(crate) fn server() -> Postgres {
    Postgres::start().unwrap()
}

/// The URL of the database through this address.
pub(crate) fn url_at(address: SocketAddr) -> String {
    format!("postgres://postgres@{address}/locks")
}

/// How many sessions leasehold has.
pub(crate) fn sessions(postgres: &Postgres) -> usize {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    postgres.query(count).unwrap().parse().unwrap()
}

/// The processes of the sessions that hold advisory locks, and of those that wait for one.
pub(crate) fn holding(postgres: &Postgres, granted: bool) -> Vec<u32> {
    let of = format!(
        "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted = {granted}"
    );
    let pids = postgres.query(&of).unwrap();
    pids.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// A psql that stays, and does what it is told.
pub(crate) struct Session(Program);

impl Session {
    pub(crate) fn start(postgres: &Postgres) -> Self {
        let mut psql = postgres.psql("locks").unwrap();
        Self(Program::start(&mut psql))
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

    /// What a statement answers that went unanswered before.
    pub(crate) fn later(&self, most: Duration) -> Option<String> {
        self.0.line_within(most)
    }
}

//! The conformance suite on PostgreSQL 15.

use std::process::ExitCode;

use leasehold_testkit::conformance::{self, Shared};
use leasehold_testkit::servers::Postgres;

/// Dozens of processes of one test have several sessions each.
const SETTINGS: &[&str] = &["max_connections=400"];

static SERVER: Shared<Postgres> = Shared::new(
    || Postgres::start_with(SETTINGS, None).expect("PostgreSQL starts"),
    Postgres::url,
);

fn main() -> ExitCode {
    conformance::main(&[("", &SERVER)])
}

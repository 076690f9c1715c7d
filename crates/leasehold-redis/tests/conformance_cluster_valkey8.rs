//! The conformance suite on a Cluster of Valkey 8.

mod suite;

use std::process::ExitCode;

use leasehold_testkit::servers::RedisEdition;

fn main() -> ExitCode {
    suite::main(suite::Place::Cluster(RedisEdition::Valkey8))
}

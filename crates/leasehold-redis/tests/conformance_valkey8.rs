//! The conformance suite on Valkey 8.

mod suite;

use std::process::ExitCode;

use leasehold_testkit::servers::RedisEdition;

fn main() -> ExitCode {
    suite::main(suite::Place::Server(RedisEdition::Valkey8))
}

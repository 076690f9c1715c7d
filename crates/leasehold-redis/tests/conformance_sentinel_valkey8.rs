//! The conformance suite on Valkey 8 behind Sentinel.

mod suite;

use std::process::ExitCode;

use leasehold_testkit::servers::RedisEdition;

fn main() -> ExitCode {
    suite::main(suite::Place::Sentinel(RedisEdition::Valkey8))
}

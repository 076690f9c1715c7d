//! The conformance suite behind Sentinel.

mod suite;

use std::process::ExitCode;

use leasehold_testkit::servers::RedisEdition;

fn main() -> ExitCode {
    suite::main(suite::Place::Sentinel(RedisEdition::Redis7))
}

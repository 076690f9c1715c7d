//! The conformance suite on five independent servers of Redis 7.

mod suite;

use std::process::ExitCode;

use leasehold_testkit::servers::RedisEdition;

fn main() -> ExitCode {
    suite::main(suite::Place::Redlock(RedisEdition::Redis7))
}

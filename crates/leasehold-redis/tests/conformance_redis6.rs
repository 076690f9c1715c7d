//! The conformance suite on Redis 6.2.

mod suite;

use std::process::ExitCode;

use leasehold_testkit::servers::RedisEdition;

fn main() -> ExitCode {
    suite::main(suite::Place::Server(RedisEdition::Redis6))
}

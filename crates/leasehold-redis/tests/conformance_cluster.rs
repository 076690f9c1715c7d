//! The conformance suite on a Cluster of Redis 7.

mod suite;

use std::process::ExitCode;

use leasehold_testkit::servers::RedisEdition;

fn main() -> ExitCode {
    suite::main(suite::Place::Cluster(RedisEdition::Redis7))
}

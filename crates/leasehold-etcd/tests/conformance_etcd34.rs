//! The conformance suite on etcd 3.4, one member.

mod suite;

use std::process::ExitCode;

use leasehold_testkit::servers::EtcdEdition;

fn main() -> ExitCode {
    suite::main(EtcdEdition::Etcd34, 1)
}

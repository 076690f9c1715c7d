//! The conformance suite on ZooKeeper 3.8, three servers.

mod suite;

use std::process::ExitCode;

fn main() -> ExitCode {
    suite::main(3, "")
}

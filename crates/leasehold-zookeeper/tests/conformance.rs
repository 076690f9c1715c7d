//! The conformance suite on ZooKeeper 3.8, one server.

mod suite;

use std::process::ExitCode;

fn main() -> ExitCode {
    suite::main(1, "")
}

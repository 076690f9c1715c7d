//! The conformance suite on one server.

mod suite;

use std::process::ExitCode;

fn main() -> ExitCode {
    suite::main(1)
}

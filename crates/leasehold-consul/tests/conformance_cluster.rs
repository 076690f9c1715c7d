//! The conformance suite on three servers.

mod suite;

use std::process::ExitCode;

fn main() -> ExitCode {
    suite::main(3)
}

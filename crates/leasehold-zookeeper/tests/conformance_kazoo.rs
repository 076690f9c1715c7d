//! The conformance suite on ZooKeeper 3.8, one server, with kazoo's names.

mod suite;

use std::process::ExitCode;

fn main() -> ExitCode {
    suite::main(1, "layout=kazoo&")
}

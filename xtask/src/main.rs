//! What a contributor runs: `cargo xtask test` before every push, and its parts alone.
//!
//! It uses the standard library only, so that it builds in a second and runs also where the rest of the
//! workspace doesn't compile.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people: what it prints is what it is for"
)]

mod bench;
mod deny;
mod parts;
mod programs;
mod sim;
mod tidy;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--full]
           everything that must be green before a push; with --full, also what takes too long for that
  check    the same without the tests
  servers  bring the real servers that tests need, all or those named
  up NAME  start a server, for example redis, print its URL, stop it on Ctrl-C
  bench [sqlite|redis|redlock|etcd|zookeeper|consul|postgres|mysql|fence|once] [--peers] [--quick] [--write]
           measure; --write puts the figures into docs/benchmarks.md
  sim [--seeds N]
           run the simulations with so many fresh seeds

and each part alone:
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test"] => parts::run(parts::PARTS),
        ["test", "--full"] => parts::run(parts::PARTS.iter().chain([&parts::FULL])),
        ["check"] => parts::run(parts::without_tests()),
        ["bench", words @ ..] => ended("bench", bench::run(words)),
        ["sim", words @ ..] => ended("sim", sim::run(words)),
        ["up" | "servers", ..] => parts::become_servers(&words),
        [name] => match parts::named(name) {
            Some(part) => parts::run([part]),
            None => usage(),
        },
        _ => usage(),
    }
}

fn ended(name: &str, outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{name} failed: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    for part in parts::PARTS.iter().chain([&parts::FULL]) {
        eprintln!("  {:<8} {}", part.name, part.about);
    }
    ExitCode::from(64)
}

//! The parts of `cargo xtask test`, and the table at its end.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::{bench, deny, programs, sim, tidy, tree};

/// Something that must be green. Each is a command of its own too: `cargo xtask NAME`.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn() -> Result<(), String>,
}

/// The quick ones first; the tests are the last.
pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "fmt",
        about: "the formatting is rustfmt's",
        run: || cargo(&["fmt", "--all", "--check"]),
    },
    Part {
        name: "tidy",
        about: "the tree keeps its own rules",
        run: tidy::run,
    },
    Part {
        name: "deny",
        about: "licences, sources and versions of what we depend on",
        run: deny::run,
    },
    Part {
        name: "clippy",
        about: "no compiler and no clippy warnings",
        run: || {
            cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--all-features",
                "--",
                "-Dwarnings",
            ])
        },
    },
    Part {
        name: "benches",
        about: "the benchmarks, workspaces of their own, build without warnings and judge rightly",
        run: bench::check,
    },
    Part {
        name: "docs",
        about: "the documentation builds without warnings",
        run: docs,
    },
    Part {
        name: "servers",
        about: "the real servers that tests need are here and start",
        run: || succeed(&mut servers(&["servers"])),
    },
    Part {
        name: "tests",
        about: "every test of the workspace",
        run: programs::run,
    },
];

/// What takes too long for every push.
pub(crate) const FULL: Part = Part {
    name: "full",
    about: "the largest models, and fresh seeds of the simulations",
    run: || {
        let models = cargo(&[
            "test",
            "--package",
            "leasehold-redis",
            "--features",
            "full-model",
            "--lib",
            "redlock::model",
        ]);
        models.and(sim::run(&["--seeds", "100000"]))
    },
};

/// All parts but the tests and what they need.
pub(crate) fn without_tests() -> &'static [Part] {
    &PARTS[..PARTS.len() - 2]
}

/// The part called `name`.
pub(crate) fn named(name: &str) -> Option<&'static Part> {
    PARTS.iter().chain([&FULL]).find(|part| part.name == name)
}

/// Runs every part, also after one has failed, and says at the end how long each took.
pub(crate) fn run<'a>(parts: impl IntoIterator<Item = &'a Part>) -> ExitCode {
    let mut rows = Vec::new();
    for part in parts {
        println!("── {}: {}", part.name, part.about);
        let (outcome, took) = timed(part.run);
        if let Err(why) = &outcome {
            eprintln!("{} failed: {why}", part.name);
        }
        rows.push((part, outcome, took));
    }
    println!("── time of each part");
    for (part, outcome, took) in &rows {
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("{:<8} {:>8.1} s  {verdict}", part.name, took.as_secs_f64());
    }
    let total: Duration = rows.iter().map(|(_, _, took)| *took).sum();
    println!("{:<8} {:>8.1} s", "total", total.as_secs_f64());

    let mut code = ExitCode::SUCCESS;
    for (part, outcome, _) in &rows {
        if outcome.is_err() {
            eprintln!(
                "{} failed; alone it runs with: cargo xtask {}",
                part.name, part.name
            );
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Runs cargo in the workspace.
pub(crate) fn cargo(args: &[&str]) -> Result<(), String> {
    succeed(Command::new(cargo_path()).args(args))
}

/// The cargo that runs us, else the one that is found.
pub(crate) fn cargo_path() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// Runs a command in the workspace's root; anything but success is an error.
pub(crate) fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .current_dir(tree::root())
        .status()
        .map_err(|error| format!("{program} can't be started: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{program} ended with {status}"))
    }
}

/// The testkit's command for real servers. It isn't part of this crate, which must build in a second.
fn servers(words: &[&str]) -> Command {
    let mut command = Command::new(cargo_path());
    command
        .args(["run", "--quiet", "--package", "leasehold-testkit"])
        .args(["--bin", "servers", "--"])
        .args(words);
    command
}

/// Runs it in the place of this process, so that signals are its own.
pub(crate) fn become_servers(words: &[&str]) -> ExitCode {
    let error = servers(words).exec();
    eprintln!("cargo can't be started: {error}");
    ExitCode::FAILURE
}

fn docs() -> Result<(), String> {
    succeed(
        Command::new(cargo_path())
            .args(["doc", "--no-deps", "--workspace"])
            .env("RUSTDOCFLAGS", "-Dwarnings"),
    )
}

/// What work comes to, and how long it took.
#[allow(
    clippy::disallowed_methods,
    reason = "how long a build takes decides nothing, and this crate depends on no other of the workspace"
)]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

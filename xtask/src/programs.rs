//! Runs every test of the workspace, several of its programs at a time.
//!
//! Most tests wait for a TTL or a server, so one program after the other, as `cargo test` runs them, leaves processors
//! idle. Cargo builds the programs and says where they are; what they print is shown when each has ended.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::parts::{cargo, cargo_path, timed};
use crate::tree;

/// The programs that take longest begin first, or the last of them would run alone in the end: conformance suites and
/// tests of many servers, and simulations.
const LONG: [&str; 4] = [
    "-p leasehold-redis --lib",
    "-p leasehold-redis-tests --test conformance",
    "-p leasehold-redis-tests --test it",
    "-p leasehold-mysql --test conformance",
];

/// A test program, as cargo says it.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    package: String,
    /// The arguments with which cargo runs it alone.
    target: Vec<String>,
    folder: PathBuf,
    executable: PathBuf,
}

/// How a program ended, where it failed.
struct Ended {
    program: Program,
    took: Duration,
    failure: Option<String>,
}

pub(crate) fn run() -> Result<(), String> {
    let programs = Mutex::new(built()?);
    let ended = Mutex::new(Vec::new());
    let lanes = thread::available_parallelism().map_or(1, |lanes| lanes.get().min(4));
    thread::scope(|scope| {
        for lane in 0..lanes {
            let (programs, ended) = (&programs, &ended);
            scope.spawn(move || {
                while let Some(program) = next(programs) {
                    let (failure, took) = timed(|| one(&program, lane).err());
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    ended.push(Ended {
                        program,
                        took,
                        failure,
                    });
                }
            });
        }
    });
    // A failure in one program says nothing about the others.
    let documented = cargo(&["test", "--workspace", "--no-fail-fast", "--doc"]);
    told(ended.into_inner().unwrap_or_else(PoisonError::into_inner)).and(documented)
}

fn next(programs: &Mutex<VecDeque<Program>>) -> Option<Program> {
    programs
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop_front()
}

/// Builds all test programs.
fn built() -> Result<VecDeque<Program>, String> {
    let output = Command::new(cargo_path())
        .args(["test", "--workspace", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(tree::root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo can't be started: {error}"))?;
    if !output.status.success() {
        return Err("the tests don't build".into());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut programs: Vec<_> = messages.lines().filter_map(Program::of).collect();
    if programs.is_empty() {
        return Err("cargo names no test programs; has its output changed?".into());
    }
    programs.sort_by_key(|program| !LONG.contains(&program.shown().as_str()));
    Ok(programs.into())
}

impl Program {
    /// Reads a message of cargo's; none where it is of no test program.
    fn of(message: &str) -> Option<Self> {
        let (_, profile) = message.split_once("\"profile\":{")?;
        let (profile, _) = profile.split_once('}')?;
        if !profile.contains("\"test\":true") {
            return None;
        }
        let executable = text(message, "executable")?;
        let folder = Path::new(text(message, "manifest_path")?).parent()?;
        let (_, target) = message.split_once("\"target\":{")?;
        let kind = target.split('"').nth(3)?;
        let mut alone = vec![format!("--{kind}")];
        if kind != "lib" {
            alone.push(text(target, "name")?.to_owned());
        }
        // `path+file:///w/crates/a#0.1.0`, or `path+file:///w/crates/a/tests#a-tests@0.1.0`.
        let (_, id) = text(message, "package_id")?.split_once('#')?;
        let package = match id.split_once('@') {
            Some((name, _)) => name.to_owned(),
            None => folder.file_name()?.to_string_lossy().into_owned(),
        };
        Some(Self {
            package,
            target: alone,
            folder: folder.to_owned(),
            executable: executable.into(),
        })
    }

    /// What is said of it: cargo's arguments.
    fn shown(&self) -> String {
        format!("-p {} {}", self.package, self.target.join(" "))
    }
}

/// The text of a field; where it holds a quote or a backslash, no path of ours is in it.
fn text<'a>(message: &'a str, field: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(&format!("\"{field}\":\""))?;
    rest.split_once('"').map(|(text, _)| text)
}

/// Runs one program and shows what it printed.
fn one(program: &Program, lane: usize) -> Result<(), String> {
    let place = std::env::temp_dir().join(format!("leasehold-{}-{lane}.out", std::process::id()));
    let io = |error: std::io::Error| format!("{}: {error}", place.display());
    let out = File::create(&place).map_err(io)?;
    let err = out.try_clone().map_err(io)?;
    // Signals that are ignored here, under nohup say, would be ignored by everything that is tested.
    let status = Command::new("env")
        .arg("--default-signal")
        .arg(&program.executable)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .status();
    let printed = std::fs::read(&place).map_err(io)?;
    std::fs::remove_file(&place).map_err(io)?;
    // In one piece: other lanes print too.
    print!(
        "── {}\n{}",
        program.shown(),
        String::from_utf8_lossy(&printed)
    );
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("ended with {status}")),
        Err(error) => Err(format!("can't be started: {error}")),
    }
}

/// Says how long the slowest took, and what failed.
fn told(mut ended: Vec<Ended>) -> Result<(), String> {
    ended.sort_by_key(|ended| std::cmp::Reverse(ended.took));
    println!("── the slowest of {} test programs", ended.len());
    for slow in ended.iter().take(12) {
        println!(
            "{:>8.1} s  {}",
            slow.took.as_secs_f64(),
            slow.program.shown()
        );
    }
    let mut failed = 0;
    for Ended {
        program, failure, ..
    } in &ended
    {
        if let Some(why) = failure {
            failed += 1;
            eprintln!("FAILED: cargo test {} ({why})", program.shown());
        }
    }
    match failed {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} test programs failed", ended.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/a#0.1.0","manifest_path":"/w/crates/a/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"faults","src_path":"/w/crates/a/tests/faults.rs","edition":"2024","doc":false,"doctest":false,"test":true},"profile":{"opt_level":"0","debuginfo":1,"debug_assertions":true,"overflow_checks":true,"test":true},"features":[],"filenames":["/w/target/debug/deps/faults-1"],"executable":"/w/target/debug/deps/faults-1","fresh":true}"#;

    #[test]
    fn a_test_program_is_what_cargo_calls_one() {
        let program = Program::of(MESSAGE).expect("a program");
        assert_eq!(program.shown(), "-p a --test faults");
        assert_eq!(program.folder, Path::new("/w/crates/a"));
        assert_eq!(
            program.executable,
            Path::new("/w/target/debug/deps/faults-1")
        );
    }

    #[test]
    fn a_package_that_is_not_called_as_its_folder_has_its_name() {
        let message = MESSAGE.replace("/a#0.1.0", "/a#a-tests@0.1.0");
        let program = Program::of(&message).expect("a program");
        assert_eq!(program.shown(), "-p a-tests --test faults");
    }

    #[test]
    fn a_library_is_no_test_program() {
        let library = MESSAGE.replace("\"overflow_checks\":true,\"test\":true", "\"test\":false");
        assert_eq!(Program::of(&library), None);
        assert_eq!(
            Program::of(r#"{"reason":"build-finished","success":true}"#),
            None
        );
    }

    #[test]
    fn one_failed_program_fails_all() {
        let ended = |failure: Option<&str>| Ended {
            program: Program::of(MESSAGE).expect("a program"),
            took: Duration::ZERO,
            failure: failure.map(Into::into),
        };
        assert_eq!(told(vec![ended(None)]), Ok(()));
        let some = told(vec![ended(None), ended(Some("ended with 101"))]);
        assert_eq!(some, Err("1 of 2 test programs failed".into()));
    }

    #[test]
    fn a_program_that_fails_is_told_so() {
        let mut program = Program::of(MESSAGE).expect("a program");
        program.folder = std::env::temp_dir();
        program.executable = "false".into();
        assert!(one(&program, 90).is_err());
        program.executable = "true".into();
        assert_eq!(one(&program, 91), Ok(()));
    }
}

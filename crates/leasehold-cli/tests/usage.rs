//! What can't be right is refused before any store is asked.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use common::{COMMANDS, Done, Host, done};

fn refused(args: &[&str]) -> Done {
    let host = Host::new();
    let refused = done(&mut host.command(args));
    assert!(!host.path().join("locks.db").exists(), "a store was made");
    assert_eq!(refused.out, "");
    refused
}

#[test]
fn a_command_without_dashes_is_refused_with_the_corrected_line() {
    for (args, corrected) in [
        (
            &["run", "jobs/x", "rsync", "-a", "src", "dst"][..],
            "run jobs/x -- rsync -a src dst",
        ),
        // Otherwise the job's option would be ours.
        (
            &["run", "x", "--wait", "5s", "rsync", "--help"],
            "run x --wait 5s -- rsync --help",
        ),
        (
            &["run", "x", "echo", "--", "a b", "it's"],
            "run x -- echo -- 'a b' 'it'\\''s'",
        ),
        (&["--json", "run", "x", "sh", "-c", "a;b"], ""),
    ] {
        let refused = refused(args).is(64);
        if corrected.is_empty() {
            let error = &refused.log()[0]["error"];
            assert_eq!(error["kind"], "invalid");
            assert!(
                error["message"]
                    .as_str()
                    .unwrap()
                    .ends_with("--json run x -- sh -c 'a;b'")
            );
        } else {
            assert_eq!(
                refused.err,
                format!("leasehold: the command to run comes after --:\n  leasehold {corrected}\n")
            );
        }
    }
}

#[track_caller]
fn is_refused(line: &str, says: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let refused = refused(&words).is(64).says(says);
    assert!(
        refused.err.starts_with("leasehold: "),
        "{line}: {}",
        refused.err
    );
    assert!(!refused.err.contains("error:"), "{line}: {}", refused.err);
}

#[test]
fn usage_errors_exit_64_and_say_what_to_write() {
    for (line, says) in [
        ("", "what is to be done?"),
        ("run", "<NAME>"),
        ("run x", "leasehold run x -- CMD"),
        ("run x --", "leasehold run x -- CMD"),
        ("statsu x", "'status'"),
        (
            "run x --tll 3s -- true",
            "unknown option --tll; did you mean \"--ttl\"?",
        ),
        ("run x --jsn -- true", "\"--json\"?"),
        (
            "run x --frobnicate=canary true",
            "option --frobnicate; known: --ttl",
        ),
        ("run x --ttl 30 -- true", "write 30s"),
        ("run x --ttl=-5s -- true", "can't be negative"),
        ("run x --wait -- true", "--wait"),
        ("run x --wait ever -- true", "or forever"),
        ("run x --if-busy wait -- true", "fail, skip"),
        ("run x --if-busy skip --busy-code 3 -- true", "--busy-code"),
        ("run x --busy-code 256 -- true", "256"),
        ("run x --max-hold 0s -- true", "--max-hold"),
        (
            "run x --kill-after 11s -- true",
            "a third of the TTL of 30s",
        ),
        (
            "run x --ttl 6s --kill-after 3s -- true",
            "a third of the TTL of 6s",
        ),
        ("run /x -- true", "begins with '/'"),
        ("run -x -- true", "no name begins with '-'"),
        ("run a//b -- true", "empty segment"),
        ("status x --connect-timeout 0s", "--connect-timeout"),
        ("break x --if-token 07", "not a token"),
        ("break x --if-token -1", "'-1'"),
        ("list a b", "'b'"),
        ("--log loud list", "human, json"),
        ("acquire", "<NAME>"),
        ("acquire x --if-busy skip --busy-code 3", "--busy-code"),
        ("acquire x -- true", "'true'"),
        ("extend x", "--ttl"),
        ("extend --ttl 1m", "which lock?"),
        ("release x", "whose lock?"),
        ("release /x", "begins with '/'"),
        ("release x --owner 1", "'--owner'"),
        ("schema", "<STORE>"),
        ("schema redis", "possible values: mysql, postgres"),
        ("schema mysql twice", "possible values: locks, fence, once"),
        ("schema mysql --role", "--role"),
        ("completions", "<SHELL>"),
        ("completions nosh", "bash"),
        ("man rnu", "did you mean \"run\"?"),
    ] {
        is_refused(line, says);
    }
    refused(&["status", ""]).is(64).says("it is empty");
    let note = "x".repeat(201);
    is_refused(&format!("run x --note {note} -- true"), "the most is 200");
}

#[test]
fn help_and_version_exit_0_on_stdout() {
    let host = Host::new();
    let root = host.run(&["--help"]).is(0).out;
    assert!(root.contains("Exit codes:"), "{root}");
    for command in COMMANDS {
        assert!(root.contains(&format!("\n  {command} ")), "{root}");
        let help = host.run(&[command, "--help"]).is(0);
        assert_eq!(help.err, "");
        let (_, example) = help.out.split_once("Example:\n  ").unwrap();
        assert!(
            example.contains(&format!("leasehold {command}")),
            "{example}"
        );
    }
    assert_eq!(
        host.run(&["--version"]).is(0).out,
        format!("leasehold {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_command_that_can_not_be_run_is_found_out_before_any_store_is_asked() {
    let host = Host::new();
    let plain = host.file("bin/plain", "");
    let plain = plain.to_str().unwrap();
    for (program, code, says) in [
        (
            "no-such-program",
            127,
            "the command \"no-such-program\" was not found in PATH",
        ),
        ("./none", 127, "the command ./none was not found"),
        ("", 127, "was not found"),
        (plain, 126, "it is not executable"),
        ("/", 126, "it is a folder"),
    ] {
        let refused = host.run(&["run", "x", "--", program]).is(code).says(says);
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    }
    let mut command = host.command(&["run", "x", "--", "plain"]);
    done(command.env("PATH", host.path().join("bin")))
        .is(126)
        .says("bin/plain can't be run");
    assert!(!host.path().join("locks.db").exists());
}

#[test]
fn arguments_of_ours_that_are_not_utf8_are_refused() {
    let host = Host::new();
    let args = [OsStr::new("status"), OsStr::from_bytes(b"a\xff")];
    done(&mut host.command(&args)).is(64);
}

#[test]
fn a_full_stdout_is_an_error_and_a_closed_one_is_not() {
    let host = Host::new();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    done(host.command(&["config"]).stdout(full))
        .is(70)
        .says("stdout can't be written");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let gone = done(host.command(&["config"]).stdout(writer)).is(0);
    assert_eq!(gone.err, "");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // Nobody reads the message; the code still tells.
    let status = host.command(&["statsu"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(64));
}

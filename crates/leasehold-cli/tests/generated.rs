//! Completions, manual pages, schemas.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::Command;

use common::{COMMANDS, Host, done};

#[test]
fn completions_know_every_command_and_bash_reads_them() {
    let host = Host::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let printed = host.run(&["completions", shell]).is(0);
        assert_eq!(printed.err, "");
        for command in COMMANDS {
            assert!(printed.out.contains(command), "{shell}: {command}");
        }
        assert!(printed.out.contains("hold-at-least"), "{shell}");
    }
    let script = host.run(&["completions", "bash"]).out;
    let file = host.file("completions", &script);
    let read = done(Command::new("bash").arg("-n").arg(&file)).is(0);
    assert_eq!(read.err, "");
    // Asked as bash does at a Tab.
    let asked = ". ./completions; COMP_WORDS=(leasehold rel); COMP_CWORD=1; \
        _leasehold leasehold rel leasehold; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    let answer = done(bash.args(["-c", asked]).current_dir(host.path())).is(0);
    assert_eq!(answer.out, "release\n", "{}", answer.err);
}

#[test]
fn manual_pages_know_every_command_and_each_has_its_own() {
    let host = Host::new();
    let root = host.run(&["man"]).is(0);
    assert_eq!(root.err, "");
    assert!(root.out.contains("\n.TH leasehold 1 "), "{}", root.out);
    for command in COMMANDS {
        let named = format!("leasehold\\-{command}(1)");
        assert!(root.out.contains(&named), "{named}: {}", root.out);
        let page = host.run(&["man", command]).is(0).out;
        assert!(
            page.contains(&format!("\n.TH leasehold-{command} 1 ")),
            "{page}"
        );
        assert!(page.contains("Example:"), "{page}");
    }
    let run = host.run(&["man", "run"]).out;
    assert!(run.contains("hold\\-at\\-least"), "{run}");
}

#[test]
fn none_needs_a_configuration_that_is_right() {
    let host = Host::new();
    for line in [
        &["completions", "bash"][..],
        &["man"],
        &["schema", "mysql"],
        &["schema", "postgres", "fence"],
        &["schema", "mysql", "once"],
    ] {
        done(host.command(line).env("LEASEHOLD_STORE", "")).is(0);
    }
}

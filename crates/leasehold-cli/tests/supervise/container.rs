//! As the first process of a container.

use std::process::Command;

use rustix::process::{Pid, Signal, geteuid};

use crate::place::{LEASEHOLD, Place, Running, code, output, send, text, wait_until};

/// `leasehold run x -- sh -c SCRIPT` as process 1 of a namespace.
fn first_process(place: &Place, script: &str) -> Command {
    let mut command = place.command("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .args([LEASEHOLD, "run", "x", "--", "sh", "-c", script]);
    command
}

#[test]
fn as_process_1_it_waits_for_orphans() {
    let place = Place::new();
    // Orphans become children of process 1; those that ended must not stay.
    let script = "for n in 1 2 3; do (sleep 0.1 &); done; sleep 0.5; cat /proc/[0-9]*/stat | grep -c ' Z '; \
                  echo parent $PPID";
    let ended = output(&mut first_process(&place, script));
    assert_eq!(text(&ended), "0\nparent 1\n", "{ended:?}");
}

#[test]
fn as_process_1_it_passes_signals_on() {
    let place = Place::new();
    let script =
        "trap 'echo told > told; exit 42' TERM; echo begun > begun; while :; do sleep 0.05; done";
    let mut running = Running::start(&mut first_process(&place, script));
    place.wait_for_file("begun");
    // The namespace's process 1 is the child of unshare.
    send(child_of(running.pid()), Signal::TERM);
    assert_eq!(running.code(), 42);
}

#[test]
fn as_process_1_its_exit_code_is_the_jobs() {
    let place = Place::new();
    let ended = output(&mut first_process(&place, "exit 7"));
    assert_eq!(code(ended.status), 7, "{ended:?}");
    let ended = output(&mut first_process(&place, "kill -KILL $$"));
    assert_eq!(code(ended.status), 137, "{ended:?}");
}

fn child_of(parent: Pid) -> Pid {
    let parent = parent.as_raw_nonzero();
    let file = format!("/proc/{parent}/task/{parent}/children");
    wait_until("unshare has a child", || {
        let children = std::fs::read_to_string(&file).ok()?;
        Pid::from_raw(children.split_ascii_whitespace().next()?.parse().ok()?)
    })
}

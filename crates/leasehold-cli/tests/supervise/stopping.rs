//! The job never outlives the lock.

use std::process::Stdio;

use leasehold_testkit::freezing::{freeze, thaw};
use nix::sys::signal::SigSet;
use rustix::process::{Signal, getpgid};

use crate::place::{LEASEHOLD, Place, Running, code, guardians, output, send, text, wait_until};

/// Nobody waits for this one to run out.
const LONG: &[&str] = &["--ttl", "10m"];
/// What ends by itself in a test's time.
const SHORT: &[&str] = &["--ttl", "4s"];
/// Two processes that ignore TERM.
const STUBBORN: &str = "trap '' TERM; sleep 100; true";

/// Kills `leasehold` alone while this job runs; all of it must go, and the lock with it.
fn killed(job: &[&str], processes: usize) {
    let place = Place::new();
    let mut running = Running::start(&mut place.run(LONG, job));
    place.wait_for_job(processes);
    running.send(Signal::KILL);
    assert_eq!(running.code(), 137);
    place.wait_for_no_job();
    place.wait_for_lock();
}

#[test]
fn killed_leasehold_takes_grandchildren_along() {
    killed(&["sh", "-c", "sleep 100; true"], 2);
}

#[test]
fn who_comes_right_behind_a_killed_leasehold_gets_the_lock_without_a_wait() {
    // It takes a moment to die, so that one look alone finds the lock busy. A dozen times, because on a busy machine
    // it may take longer than anybody looks.
    let job = "trap 'sleep 0.05; exit' TERM; sleep 100 & wait";
    let mut granted = 0;
    for _ in 0..12 {
        let place = Place::new();
        let mut running = Running::start(&mut place.run(LONG, &["sh", "-c", job]));
        place.wait_for_job(2);
        running.send(Signal::KILL);
        assert_eq!(running.code(), 137);
        let next = output(&mut place.run(LONG, &["true"]));
        assert!(matches!(code(next.status), 0 | 75), "{}", text(&next));
        granted += u32::from(next.status.success());
        place.wait_for_no_job();
    }
    assert!(granted > 0, "never");
}

#[test]
fn killed_leasehold_takes_a_job_along_that_ignores_term() {
    killed(&["sh", "-c", STUBBORN], 2);
}

#[test]
fn killed_leasehold_takes_a_stopped_job_along() {
    killed(&["sh", "-c", "sleep 100 & kill -STOP $!; kill -STOP $$"], 2);
}

#[test]
fn killed_leasehold_takes_a_job_along_that_left_its_group() {
    // `timeout` makes a group of its own.
    killed(&["timeout", "100", "sh", "-c", "sleep 100; true"], 3);
}

#[test]
fn killed_leasehold_takes_grandchildren_in_other_groups_and_sessions_along() {
    killed(&["sh", "-c", "timeout 100 sleep 100; true"], 3);
    killed(&["sh", "-c", "setsid sleep 100; true"], 2);
    killed(&["setsid", "sh", "-c", "sleep 100; true"], 2);
}

#[test]
fn killed_leasehold_takes_what_lost_its_parent_along() {
    // `sh` dies of TERM at once; `timeout` belongs to nobody then, and waits for a child that ignores TERM.
    let job = format!("timeout 100 sh -c \"{STUBBORN}\"; true");
    killed(&["sh", "-c", &job], 4);
}

#[test]
fn a_daemon_that_left_group_and_parent_is_out_of_reach() {
    // The limit, as documented: a service manager's cgroup catches it.
    let place = Place::new();
    let running =
        Running::start(&mut place.run_script(LONG, "setsid -f sleep 100; sleep 99; true"));
    place.wait_for_job(3);
    running.send(Signal::KILL);
    place.wait_for_job(1);
}

/// Freezes `leasehold` alone while this job runs. The next holder must find none of it alive, and the frozen
/// one must say that it lost.
fn frozen(script: &str, processes: usize) {
    let place = Place::new();
    let mut running = Running::start(&mut place.run_script(SHORT, script));
    let job = place.wait_for_job(processes);
    freeze(running.pid()).unwrap();
    let pids: Vec<String> = job
        .iter()
        .map(|pid| pid.as_raw_nonzero().to_string())
        .collect();
    // Who is dead, stopped, or has a KILL (8) or STOP (18) pending does nothing more.
    let look = format!(
        "for pid in {}; do grep -hE '^(State|SigPnd|ShdPnd):' /proc/$pid/status; done 2>/dev/null; \
         echo next > next",
        pids.join(" ")
    );
    let next = output(&mut place.run_script(&["--wait", "30s"], &look));
    assert_eq!(place.wait_for_file("next"), "next\n");
    for process in text(&next).split("State:\t").skip(1) {
        let pending = process.lines().filter_map(|line| line.split_once("Pnd:\t"));
        let doomed = pending
            .map(|(_, mask)| u64::from_str_radix(mask, 16).unwrap())
            .any(|mask| mask & (1 << 8 | 1 << 18) != 0);
        assert!(
            process.starts_with(['Z', 'X', 'T']) || doomed,
            "alive while another holds the lock: {process}"
        );
    }
    thaw(running.pid()).unwrap();
    assert_eq!(running.code(), 76);
    place.wait_for_no_job();
}

#[test]
fn frozen_leasehold_has_its_job_stopped_before_the_next_one_starts() {
    frozen("sleep 100; true", 2);
}

#[test]
fn frozen_leasehold_has_a_job_killed_that_ignores_term() {
    frozen(STUBBORN, 2);
}

#[test]
fn frozen_leasehold_has_a_stopped_job_killed() {
    frozen("sleep 100 & kill -STOP $!; kill -STOP $$", 2);
}

#[test]
fn frozen_leasehold_has_other_groups_killed() {
    frozen("timeout 100 sleep 100; true", 3);
}

#[test]
fn a_job_has_its_time_to_end_when_the_lock_is_broken() {
    let place = Place::new();
    let script =
        "trap 'echo told > told; exit 3' TERM; echo begun > begun; while :; do sleep 0.05; done";
    let mut running = Running::start(
        place
            .run_script(&["--ttl", "3s", "--kill-after", "1s"], script)
            .stderr(Stdio::null()),
    );
    place.wait_for_file("begun");
    let broken = output(place.command(LEASEHOLD).args(["break", "x"]));
    assert!(broken.status.success(), "{broken:?}");
    assert_eq!(place.wait_for_file("told"), "told\n");
    assert_eq!(running.code(), 76);
}

#[test]
fn a_job_that_ignores_term_is_killed_when_the_lock_is_broken() {
    let place = Place::new();
    let mut running = Running::start(
        place
            .run_script(&["--ttl", "3s"], STUBBORN)
            .stderr(Stdio::null()),
    );
    place.wait_for_job(2);
    let broken = output(place.command(LEASEHOLD).args(["break", "x"]));
    assert!(broken.status.success(), "{broken:?}");
    assert_eq!(running.code(), 76);
    assert!(place.job().is_empty(), "leasehold ended before its job");
}

#[test]
fn the_longest_hold_ends_the_job_with_124() {
    let place = Place::new();
    let options = ["--max-hold", "300ms", "--kill-after", "10s", "--ttl", "1m"];
    let job = "trap 'echo told > told; exit 0' TERM; while :; do sleep 0.05; done";
    let ended = output(&mut place.run_script(&options, job));
    assert_eq!(code(ended.status), 124, "{ended:?}");
    assert_eq!(place.wait_for_file("told"), "told\n");
}

#[test]
fn the_longest_hold_kills_a_job_that_ignores_term() {
    let place = Place::new();
    let options = ["--max-hold", "300ms", "--kill-after", "200ms"];
    let ended = output(&mut place.run_script(&options, STUBBORN));
    assert_eq!(code(ended.status), 124, "{ended:?}");
    assert!(place.job().is_empty(), "leasehold ended before its job");
}

#[test]
fn a_daemon_started_on_purpose_outlives_the_job() {
    let place = Place::new();
    let ended = output(&mut place.run_script(LONG, "sleep 100 >/dev/null 2>&1 & exit 4"));
    assert_eq!(code(ended.status), 4, "{ended:?}");
    let left = place.job();
    assert_eq!(left.len(), 1);
    // No guardian is left with it.
    let group = getpgid(Some(left[0])).unwrap();
    wait_until("the guardian is gone", || {
        getpgid(Some(group)).is_err().then_some(())
    });
}

#[test]
fn a_killed_guardian_is_replaced() {
    let place = Place::new();
    let running = Running::start(&mut place.run_script(LONG, "sleep 100; true"));
    let job = place.wait_for_job(2);
    let name = format!("/proc/{}/comm", running.guardian().as_raw_nonzero());
    let name = std::fs::read_to_string(name).unwrap();
    assert!(!name.contains("leasehold"), "`pkill leasehold` ends {name}");
    for _ in 0..3 {
        let first = running.guardian();
        send(first, Signal::KILL);
        let second = wait_until("there is another guardian", || {
            guardians(running.pid())
                .into_iter()
                .find(|pid| *pid != first)
        });
        assert_eq!(getpgid(Some(second)), getpgid(Some(job[0])));
    }
    assert_eq!(place.job(), job, "the job noticed");
    running.send(Signal::KILL);
    place.wait_for_no_job();
}

#[test]
fn where_child_signals_come_blocked_the_ends_of_job_and_guardian_are_seen() {
    let mut children = SigSet::empty();
    children.add(nix::sys::signal::Signal::SIGCHLD);
    let place = Place::new();
    let start = |script| {
        // What is started meanwhile inherits it.
        children.thread_block().unwrap();
        let running = Running::start(&mut place.run_script(LONG, script));
        children.thread_unblock().unwrap();
        running
    };
    assert_eq!(start("exit 7").code(), 7);
    let running = start("sleep 100; true");
    place.wait_for_job(2);
    let first = running.guardian();
    send(first, Signal::KILL);
    wait_until("there is another guardian", || {
        guardians(running.pid())
            .into_iter()
            .find(|pid| *pid != first)
    });
    running.send(Signal::KILL);
    place.wait_for_no_job();
}

#[test]
fn a_guardian_that_was_stopped_goes_on() {
    let place = Place::new();
    let running = Running::start(&mut place.run_script(LONG, "sleep 100; true"));
    place.wait_for_job(2);
    send(running.guardian(), Signal::STOP);
    // Woken by its parent, which dies later.
    std::thread::sleep(std::time::Duration::from_millis(300));
    running.send(Signal::KILL);
    place.wait_for_no_job();
}

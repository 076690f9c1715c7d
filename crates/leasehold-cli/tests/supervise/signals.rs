//! Signals, exit codes, inputs and outputs pass through as if `leasehold` weren't there.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::place::{LEASEHOLD, Place, Running, code, output, send, text};

#[test]
fn the_jobs_exit_code_is_ours() {
    let place = Place::new();
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
        ("kill -SEGV $$", 139),
    ] {
        let ended = output(&mut place.run_script(&[], script));
        assert_eq!(code(ended.status), expected, "{script}: {ended:?}");
    }
}

#[test]
fn every_forwarded_signal_reaches_the_job() {
    for (name, signal) in [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("TERM", Signal::TERM),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
    ] {
        let place = Place::new();
        let job = format!(
            "trap 'echo {name} > told; exit 42' {name}; echo begun > begun; while :; do sleep 0.05; done"
        );
        let mut running = Running::start(&mut place.run_script(&[], &job));
        place.wait_for_file("begun");
        running.send(signal);
        assert_eq!(running.code(), 42, "{name}");
        assert_eq!(place.wait_for_file("told"), format!("{name}\n"));
    }
}

#[test]
fn a_signal_reaches_a_job_that_left_its_group() {
    let place = Place::new();
    let mut running = Running::start(&mut place.run(&[], &["timeout", "100", "sleep", "99"]));
    place.wait_for_job(2);
    running.send(Signal::TERM);
    // `timeout` passes it on and dies of it.
    assert_eq!(running.code(), 143);
    place.wait_for_no_job();
}

#[test]
fn the_second_term_kills_a_job_that_ignores_the_first() {
    let place = Place::new();
    let job = "trap 'echo told >> told' TERM; echo begun > begun; while :; do sleep 0.05; done";
    let mut running = Running::start(&mut place.run_script(&[], job));
    place.wait_for_file("begun");
    running.send(Signal::TERM);
    assert_eq!(place.wait_for_file("told"), "told\n");
    assert!(!place.job().is_empty(), "the first one killed it");
    // At once it is taken for the same request.
    std::thread::sleep(Duration::from_millis(600));
    running.send(Signal::TERM);
    assert_eq!(running.code(), 137);
    assert!(place.job().is_empty(), "leasehold ended before its job");
}

#[test]
fn term_that_comes_twice_at_once_is_one_request() {
    // `timeout` sends it to its child and to its group, which are both us.
    let place = Place::new();
    let job = "trap 'sleep 0.2; exit 42' TERM; echo begun > begun; while :; do sleep 0.05; done";
    let mut running = Running::start(&mut place.run_script(&[], job));
    place.wait_for_file("begun");
    running.send(Signal::TERM);
    std::thread::sleep(Duration::from_millis(20));
    running.send(Signal::TERM);
    assert_eq!(running.code(), 42);
}

#[test]
fn nohup_stays_in_force() {
    // The job sends HUP to leasehold and to itself.
    let job = "kill -HUP $PPID; kill -HUP $$; exit 5";
    let place = Place::new();
    let plain = output(&mut place.run_script(&[], job));
    assert_eq!(code(plain.status), 129, "{plain:?}");
    let nohup = output(
        place
            .command("nohup")
            .args([LEASEHOLD, "run", "x", "--", "sh", "-c", job]),
    );
    assert_eq!(code(nohup.status), 5, "{nohup:?}");
}

#[test]
fn the_job_begins_with_the_signals_blocked_and_ignored_that_it_would_have_without_us() {
    let place = Place::new();
    let grep = ["grep", "-E", "^Sig(Blk|Ign|Cgt):", "/proc/self/status"];
    let under = output(&mut place.run(&[], &grep));
    let alone = output(place.command(grep[0]).args(&grep[1..]));
    assert_eq!(text(&under), text(&alone));
}

#[test]
fn timeout_ends_leasehold_and_its_job() {
    let place = Place::new();
    let line = [
        LEASEHOLD,
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "trap '' TERM; sleep 100; true",
    ];
    // TERM, which the job ignores, then KILL, which only leasehold gets.
    let ended = output(place.command("timeout").args(["-k", "0.5", "3"]).args(line));
    assert_eq!(code(ended.status), 137, "{ended:?}");
    place.wait_for_no_job();
    place.wait_for_lock();
}

#[test]
fn inputs_and_outputs_pass_through_untouched() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut child = place
        .run(&[], &["cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(out.status.success());
    assert!(out.stdout == bytes, "{} bytes came out", out.stdout.len());
}

#[test]
fn nothing_of_ours_keeps_an_output_open() {
    // Waits for the ends of outputs, and of a descriptor the shell gave besides.
    let place = Place::new();
    let script = format!("x=$({LEASEHOLD} run x -- echo inner 3>&1); echo \"got $x\"");
    let got = output(place.command("sh").args(["-c", &script]));
    assert_eq!(text(&got), "got inner\n", "{got:?}");
}

#[test]
fn a_killed_leasehold_keeps_no_output_open() {
    let place = Place::new();
    let script = "kill -KILL $PPID; sleep 100; true";
    let killed = output(&mut place.run_script(&[], script));
    assert_eq!(code(killed.status), 137, "{killed:?}");
}

#[test]
fn a_signal_to_the_guardian_alone_changes_nothing() {
    let place = Place::new();
    let running = Running::start(&mut place.run_script(&[], "sleep 100; true"));
    let job = place.wait_for_job(2);
    let guardian = running.guardian();
    for signal in [
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::TSTP,
        Signal::USR1,
        Signal::PIPE,
    ] {
        send(guardian, signal);
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(running.guardian(), guardian);
    assert_eq!(place.job(), job);
}

//! The command on a real store with real processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use common::{Host, LONG, done, mask, me, signal};
use leasehold_core::clock;
use rustix::process::Signal;

fn token(text: &str) -> u64 {
    text.trim().parse().unwrap()
}

#[test]
fn a_job_sees_its_lock_and_the_token_rises() {
    let host = Host::new();
    let job = [
        "run",
        "jobs/x",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_NAME $LEASEHOLD_TOKEN $LEASEHOLD_STORE",
    ];
    let first = host.run(&job).is(0);
    let second = host.run(&job).is(0);
    let words = |out: &str| {
        out.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (first, second) = (words(&first.out), words(&second.out));
    assert_eq!(first[0], "jobs/x");
    assert_eq!(first[2], host.store());
    assert!(token(&second[1]) > token(&first[1]), "{first:?} {second:?}");
}

#[test]
fn a_quiet_run_says_nothing_and_a_verbose_one_names_token_and_store() {
    let host = Host::new();
    let quiet = host.run(&["run", "x", "--", "true"]).is(0);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
    let verbose = host
        .run(&["run", "x", "-v", "--ttl", "1m", "--", "true"])
        .is(0);
    let store = host.store();
    assert_eq!(
        verbose.err,
        format!(
            "leasehold: acquired \"x\" with token 2 for 1m (store {store})\n\
             leasehold: released \"x\" with token 2 (store {store})\n"
        )
    );
}

#[test]
fn the_jobs_own_exit_code_and_signal_pass_through() {
    let host = Host::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 75", 75),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
    ] {
        let ran = host.run(&["run", "x", "--", "sh", "-c", script]).is(code);
        // Ours come with a line that says so.
        assert_eq!(ran.err, "", "{script}");
    }
    assert!(
        host.run(&["status", "x"])
            .is(1)
            .out
            .starts_with("x: free\n")
    );
}

#[test]
fn a_jobs_arguments_pass_unchanged_whatever_bytes_they_are() {
    let host = Host::new();
    let args = [
        OsStr::new("run"),
        OsStr::new("x"),
        OsStr::new("--"),
        OsStr::new("printf"),
        OsStr::new("%s|"),
        OsStr::from_bytes(b"a\xff\xfeb"),
        OsStr::new("--ttl"),
        OsStr::new("--"),
        OsStr::new(""),
        OsStr::new("--help"),
    ];
    let output = host.command(&args).output().unwrap();
    assert_eq!(output.stdout, b"a\xff\xfeb|--ttl|--||--help|");
}

#[test]
fn a_second_copy_exits_75_in_one_line_that_names_the_holder() {
    let host = Host::new();
    let holding = host.hold("jobs/x", &["--note", "nightly\u{1b}[2J"]);
    let begun = clock::now();
    let busy = host.run(&["run", "jobs/x", "--", "touch", "ran"]).is(75);
    assert!(clock::now().since(begun).steady < Duration::from_secs(10));
    let pid = holding.pid().as_raw_pid();
    assert!(
        busy.err.contains(&format!("(sh, pid {pid})")),
        "{}",
        busy.err
    );
    let expected = format!(
        "leasehold: \"jobs/x\" is busy: held by {} (sh, pid N) since N-N-NTN:N:NZ (D), for D more unless renewed, \
         note \"nightly\\u{{1b}}[2J\"; the command did not run (store {})\n",
        me(),
        host.store()
    );
    assert_eq!(mask(&busy.err), mask(&expected));
    assert!(!host.path().join("ran").exists());
    holding.end().is(0);
    host.run(&["run", "jobs/x", "--", "touch", "ran"]).is(0);
    assert!(host.path().join("ran").exists());
}

#[test]
fn busy_can_be_skipped_or_have_another_code() {
    let host = Host::new();
    let holding = host.hold("x", &[]);
    let skipped = host
        .run(&["run", "x", "--if-busy", "skip", "--", "touch", "ran"])
        .is(0);
    assert_eq!(skipped.err.lines().count(), 1);
    host.run(&["run", "x", "--busy-code", "5", "--", "touch", "ran"])
        .is(5)
        .says("is busy");
    let waited = host.run(&[
        "run",
        "x",
        "--wait",
        "300ms",
        "--if-busy",
        "skip",
        "--",
        "touch",
        "ran",
    ]);
    assert!(mask(&waited.is(0).err).contains("; waited D; the command did not run"));
    host.run(&["run", "x", "--wait", "0s", "--", "touch", "ran"])
        .is(75);
    assert!(!host.path().join("ran").exists());
    drop(holding);
}

#[test]
fn two_that_wait_both_run_one_after_the_other() {
    let host = Host::new();
    // Fails when the two overlap; the log shows that both ran.
    let script = "mkdir inside && echo in >> log && sleep 0.3 && echo out >> log && rmdir inside";
    let spawn = || {
        host.command(&["run", "x", "--wait", "20s", "--", "sh", "-c", script])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    for child in [spawn(), spawn()] {
        let done: common::Done = child.wait_with_output().unwrap().into();
        assert_eq!(done.is(0).err, "");
    }
    let log = std::fs::read_to_string(host.path().join("log")).unwrap();
    assert_eq!(log, "in\nout\nin\nout\n");
}

#[test]
fn a_wait_in_a_pipe_is_silent_and_one_that_is_over_says_how_long_it_was() {
    let host = Host::new();
    let holding = host.hold("x", &[]);
    let waiting = host
        .command(&["run", "x", "--wait", "forever", "--", "echo", "ran"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    host.await_waiters("x", 1);
    let busy = host.run(&["run", "x", "--wait", "1s", "--", "true"]).is(75);
    assert_eq!(busy.err.lines().count(), 1, "{}", busy.err);
    assert!(
        busy.err.contains("; waited 1s; the command did not run"),
        "{}",
        busy.err
    );
    holding.end().is(0);
    let waited: common::Done = waiting.wait_with_output().unwrap().into();
    assert_eq!((waited.out.as_str(), waited.err.as_str()), ("ran\n", ""));
}

#[test]
fn a_signal_while_waiting_leaves_the_queue_and_exits_with_128_plus_n() {
    let host = Host::new();
    let holding = host.hold("x", &[]);
    for sent in [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::TERM,
        Signal::USR1,
        Signal::USR2,
    ] {
        let mut waiting = host
            .command(&["run", "x", "--wait", "forever", "--", "touch", "ran"])
            .spawn()
            .unwrap();
        host.await_waiters("x", 1);
        signal(rustix::process::Pid::from_child(&waiting), sent);
        assert_eq!(
            waiting.wait().unwrap().code(),
            Some(128 + sent.as_raw()),
            "{sent:?}"
        );
        host.await_waiters("x", 0);
    }
    assert!(!host.path().join("ran").exists());
    holding.end().is(0);
}

#[test]
fn a_command_that_is_not_what_it_seems_leaves_the_lock_free() {
    let host = Host::new();
    // Passes the check of the executable bit; the system refuses it.
    let script = host.file("bad", "#!/no/such/interpreter\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let refused = host.run(&["run", "x", "--ttl", "10s", "--", script.to_str().unwrap()]);
    let refused = refused.is(127);
    assert!(refused.err.starts_with("leasehold: "), "{}", refused.err);
    host.run(&["status", "x"]).is(1);
}

#[test]
fn hold_at_least_keeps_others_out_after_the_job_also_after_a_failed_one() {
    let host = Host::new();
    for (name, script, code) in [("ok", "exit 0", 0), ("failed", "exit 9", 9)] {
        host.run(&[
            "run",
            name,
            "--hold-at-least",
            "1h",
            "--",
            "sh",
            "-c",
            script,
        ])
        .is(code);
        host.run(&["run", name, "--", "touch", "ran"])
            .is(75)
            .says("is busy: held by");
        assert!(!host.path().join("ran").exists());
    }
    host.run(&["run", "short", "--hold-at-least", "5s", "--", "true"])
        .is(0);
    host.run(&["run", "short", "--", "true"]).is(75);
    host.run(&["run", "short", "--wait", "20s", "--", "true"])
        .is(0);
}

#[test]
fn max_hold_stops_the_job_and_exits_124() {
    let host = Host::new();
    let begun = clock::now();
    let stopped = host
        .run(&[
            "run",
            "x",
            "--max-hold",
            "500ms",
            "--kill-after",
            "200ms",
            "--",
            "sleep",
            "100",
        ])
        .is(124);
    assert!(clock::now().since(begun).steady < LONG);
    assert_eq!(
        stopped.err,
        format!(
            "leasehold: held \"x\" for 500ms (--max-hold); stopped the command (store {})\n",
            host.store()
        )
    );
    host.run(&["status", "x"]).is(1);
}

#[test]
fn a_broken_hold_stops_the_job_with_76_and_one_line() {
    let host = Host::new();
    for (options, code) in [
        (&["--ttl", "3s"][..], 76),
        (&["--ttl", "3s", "--lost-code", "9"], 9),
    ] {
        let holding = host.hold("x", options);
        let token = host.run(&["status", "x", "--json"]).json()["holder"]["token"]
            .as_str()
            .unwrap()
            .to_owned();
        let wrong = (token.parse::<u64>().unwrap() + 1).to_string();
        let refused = host.run(&["break", "x", "--if-token", &wrong]).is(76);
        assert!(
            refused.out.starts_with("x: not broken; it is held by"),
            "{}",
            refused.out
        );
        let broken = host.run(&["break", "x", "--if-token", &token]).is(0);
        assert!(
            broken.out.starts_with("x: broken; it was held by"),
            "{}",
            broken.out
        );
        let lost = holding.wait().is(code);
        assert_eq!(
            lost.err,
            format!(
                "leasehold: lost \"x\": an operator took it away; the command is stopped (store {})\n",
                host.store()
            )
        );
        let free = host.run(&["break", "x"]).is(1);
        assert!(
            free.out.starts_with("x: free; there was nothing to break"),
            "{}",
            free.out
        );
    }
}

#[test]
fn a_ttl_the_store_can_not_do_is_a_usage_error_and_the_command_does_not_run() {
    let host = Host::new();
    let refused = host
        .run(&[
            "run",
            "x",
            "--ttl",
            "1ms",
            "--kill-after",
            "0s",
            "--",
            "touch",
            "ran",
        ])
        .is(64);
    assert!(refused.err.contains("out of bounds"), "{}", refused.err);
    assert!(!host.path().join("ran").exists());
}

#[test]
fn a_store_that_can_not_be_made_or_reached_never_runs_the_command() {
    let host = Host::new();
    host.file(
        "foreign.db",
        "this is no database, and long enough to be seen as none",
    );
    for path in ["none/deeper/locks.db", "foreign.db"] {
        let url = format!("sqlite://{}/{path}", host.path().display());
        let mut command = host.command(&["run", "x", "--wait", "forever", "--", "touch", "ran"]);
        let refused = done(command.env("LEASEHOLD_STORE", &url));
        assert!(
            matches!(refused.code, Some(69 | 78)),
            "{path}: {:?} {}",
            refused.code,
            refused.err
        );
        assert!(refused.err.starts_with("leasehold: "), "{}", refused.err);
        assert!(refused.err.contains(path), "{}", refused.err);
        assert_eq!(refused.out, "");
        assert!(!host.path().join("ran").exists());
    }
}

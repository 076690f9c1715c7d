//! On a terminal, typed to by a person at an interactive shell.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::clock;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::place::{LEASEHOLD, PATIENCE, Place, Running, has_terminal, state, wait_until};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// An interactive shell on a terminal of its own.
struct Shell {
    typed: File,
    /// What has been shown since the last look.
    shown: Arc<Mutex<String>>,
    _shell: Running,
}

impl Shell {
    fn start(place: &Place) -> Self {
        let terminal =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let end = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        let shell = Running::start(
            place
                .command("setsid")
                .args(["--ctty", "--wait", "sh", "-i"])
                .env("PS1", "ready> ")
                .env("ENV", "/dev/null")
                .stdin(end.try_clone().unwrap())
                .stdout(end.try_clone().unwrap())
                .stderr(end),
        );
        let typed = File::from(terminal);
        let mut from = typed.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let to = shown.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // It fails when the shell is gone.
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                to.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        let mut shell = Self {
            typed,
            shown,
            _shell: shell,
        };
        // What is typed is shown too; quotes keep it from looking like an answer.
        shell.enter("PS1='ready'; PS1=\"$PS1> \"; stty -echo; echo 'sta''rted'");
        shell.wait_for("started");
        shell
    }

    fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    fn press(&mut self, keys: &str) {
        self.typed.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is shown, and forgets what was shown up to it.
    fn wait_for(&self, text: &str) {
        let begun = clock::now();
        loop {
            let mut shown = self.shown.lock().unwrap();
            if let Some((_, rest)) = shown.split_once(text) {
                *shown = rest.to_owned();
                return;
            }
            assert!(
                clock::now().since(begun).steady < PATIENCE,
                "never: {text:?} on the terminal, which shows {shown:?}"
            );
            drop(shown);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The exit code of what ran last.
    fn expect_code(&mut self, code: i32) {
        self.wait_for("ready> ");
        self.enter("echo \"code=$?;\"");
        self.wait_for(&format!("code={code};"));
    }
}

fn run(options: &str, script: &str) -> String {
    format!("{LEASEHOLD} run x {options} -- sh -c '{script}'")
}

/// A job that says so when it has begun, and echoes a line.
const ECHOES: &str = "echo be\"\"gun; read line; echo \"got $line\"";
/// A job of two processes.
const SLEEPS: &str = "echo be\"\"gun; sleep 100; true";

#[test]
fn the_job_reads_from_the_terminal_and_the_shell_after_it() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.enter(&run("", ECHOES));
    shell.wait_for("begun");
    shell.enter("hello");
    shell.wait_for("got hello");
    shell.expect_code(0);
}

#[test]
fn ctrl_c_ends_the_job() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.enter(&run("", SLEEPS));
    shell.wait_for("begun");
    // A shell that is about to begin a process loses its signals.
    place.wait_for_job(3);
    shell.press(CTRL_C);
    shell.expect_code(130);
}

#[test]
fn ctrl_z_stops_both_and_fg_lets_both_go_on() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.enter(&run("", ECHOES));
    shell.wait_for("begun");
    place.wait_for_job(2);
    for _ in 0..3 {
        // The shell names what it brings back before it gives it the terminal: keys pressed between are the shell's.
        wait_until("the job has the terminal", || {
            place.job().into_iter().find(|pid| has_terminal(*pid))
        });
        shell.press(CTRL_Z);
        shell.wait_for("Stopped");
        shell.wait_for("ready> ");
        // The shell has the terminal.
        shell.enter("echo he''re");
        shell.wait_for("here");
        shell.wait_for("ready> ");
        shell.enter("fg");
        shell.wait_for("leasehold");
    }
    shell.enter("hello");
    shell.wait_for("got hello");
    shell.expect_code(0);
}

#[test]
fn a_job_suspended_for_longer_than_the_lease_is_dead_and_fg_says_lost() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.enter(&run(
        "--ttl 2s",
        "echo be\"\"gun; trap \"\" TERM; sleep 100; true",
    ));
    shell.wait_for("begun");
    // The shell, and the job's two.
    place.wait_for_job(3);
    shell.press(CTRL_Z);
    shell.wait_for("Stopped");
    place.wait_for_job(1);
    place.wait_for_lock();
    shell.wait_for("ready> ");
    shell.enter("fg");
    shell.expect_code(76);
}

#[test]
fn a_background_job_that_reads_stops_until_it_is_in_the_foreground() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.enter(&format!("{} &", run("", ECHOES)));
    shell.wait_for("begun");
    // The shell tells of it before its next prompt.
    wait_until("the shell says that it stopped", || {
        shell.enter("");
        let shown = shell.shown.lock().unwrap();
        shown.contains("Stopped").then_some(())
    });
    shell.enter("fg");
    shell.wait_for("leasehold");
    shell.enter("hello");
    shell.wait_for("got hello");
    shell.expect_code(0);
}

#[test]
fn in_a_pipeline_the_neighbour_keeps_the_terminal_until_the_job_asks() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    // The neighbour reads from the terminal, the job doesn't.
    let neighbour =
        "cat >/dev/null; echo neighbour; read line </dev/tty; echo \"neighbour got $line\"";
    shell.enter(&format!(
        "{} | sh -c '{neighbour}'",
        run("", "echo job; sleep 0.3")
    ));
    shell.wait_for("neighbour");
    shell.enter("hello");
    shell.wait_for("neighbour got hello");
    shell.expect_code(0);
    // The job reads from the terminal.
    shell.enter(&format!("{} | cat", run("", ECHOES)));
    shell.wait_for("begun");
    shell.enter("hello");
    shell.wait_for("got hello");
    shell.expect_code(0);
}

#[test]
fn ctrl_c_and_ctrl_z_reach_a_job_in_a_pipeline() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    let job = run("", SLEEPS);
    shell.enter(&format!("{job} | cat"));
    shell.wait_for("begun");
    let stopped = place.wait_for_job(4);
    shell.press(CTRL_Z);
    shell.wait_for("Stopped");
    wait_until("the sleep is stopped", || {
        let stops = stopped.iter().filter(|pid| state(**pid) == Some('T'));
        // cat, and the job's two.
        (stops.count() == 3).then_some(())
    });
    shell.wait_for("ready> ");
    shell.enter("fg");
    shell.wait_for("leasehold");
    wait_until("the terminal is theirs again", || {
        shell.press(CTRL_C);
        (place.job().len() == 1).then_some(())
    });
    place.wait_for_lock();
}

#[test]
fn a_terminal_left_raw_by_a_killed_job_is_set_right() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    let job = "trap \"\" TERM; stty raw; echo be\"\"gun; sleep 100; true";
    shell.enter(&run("--max-hold 500ms --kill-after 200ms", job));
    shell.wait_for("begun");
    shell.expect_code(124);
    shell.enter("stty -a");
    shell.wait_for(" icanon");
}

#[test]
fn without_a_shell_nothing_stops_for_ever() {
    // The session's first process: nobody could let it go on, so Ctrl-Z does nothing, as without leasehold.
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.enter(&format!(
        "exec {}",
        run("", "echo be\"\"gun; sleep 1; echo do\"\"ne")
    ));
    shell.wait_for("begun");
    place.wait_for_job(2);
    shell.press(CTRL_Z);
    shell.wait_for("done");
}

#[test]
fn a_hangup_ends_the_job() {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.enter(&run("", SLEEPS));
    shell.wait_for("begun");
    shell._shell.send(Signal::KILL);
    drop(shell);
    place.wait_for_no_job();
}

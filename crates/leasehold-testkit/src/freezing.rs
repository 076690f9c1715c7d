//! Processes stopped where they stand, as by a debugger or a paused machine.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use leasehold_core::clock;
pub use rustix::process::Pid;
use rustix::process::{Signal, kill_process};

/// How long the threads of a busy machine may take to stop.
const FREEZE_MAX: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(1);

/// Stops a process (SIGSTOP); its connections stay open. On return no thread of it runs.
///
/// # Errors
/// When there is no such process, or it doesn't stop.
pub fn freeze(pid: Pid) -> io::Result<()> {
    kill_process(pid, Signal::STOP)?;
    // The signal ends where one thread takes it; until it has a turn the others go on, and may be granted a lock.
    let sent = clock::now();
    while !is_frozen(pid)? {
        if clock::now().since(sent).steady > FREEZE_MAX {
            return Err(io::Error::other(format!("{pid:?} doesn't stop")));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Lets a stopped process go on (SIGCONT).
///
/// # Errors
/// When there is no such process.
pub fn thaw(pid: Pid) -> io::Result<()> {
    Ok(kill_process(pid, Signal::CONT)?)
}

fn is_frozen(pid: Pid) -> io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()))? {
        // "123 (name) T …"; a name can hold anything. A thread that is gone doesn't run.
        let status = fs::read_to_string(task?.path().join("stat")).unwrap_or_default();
        let state = status.rsplit_once(") ").map_or("X", |(_, state)| state);
        if !state.starts_with(['T', 'X', 'Z']) {
            return Ok(false);
        }
    }
    Ok(true)
}

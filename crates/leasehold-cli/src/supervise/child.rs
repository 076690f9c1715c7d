//! Starting the job's process, and waiting for children without a thread.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

use super::{Job, SuperviseError};

/// Starts the job's process in this process group, with our own input and outputs.
pub(super) fn spawn(job: &mut Job, group: Pid) -> Result<Pid, SuperviseError> {
    // The descriptor goes to the job alone: nobody else is started before it is closed again.
    let inherited: Option<OwnedFd> = job.inherit.take();
    if let Some(descriptor) = &inherited {
        fcntl_setfd(descriptor, FdFlags::empty())
            .map_err(|error| SuperviseError::Other(error.into()))?;
    }
    let mut command = Command::new(&job.program);
    command
        .args(&job.args)
        .envs(job.env.iter().map(|(key, value)| (key, value)))
        .process_group(group.as_raw_nonzero().get());
    let spawned = command.spawn();
    drop(inherited);
    spawned
        .and_then(|child| pid_of(&child))
        .map_err(|error| refused(job, error))
}

/// Says whether it is the program that can't be run or something else.
fn refused(job: &Job, error: io::Error) -> SuperviseError {
    match error.kind() {
        io::ErrorKind::NotFound => SuperviseError::NotFound(job.program.clone()),
        io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock | io::ErrorKind::InvalidInput => {
            SuperviseError::Other(error)
        }
        _ if error.raw_os_error().is_some_and(|raw| {
            [Errno::MFILE, Errno::NFILE].contains(&Errno::from_raw_os_error(raw))
        }) =>
        {
            SuperviseError::Other(error)
        }
        _ => SuperviseError::NotExecutable(job.program.clone(), error),
    }
}

/// The pid of a child that is waited for here, not through its handle.
pub(super) fn pid_of(child: &Child) -> io::Result<Pid> {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("a child without a process id"))
}

/// What happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It ended: its exit code, or 128 and its signal.
    Ended(u8),
    /// It was stopped by this signal.
    Stopped(i32),
    /// It goes on.
    Continued,
}

/// What happened since the last call, to any child: those we started, and as process 1 the orphans that
/// became ours.
pub(super) fn changes() -> Vec<(Pid, Change)> {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    let mut changes = Vec::new();
    loop {
        match wait(options) {
            Ok(Some((pid, status))) => changes.push((pid, change(status))),
            Err(Errno::INTR) => {}
            // No change, or no children.
            Ok(None) | Err(_) => return changes,
        }
    }
}

fn change(status: WaitStatus) -> Change {
    if let Some(signal) = status.stopping_signal() {
        return Change::Stopped(signal);
    }
    if status.continued() {
        return Change::Continued;
    }
    let code = match status.terminating_signal() {
        Some(signal) => 128 + signal,
        None => status.exit_status().unwrap_or(0),
    };
    Change::Ended(u8::try_from(code).unwrap_or(u8::MAX))
}

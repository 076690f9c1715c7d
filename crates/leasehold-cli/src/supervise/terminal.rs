//! Job control: who has the terminal.
//!
//! The job is in a process group of its own, so it has to be given the terminal to read from it and to get its
//! Ctrl-C and Ctrl-Z. It is given at once where standard input and output are the terminal. In a pipeline
//! (`leasehold run … | less`) the terminal may be wanted by a neighbour in our own group, so the job gets it
//! when it asks for it, by being stopped for its use.

use std::fs::{File, OpenOptions};
use std::io;

use rustix::process::{
    Pid, Signal, getpgrp, getppid, getsid, kill_current_process_group, test_kill_process_group,
};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use tokio::signal::unix;

use super::processes::Stat;
use super::signals::{self, Ignored};

/// The terminal that controls this process.
#[derive(Debug)]
pub(super) struct Terminal {
    file: File,
    own_group: Pid,
    given_to: Option<Pid>,
    /// How it was set when it was first given away.
    modes: Option<Termios>,
    /// Ctrl-Z where we have the terminal ourselves.
    pub(super) suspends: Option<unix::Signal>,
    pub(super) continues: unix::Signal,
}

impl Terminal {
    /// The terminal, if there is one.
    pub(super) fn open() -> io::Result<Option<Self>> {
        let Ok(file) = OpenOptions::new().read(true).write(true).open("/dev/tty") else {
            return Ok(None);
        };
        let suspends = if Ignored::read().has(Signal::TSTP) {
            None
        } else {
            Some(signals::stream(Signal::TSTP)?)
        };
        Ok(Some(Self {
            file,
            own_group: getpgrp(),
            given_to: None,
            modes: None,
            suspends,
            continues: signals::stream(Signal::CONT)?,
        }))
    }

    /// Whether this process's group has it.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file) == Ok(self.own_group)
    }

    /// Whether the job is to have it before it asks.
    pub(super) fn is_all_there_is(&self) -> bool {
        tcgetpgrp(stdin()) == Ok(self.own_group) && tcgetpgrp(stdout()) == Ok(self.own_group)
    }

    /// Lets another group have it.
    pub(super) fn give(&mut self, group: Pid) {
        if self.modes.is_none() {
            self.modes = tcgetattr(&self.file).ok();
        }
        // It fails when the terminal is gone, and then nobody reads from it.
        if self.set_group(group) {
            self.given_to = Some(group);
        }
    }

    /// Takes it back from the job. Whether the job had it.
    pub(super) fn take_back(&mut self) -> bool {
        let Some(given_to) = self.given_to.take() else {
            return false;
        };
        // Somebody else may have it by now: a shell that saw us stop, and then it keeps it. A shell that was
        // the job gives it to groups of its own, which end with it.
        let has_it = tcgetpgrp(&self.file)
            .is_ok_and(|group| group == given_to || test_kill_process_group(group).is_err());
        has_it && self.set_group(self.own_group)
    }

    /// Sets it as it was before the job, which had no chance to.
    pub(super) fn restore(&self) {
        if let Some(modes) = &self.modes
            && self.is_ours()
        {
            let _ = tcsetattr(&self.file, OptionalActions::Drain, modes);
        }
    }

    fn set_group(&self, group: Pid) -> bool {
        // Blocked: from the background this would stop us (TTOU).
        signals::blocked(|| tcsetpgrp(&self.file, group)).is_ok_and(|set| set.is_ok())
    }
}

/// Stops this process's group, as Ctrl-Z does; false when there is no shell that could let it go on, and then
/// the kernel wouldn't let Ctrl-Z stop it either.
pub(super) fn stop_ourselves() -> bool {
    !is_orphaned() && kill_current_process_group(Signal::STOP).is_ok()
}

/// Whether nobody in this session looks after our group.
fn is_orphaned() -> bool {
    let Ok(session) = getsid(None) else {
        return true;
    };
    let group = getpgrp();
    let mut parent = getppid();
    while let Some(stat) = parent.and_then(Stat::of) {
        if stat.session != Some(session) {
            return true;
        }
        if stat.group != Some(group) {
            return false;
        }
        parent = stat.parent;
    }
    true
}

//! The guardian's own side: one thread, no runtime, asleep until its time has come or its parent is gone.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use leasehold_core::clock::{self, BootAlarm};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, getpgrp};
use rustix::stdio::stdin;

use super::{Message, TITLE};
use crate::supervise::processes::Tree;

/// How often it looks whether anybody is left, while the job is being stopped.
const TICK: u64 = 10_000_000;

/// Does the guardian's work when this process was started as one; the first call of `main`.
pub(crate) fn guardian_main() -> Option<ExitCode> {
    let title = std::env::args_os().next()?;
    if !title.as_bytes().starts_with(TITLE.as_bytes()) {
        return None;
    }
    // Else lists of processes show the "exe" of /proc/self/exe.
    let _ = rustix::thread::set_name(c"leasehold-guard");
    // A failure ends the guardian, and its parent starts another.
    Some(match Watch::new().and_then(Watch::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

struct Watch {
    alarm: BootAlarm,
    tree: Tree,
    message: Option<Message>,
    /// The parent is gone.
    alone: bool,
    /// The job was asked to end.
    asked: bool,
}

impl Watch {
    fn new() -> io::Result<Self> {
        Ok(Self {
            alarm: BootAlarm::new()?,
            tree: Tree::new(getpgrp()),
            message: None,
            alone: false,
            asked: false,
        })
    }

    fn run(mut self) -> io::Result<()> {
        while !self.work()? {
            let mut fds = vec![PollFd::new(&self.alarm, PollFlags::IN)];
            let pipe = stdin();
            if !self.alone {
                fds.push(PollFd::from_borrowed_fd(pipe, PollFlags::IN));
            }
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let told = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
            // Before the alarm is looked at: a renewal told in the last moment counts.
            if told {
                self.read()?;
            }
        }
        Ok(())
    }

    /// Takes in the newest message, or that there will be none.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 64 * Message::BYTES];
        let length = match rustix::io::read(stdin(), &mut buffer) {
            Ok(length) => length,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if length == 0 {
            self.alone = true;
            if !self.tree.has_root() {
                // The parent died between starting the job and telling of it.
                self.tree.find_root(&own_environment());
            }
            if let Some(message) = &mut self.message {
                let now = clock::now().boot;
                let order = &mut message.order;
                order.term_at = order.term_at.min(now);
                order.kill_at = order.kill_at.min(now.saturating_add(message.grace));
            }
        }
        let (messages, _) = buffer[..length].as_chunks();
        if let Some(newest) = messages.last() {
            let message = Message::decode(*newest);
            let root = i32::try_from(message.root).ok().and_then(Pid::from_raw);
            if let Some(root) = root {
                self.tree.set_root(root);
            }
            self.message = Some(message);
        }
        Ok(())
    }

    /// Does what is due and sets the alarm; whether there is nothing left to do.
    fn work(&mut self) -> io::Result<bool> {
        let Some(Message { order, .. }) = self.message else {
            // Nothing was begun yet, so nothing is to be stopped.
            return Ok(self.alone);
        };
        let now = clock::now().boot;
        if now >= order.kill_at {
            self.tree.kill();
            return Ok(true);
        }
        if !self.asked && now >= order.term_at {
            self.asked = true;
            self.tree.terminate();
        }
        if self.asked && self.tree.is_gone() {
            return Ok(true);
        }
        self.alarm.set(if self.asked {
            order.kill_at.min(now.saturating_add(TICK))
        } else {
            order.term_at.min(order.kill_at)
        })?;
        Ok(false)
    }
}

/// The variables that this process and its job have, and no other job.
fn own_environment() -> Vec<Vec<u8>> {
    std::env::vars_os()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

//! The guardian's own side: one thread, no runtime, asleep until its time has come or its parent is gone.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_core::clock::{self, BootAlarm};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpgrp, pidfd_open};
use rustix::stdio::stdin;
use rustix::time::Timespec;

use super::{Message, ORPHANED, TITLE};
use crate::supervise::processes::Tree;
use crate::supervise::stop::Order;

/// How often it looks whether anybody is left where it can't wait for somebody's end.
const TICK: Duration = Duration::from_millis(50);

/// Does the guardian's work when this process was started as one; the first call of `main`.
pub(crate) fn guardian_main() -> Option<ExitCode> {
    let title = std::env::args_os().next()?;
    if !title.as_bytes().starts_with(TITLE.as_bytes()) {
        return None;
    }
    // Else lists of processes show the "exe" of /proc/self/exe. `pkill leasehold` is not to find it: it is what ends
    // the job then.
    let _ = rustix::thread::set_name(c"lease-guardian");
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
        while let Some(wait) = self.work()? {
            let mut fds = vec![PollFd::new(&self.alarm, PollFlags::IN)];
            let mut timeout = None;
            let pipe = stdin();
            if !self.alone {
                fds.push(PollFd::from_borrowed_fd(pipe, PollFlags::IN));
            }
            let end;
            if let Wait::For(somebody) = wait {
                match pidfd_open(somebody, PidfdFlags::empty()) {
                    Ok(fd) => {
                        end = fd;
                        fds.push(PollFd::new(&end, PollFlags::IN));
                    }
                    Err(_) => timeout = Timespec::try_from(TICK).ok(),
                }
            }
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let told = !self.alone && fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
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
            self.left_alone();
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

    /// The parent is gone: the job has to go too, and has little time.
    fn left_alone(&mut self) {
        self.alone = true;
        if !self.tree.has_root() {
            // It may have been killed between starting the job and telling of it.
            self.tree.find_root(&own_environment());
        }
        let now = clock::now().boot;
        // Without a message too: another guardian may have been here before.
        let message = self.message.get_or_insert(Message {
            order: Order {
                term_at: now,
                kill_at: u64::MAX,
            },
            grace: u64::try_from(ORPHANED.as_nanos()).unwrap_or(0),
            root: 0,
        });
        let order = &mut message.order;
        order.term_at = order.term_at.min(now);
        order.kill_at = order.kill_at.min(now.saturating_add(message.grace));
    }

    /// Does what is due and sets the alarm; what to wait for besides, or nothing when all is done.
    fn work(&mut self) -> io::Result<Option<Wait>> {
        let Some(Message { order, .. }) = self.message else {
            return Ok(Some(Wait::Alarm));
        };
        let now = clock::now().boot;
        if now >= order.kill_at {
            self.tree.kill();
            return Ok(None);
        }
        if !self.asked && now >= order.term_at {
            self.asked = true;
            self.tree.terminate();
        }
        if self.asked {
            self.alarm.set(order.kill_at)?;
            return Ok(self.tree.somebody().map(Wait::For));
        }
        self.alarm.set(order.term_at.min(order.kill_at))?;
        Ok(Some(Wait::Alarm))
    }
}

/// What to wait for besides the parent.
enum Wait {
    /// A time to come.
    Alarm,
    /// A time, or the end of this process.
    For(Pid),
}

/// The variables that this process and its job have, and no other job.
fn own_environment() -> Vec<Vec<u8>> {
    std::env::vars_os()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

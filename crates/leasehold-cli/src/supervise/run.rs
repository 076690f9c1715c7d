//! A job under way.

use std::io;

use leasehold::{Guard, HoldState};
use leasehold_core::clock;
use rustix::process::{Pid, Signal, getpgid, kill_process, kill_process_group};

use super::child::{self, Change};
use super::guardian::Guardian;
use super::stop::{Look, Stop, Why};
use super::terminal::{Terminal, stop_ourselves};
use super::{Ending, Job, SuperviseError};

pub(super) struct Run<'a> {
    guard: &'a Guard,
    stop: Stop,
    guardian: Guardian,
    /// The guardian has died and was waited for.
    unguarded: bool,
    /// The job's process.
    root: Pid,
    ended: Option<u8>,
    /// We stopped with the job, and let it go on when we do.
    suspended: bool,
}

impl<'a> Run<'a> {
    pub(super) fn start(
        mut job: Job,
        guard: &'a Guard,
        mut terminal: Option<&mut Terminal>,
    ) -> Result<Self, SuperviseError> {
        let stop = Stop::new(look_at(guard), job.kill_after, job.max_hold);
        let mut guardian = Guardian::start(guard.name().as_str(), &job).map_err(|error| {
            let what = format!("no second process for /proc/self/exe to guard it: {error}");
            io::Error::new(error.kind(), what)
        })?;
        guardian.tell(stop.order());
        if let Some(terminal) = &mut terminal
            && terminal.is_all_there_is()
        {
            terminal.give(guardian.group());
        }
        let root = match child::spawn(&mut job, guardian.group()) {
            Ok(root) => root,
            Err(error) => {
                guardian.dismiss();
                if let Some(terminal) = terminal {
                    terminal.take_back();
                }
                return Err(error);
            }
        };
        guardian.set_root(root, stop.order());
        Ok(Self {
            guard,
            stop,
            guardian,
            unguarded: false,
            root,
            ended: None,
            suspended: false,
        })
    }

    /// Looks at the hold and has the guardian know; answers when that was.
    pub(super) fn look(&mut self) -> u64 {
        let look = look_at(self.guard);
        self.stop.look(look);
        self.tell();
        if self.unguarded && self.ended.is_none() && !self.stop.is_killing(look.now) {
            // Should it fail, the next look tries again.
            self.unguarded = self.guardian.replace().is_err();
        }
        if self.stop.is_overdue(look.now) && self.ended.is_none() {
            self.signal(Signal::KILL);
        }
        look.now
    }

    fn tell(&mut self) {
        if !self.unguarded {
            self.guardian.tell(self.stop.order());
        }
    }

    /// When to look again.
    pub(super) fn look_at(&self, now: u64) -> u64 {
        self.stop.look_at(now)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.why().is_some()
    }

    /// Whether there is nothing left to wait for. A job that ended by itself may leave processes behind; one
    /// that is being stopped is over when the guardian has seen to all of it.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() && (!self.is_stopping() || self.unguarded)
    }

    /// Takes in what happened to children.
    pub(super) fn take_in(&mut self, changes: &[(Pid, Change)], terminal: Option<&mut Terminal>) {
        let mut stopped_by = None;
        for &(pid, change) in changes {
            if pid == self.guardian.pid() {
                match change {
                    Change::Ended(_) => self.unguarded = true,
                    Change::Stopped(_) => self.guardian.wake(),
                    Change::Continued => {}
                }
            } else if pid == self.root {
                match change {
                    Change::Ended(code) => {
                        self.ended = Some(code);
                        self.stop.ended();
                    }
                    Change::Stopped(signal) => stopped_by = Signal::from_named_raw(signal),
                    Change::Continued => stopped_by = None,
                }
            }
        }
        // Before anybody asks whether it is over: it may have ended because the lock did.
        self.look();
        if let Some(signal) = stopped_by
            && let Some(terminal) = terminal
            && self.ended.is_none()
            && !self.is_stopping()
        {
            self.stopped(signal, terminal);
        }
    }

    /// A signal of the user's goes to the job.
    pub(super) fn pass_on(&mut self, signal: Signal) {
        let ends = matches!(signal, Signal::INT | Signal::TERM);
        if !ends || self.stop.ask(clock::now().boot) {
            self.signal(signal);
        } else {
            self.tell();
        }
    }

    /// Sends a signal to the job's group, and to its process where that left the group.
    pub(super) fn signal(&self, signal: Signal) {
        if self.ended.is_some() {
            return;
        }
        // Errors: there is nobody left, or it is another user's by now.
        let _ = kill_process_group(self.guardian.group(), signal);
        if getpgid(Some(self.root)) != Ok(self.guardian.group()) {
            let _ = kill_process(self.root, signal);
        }
    }

    /// The job was stopped, on a terminal.
    fn stopped(&mut self, signal: Signal, terminal: &mut Terminal) {
        let wants_terminal = matches!(signal, Signal::TTIN | Signal::TTOU);
        if wants_terminal && terminal.is_ours() {
            self.give(terminal);
            return self.signal(Signal::CONT);
        }
        terminal.take_back();
        self.suspended = true;
        if stop_ourselves() {
            // Stopped here. What comes after is `go_on`'s.
            return;
        }
        self.suspended = false;
        match signal {
            // The kernel does the same to those who can't be let go on by a shell.
            Signal::TTIN | Signal::TTOU => {
                self.signal(Signal::HUP);
                self.signal(Signal::CONT);
            }
            Signal::TSTP => {
                self.give(terminal);
                self.signal(Signal::CONT);
            }
            // Somebody stopped it by hand, and will let it go on by hand.
            _ => {}
        }
    }

    /// We go on after a stop, and the job does if the lock is still held.
    pub(super) fn go_on(&mut self, terminal: Option<&mut Terminal>) {
        self.look();
        if !std::mem::take(&mut self.suspended) || self.is_stopping() {
            return;
        }
        if let Some(terminal) = terminal
            && terminal.is_ours()
        {
            self.give(terminal);
        }
        self.signal(Signal::CONT);
    }

    fn give(&self, terminal: &mut Terminal) {
        if let Ok(group) = getpgid(Some(self.root)) {
            terminal.give(group);
        }
    }

    /// Says what became of it, once it is over.
    pub(super) fn finish(self, terminal: Option<&mut Terminal>) -> Ending {
        let is_held = self.guard.is_held();
        let why = self.stop.why();
        if let Some(terminal) = terminal
            && terminal.take_back()
            && why.is_some()
        {
            terminal.restore();
        }
        if !self.unguarded {
            self.guardian.dismiss();
        }
        let code = self.ended.unwrap_or(0);
        match why {
            None | Some(Why::Asked) if is_held => Ending::Exited(code),
            Some(Why::MaxHold) if is_held => Ending::MaxHold,
            _ => Ending::Lost(match self.guard.state() {
                HoldState::Lost(reason) => Some(reason),
                _ => None,
            }),
        }
    }
}

/// Reads how a hold stands.
fn look_at(guard: &Guard) -> Look {
    // The clock first: what remains is then counted from no later.
    let now = clock::now().boot;
    Look {
        now,
        remaining: guard.remaining(),
        lost: match guard.state() {
            HoldState::Lost(reason) => Some(reason),
            _ => None,
        },
    }
}

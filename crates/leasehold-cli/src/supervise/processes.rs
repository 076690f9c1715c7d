//! The job's processes, as `/proc` shows them.
//!
//! A job is its process group and whoever descends from it: `timeout` makes a group of its own and `setsid` a
//! session, and both are of the job as long as the chain of parents to it is whole. Who leaves the group and
//! loses its parent too (a daemon) is out of reach, and so is a process that changed to another user when we
//! aren't root; a systemd unit's cgroup catches both.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

/// How often new processes are looked for while stopping them all.
const ROUNDS: usize = 16;

/// A process, and when it began: a pid alone may be somebody else's later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) pid: Pid,
    started: u64,
}

impl Process {
    fn is_there(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.process == self)
    }
}

/// What `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    pub(super) process: Process,
    pub(super) parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    pub(super) session: Option<Pid>,
    /// Ended, and not yet waited for.
    pub(super) is_dead: bool,
}

impl Stat {
    /// The process with this pid, if there is one to be seen.
    pub(super) fn of(pid: Pid) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(pid, &text)
    }

    fn parse(pid: Pid, text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may hold blanks and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let id = |index: usize| {
            let raw: i32 = fields.get(index)?.parse().ok()?;
            Pid::from_raw(raw)
        };
        Some(Self {
            process: Process {
                pid,
                started: fields.get(19)?.parse().ok()?,
            },
            parent: id(1),
            group: id(2),
            session: id(3),
            is_dead: matches!(*fields.first()?, "Z" | "X" | "x"),
        })
    }
}

fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|raw| Stat::of(Pid::from_raw(raw)?))
        .collect()
}

fn has_environment(pid: Pid, wanted: &[Vec<u8>]) -> bool {
    // It fails for another user's.
    let text = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    let variables: HashSet<&[u8]> = text.split(|byte| *byte == 0).collect();
    wanted
        .iter()
        .all(|variable| variables.contains(variable.as_slice()))
}

/// The processes of a job.
#[derive(Debug)]
pub(super) struct Tree {
    group: Pid,
    /// The process the job began with, wherever it went.
    root: Option<Process>,
    /// Those seen outside the group: they stay the job's when their parents die.
    outside: HashSet<Process>,
    /// Who was alive when it was last looked at.
    seen: Vec<Process>,
}

impl Tree {
    /// The tree of a process group that this process may be in; it doesn't count as a part of the job.
    pub(super) fn new(group: Pid) -> Self {
        Self {
            group,
            root: None,
            outside: HashSet::new(),
            seen: Vec::new(),
        }
    }

    /// Says which process the job began with.
    pub(super) fn set_root(&mut self, pid: Pid) {
        if self.root.is_none_or(|root| root.pid != pid) {
            self.root = Stat::of(pid).map(|stat| stat.process);
        }
    }

    /// Whether it is known which process the job began with.
    pub(super) fn has_root(&self) -> bool {
        self.root.is_some()
    }

    /// Finds the process the job began with: the oldest with all of this environment, which no other job has.
    pub(super) fn find_root(&mut self, environment: &[Vec<u8>]) {
        if environment.is_empty() {
            return;
        }
        self.root = all()
            .into_iter()
            .map(|stat| stat.process)
            .filter(|process| process.pid != getpid() && has_environment(process.pid, environment))
            .min_by_key(|process| process.started);
    }

    /// Looks who is alive of it.
    fn look(&mut self) {
        let me = getpid();
        let all = all();
        let mut members = HashSet::new();
        loop {
            let before = members.len();
            for stat in &all {
                let process = stat.process;
                let is_ours = stat.group == Some(self.group)
                    || self.root == Some(process)
                    || self.outside.contains(&process)
                    || stat.parent.is_some_and(|parent| members.contains(&parent));
                if is_ours
                    && process.pid != me
                    && members.insert(process.pid)
                    && stat.group != Some(self.group)
                {
                    self.outside.insert(process);
                }
            }
            if members.len() == before {
                break;
            }
        }
        self.seen = all
            .iter()
            .filter(|stat| members.contains(&stat.process.pid) && !stat.is_dead)
            .map(|stat| stat.process)
            .collect();
    }

    /// Looks who is left of it: somebody, if anybody is.
    pub(super) fn somebody(&mut self) -> Option<Pid> {
        self.look();
        self.seen.first().map(|process| process.pid)
    }

    /// Asks it to end, also where it is stopped: the group, and the process the job began with where that
    /// left the group (as `timeout` does). The others outside are their parents' to tell, as a second TERM
    /// means something else to many programs.
    pub(super) fn terminate(&mut self) {
        // Seen now, they stay known when their parents are gone.
        self.look();
        for signal in [Signal::TERM, Signal::CONT] {
            // Errors: it has just ended, or is another user's.
            let _ = kill_process_group(self.group, signal);
            if let Some(root) = self.root
                && self.outside.contains(&root)
                && root.is_there()
            {
                let _ = kill_process(root.pid, signal);
            }
        }
    }

    /// Kills it all. If this process is in the group, it is killed too, as the last act.
    pub(super) fn kill(&mut self) {
        // Stopped first, so that none has a child that is never seen. Those seen before at once: looking at all
        // processes takes a while, and from here on the job is to do nothing.
        let mut stopped: HashSet<Process> = HashSet::new();
        self.seen.retain(|process| process.is_there());
        for _ in 0..ROUNDS {
            let before = stopped.len();
            for process in &self.seen {
                if stopped.insert(*process) {
                    let _ = kill_process(process.pid, Signal::STOP);
                }
            }
            self.look();
            if stopped.len() == before && self.seen.iter().all(|process| stopped.contains(process))
            {
                break;
            }
        }
        for process in stopped {
            if self.outside.contains(&process) {
                let _ = kill_process(process.pid, Signal::KILL);
            }
        }
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_parentheses_and_blanks_is_no_trap() {
        let pid = Pid::from_raw(77).unwrap();
        let text = "77 (a) Z 1 (b c) S 5 6 7 0 -1 0 0 0 0 0 0 0 0 0 0 0 1 0 4242 0";
        let stat = Stat::parse(pid, text).unwrap();
        assert_eq!(stat.parent, Pid::from_raw(5));
        assert_eq!(stat.group, Pid::from_raw(6));
        assert_eq!(stat.session, Pid::from_raw(7));
        assert_eq!(stat.process.started, 4242);
        assert!(!stat.is_dead);
    }

    #[test]
    fn a_job_in_a_session_of_its_own_is_found_by_its_environment() {
        let mark = format!("PROCESSES_TEST={}", getpid().as_raw_nonzero());
        let (name, value) = mark.split_once('=').unwrap();
        let mut child = std::process::Command::new("setsid")
            .args(["sleep", "100"])
            .env(name, value)
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        let mut tree = Tree::new(rustix::process::getpgrp());
        tree.find_root(&[]);
        assert!(!tree.has_root(), "found without a mark");
        tree.find_root(&[mark.clone().into_bytes(), b"PROCESSES_TEST=other".to_vec()]);
        assert!(!tree.has_root(), "found by one mark of two");
        tree.find_root(&[mark.clone().into_bytes()]);
        assert_eq!(tree.root.map(|root| root.pid), Some(pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn this_process_is_seen() {
        let stat = Stat::of(getpid()).unwrap();
        assert_eq!(stat.parent, rustix::process::getppid());
        assert_eq!(stat.group, Some(rustix::process::getpgrp()));
    }
}

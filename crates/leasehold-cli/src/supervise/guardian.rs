//! The guardian: a small process that stops the job, whatever happens to this one.
//!
//! It leads the job's process group and holds the reading end of a pipe that ends with this process. What it
//! is told through it is when to send TERM and KILL; each renewal moves that. So a killed `leasehold` takes
//! its job along at once, and a frozen one before the lease is over. One place stops jobs: also while all is
//! well it is the guardian that does it.

mod process;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::stop::Order;
use super::{Job, signals};

pub(crate) use process::guardian_main;

/// The guardian's whole argument list begins with this; nobody types it by accident, and it tells what the
/// process is.
const TITLE: &str = "leasehold: guardian of ";
/// How long a job may take to end at most when `leasehold` was killed: the next holder is waiting.
pub(crate) const ORPHANED: Duration = Duration::from_secs(1);

/// What goes through the pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    order: Order,
    /// How long the job has to end once this process is gone, in nanoseconds.
    grace: u64,
    /// The process the job began with; zero while there is none.
    root: u64,
}

impl Message {
    const BYTES: usize = 32;

    fn encode(self) -> [u8; Self::BYTES] {
        let fields = [
            self.order.term_at,
            self.order.kill_at,
            self.grace,
            self.root,
        ];
        let mut bytes = [0; Self::BYTES];
        for (slot, field) in bytes.chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: [u8; Self::BYTES]) -> Self {
        let mut fields = [0; 4];
        for (field, slot) in fields.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *field = u64::from_le_bytes(*slot);
        }
        let [term_at, kill_at, grace, root] = fields;
        Self {
            order: Order { term_at, kill_at },
            grace,
            root,
        }
    }
}

/// A running guardian, as its parent has it. Dropping it has the job stopped.
#[derive(Debug)]
pub(super) struct Guardian {
    title: String,
    /// What the job's environment has of its own.
    env: Vec<(OsString, OsString)>,
    pid: Pid,
    /// The job's process group.
    group: Pid,
    pipe: io::PipeWriter,
    grace: u64,
    root: Option<Pid>,
    told: Option<Message>,
}

impl Guardian {
    /// Starts a guardian and with it the job's process group.
    pub(super) fn start(name: &str, job: &Job) -> io::Result<Self> {
        let title = format!("{TITLE}{name}");
        let env = job.env.clone();
        let (pid, pipe) = spawn(&title, &env, None)?;
        let grace = job.orphaned_after;
        Ok(Self {
            title,
            env,
            pid,
            group: pid,
            pipe,
            grace: u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX),
            root: None,
            told: None,
        })
    }

    /// Starts another one after this one's death. It joins the group, so that nothing changes for the job.
    pub(super) fn replace(&mut self) -> io::Result<()> {
        let (pid, pipe) = match spawn(&self.title, &self.env, Some(self.group)) {
            // The job left the group, so it ended with the guardian.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let (pid, pipe) = spawn(&self.title, &self.env, None)?;
                self.group = pid;
                (pid, pipe)
            }
            other => other?,
        };
        self.pid = pid;
        self.pipe = pipe;
        let told = self.told.take();
        if let Some(Message { order, .. }) = told {
            self.tell(order);
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// The job has begun, with this process.
    pub(super) fn set_root(&mut self, root: Pid, order: Order) {
        self.root = Some(root);
        self.tell(order);
    }

    /// Tells it when to stop the job.
    pub(super) fn tell(&mut self, order: Order) {
        let root = self.root.map_or(0, |root| root.as_raw_nonzero().get());
        let message = Message {
            order,
            grace: self.grace,
            root: u64::try_from(root).unwrap_or(0),
        };
        if self.told != Some(message) {
            // Fewer bytes than a pipe takes as a whole. It fails when the guardian has died, which we are
            // told, and when it is stopped for so long that the pipe is full: then the next one goes.
            let sent = self.pipe.write(&message.encode()).is_ok();
            self.told = sent.then_some(message);
        }
    }

    /// Goes on with a guardian that somebody stopped.
    pub(super) fn wake(&self) {
        let _ = kill_process(self.pid, Signal::CONT);
    }

    /// Ends it and leaves what there is of the job alone. Must not be called after its death was waited for.
    pub(super) fn dismiss(self) {
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

fn spawn(
    title: &str,
    env: &[(OsString, OsString)],
    group: Option<Pid>,
) -> io::Result<(Pid, io::PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    ioctl_fionbio(&writer, true)?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(title)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::from(reader))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(group.map_or(0, |group| group.as_raw_nonzero().get()));
    // It begins with every signal blocked and leaves it at that: what is sent to the job's group, what a
    // terminal sends too, neither ends nor stops it.
    let child = signals::blocked(|| command.spawn())??;
    let pid = super::child::pid_of(&child);
    pid.map(|pid| (pid, writer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_pipe() {
        let message = Message {
            order: Order {
                term_at: 1,
                kill_at: u64::MAX,
            },
            grace: 1 << 40,
            root: 77,
        };
        assert_eq!(Message::decode(message.encode()), message);
    }
}

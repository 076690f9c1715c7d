//! A server's process.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use leasehold_core::clock;
use rustix::process::{Pid, Signal, kill_process};

use super::{Failure, Result};
use crate::freezing;

/// How long a server may take to end when asked to.
const STOP_MAX: Duration = Duration::from_secs(20);
/// How often is looked whether something has come about.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// A running server. Dropping it kills it; so does the death of this process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; what it prints goes to the file `log`.
    pub(super) fn start(command: &Command, log: &Path) -> Result<Self> {
        let out = File::create(log).map_err(Failure::of(log.display()))?;
        let errors = out.try_clone().map_err(Failure::of(log.display()))?;
        // What ends with a signal to this process, or with its test's static, is dropped by nobody.
        let mut guarded = Command::new("setpriv");
        guarded
            .args(["--pdeathsig", "KILL", "--"])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(errors);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => guarded.env(name, value),
                None => guarded.env_remove(name),
            };
        }
        let child = spawn(guarded).map_err(Failure::of(
            "setpriv (of util-linux) can't be started; it ends the server when the test ends",
        ))?;
        Ok(Self {
            child,
            log: log.to_path_buf(),
        })
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The process's id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed.
    pub(super) fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Stops it where it stands (SIGSTOP); its connections stay open. On return no thread of it runs.
    pub(super) fn freeze(&self) -> Result<()> {
        freezing::freeze(Pid::from_child(&self.child)).map_err(Failure::of("freezing the server"))
    }

    /// Lets it go on (SIGCONT).
    pub(super) fn thaw(&self) -> Result<()> {
        freezing::thaw(Pid::from_child(&self.child))
            .map_err(Failure::of("letting the server go on"))
    }

    /// Ends it at once (SIGKILL), frozen or not.
    pub(super) fn kill(mut self) -> Result<()> {
        self.end()
    }

    /// Asks it to end by a signal and waits.
    pub(super) fn stop(mut self, signal: Signal) -> Result<()> {
        self.signal(signal)?;
        self.thaw()?;
        let asked = clock::now();
        while self.ended().is_none() {
            if clock::now().since(asked).steady > STOP_MAX {
                return Err(Failure::new(format!(
                    "the server didn't end within {STOP_MAX:?}:\n{}",
                    self.log()
                )));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        // Killing what has ended already is no error, and waiting twice isn't either.
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(drop).map_err(Failure::of("killing the server"))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // The child isn't waited for while this exists, so its id is nobody else's.
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(Failure::of("signalling the server"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It can't be reported from here, and the parent-death signal is left.
        let _ = self.end();
    }
}

type Reply = Sender<io::Result<Child>>;

/// Starts a command from a thread that lives as long as the process: the parent-death signal is sent when the
/// *thread* that started a child ends, and a test's thread ends before those that share its server.
fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: LazyLock<Mutex<Sender<(Command, Reply)>>> = LazyLock::new(|| {
        let (orders, received) = channel::<(Command, Reply)>();
        thread::spawn(move || {
            for (mut command, reply) in received {
                // Who ordered waits for the reply.
                let _ = reply.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (reply, answer) = channel();
    let orders = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    let gone = || io::Error::other("the thread that starts servers is gone");
    orders.send((command, reply)).map_err(|_| gone())?;
    drop(orders);
    answer.recv().map_err(|_| gone())?
}

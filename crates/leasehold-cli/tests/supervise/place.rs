//! A folder with a store of its own, and a view of the processes that belong to it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use leasehold_core::clock;
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");
/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// In the environment of every process of a place, so that a job's are found wherever they went.
const MARK: &str = "SUPERVISE_TEST_PLACE";

pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite://{}", self.path("locks.db").display())
    }

    /// A command in this place's environment.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("LEASEHOLD_STORE", self.store())
            .env(MARK, self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// `leasehold run x OPTIONS -- JOB`.
    pub(crate) fn run(&self, options: &[&str], job: &[&str]) -> Command {
        let mut command = self.command(LEASEHOLD);
        command.args(["run", "x"]).args(options).arg("--").args(job);
        command
    }

    /// As [`run`](Self::run), with a job for `sh`.
    pub(crate) fn run_script(&self, options: &[&str], script: &str) -> Command {
        self.run(options, &["sh", "-c", script])
    }

    /// The processes of this place but `leasehold` itself; one that has ended doesn't count.
    pub(crate) fn job(&self) -> Vec<Pid> {
        let mark = format!("{MARK}={}", self.folder.path().display());
        processes()
            .filter(|pid| fs::read_link(proc(*pid, "exe")).is_ok_and(|exe| !is_leasehold(&exe)))
            .filter(|pid| {
                fs::read(proc(*pid, "environ")).is_ok_and(|environment| {
                    environment
                        .split(|byte| *byte == 0)
                        .any(|variable| variable == mark.as_bytes())
                })
            })
            .collect()
    }

    /// Waits until the job has so many processes, and each has come to rest.
    pub(crate) fn wait_for_job(&self, count: usize) -> Vec<Pid> {
        wait_until("the job has begun", || {
            let job = self.job();
            let rests = job.iter().all(|pid| matches!(state(*pid), Some('S' | 'T')));
            (job.len() == count && rests).then_some(job)
        })
    }

    pub(crate) fn wait_for_no_job(&self) {
        let begun = clock::now();
        loop {
            let left = self.job();
            if left.is_empty() {
                return;
            }
            let lines = left
                .iter()
                .map(|pid| fs::read_to_string(proc(*pid, "cmdline")));
            let late = clock::now().since(begun).steady > PATIENCE;
            assert!(!late, "still alive: {:?}", lines.collect::<Vec<_>>());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for a file and answers what is in it.
    pub(crate) fn wait_for_file(&self, name: &str) -> String {
        wait_until(name, || {
            fs::read_to_string(self.path(name))
                .ok()
                .filter(|text| text.ends_with('\n'))
        })
    }

    /// Waits until the lock can be had, in less than the TTL of who held it before.
    pub(crate) fn wait_for_lock(&self) {
        wait_until("the lock is free", || {
            self.run(&[], &["true"])
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success()
                .then_some(())
        });
    }
}

impl Drop for Place {
    /// A test that failed leaves nothing behind.
    fn drop(&mut self) {
        for pid in self.job() {
            send(pid, Signal::KILL);
        }
    }
}

/// A `leasehold` in the background; it is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self {
            child: command.spawn().unwrap(),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap()).unwrap()
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// The exit code, or 128 and the signal.
    pub(crate) fn code(&mut self) -> i32 {
        code(wait_until("leasehold ends", || {
            self.child.try_wait().unwrap()
        }))
    }

    /// Its guardian.
    pub(crate) fn guardian(&self) -> Pid {
        wait_until("there is a guardian", || {
            guardians(self.pid()).into_iter().next()
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The living guardians that are children of this process.
pub(crate) fn guardians(parent: Pid) -> Vec<Pid> {
    processes()
        .filter(|pid| {
            fs::read(proc(*pid, "cmdline"))
                .is_ok_and(|line| line.starts_with(b"leasehold: guardian of x"))
        })
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

pub(crate) fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// Waits for a command and takes in its output. What holds its outputs open makes this fail.
pub(crate) fn output(command: &mut Command) -> Output {
    let command = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(command.wait_with_output()));
    match receiver.recv_timeout(PATIENCE) {
        Ok(output) => output.unwrap(),
        Err(_) => panic!("its outputs stay open; there are {:#?}", all_of_ours()),
    }
}

/// Every `leasehold`, guardian and job there is, of other tests too, to find out who hangs.
fn all_of_ours() -> Vec<String> {
    let show = |pid| {
        let line = fs::read_to_string(proc(pid, "cmdline")).ok()?;
        let waits = fs::read_to_string(proc(pid, "wchan")).unwrap_or_default();
        let environment = fs::read(proc(pid, "environ")).unwrap_or_default();
        let is_ours =
            line.starts_with("leasehold: ") || String::from_utf8_lossy(&environment).contains(MARK);
        is_ours.then(|| {
            let parent = parent_of(pid);
            format!(
                "{pid:?} of {parent:?} {:?} {waits} {}",
                state(pid),
                line.replace('\0', " ")
            )
        })
    };
    processes().filter_map(show).collect()
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn send(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

/// Looks until there is an answer.
pub(crate) fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = clock::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(clock::now().since(begun).steady < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn processes() -> impl Iterator<Item = Pid> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
}

fn proc(pid: Pid, file: &str) -> String {
    format!("/proc/{}/{file}", pid.as_raw_nonzero())
}

fn is_leasehold(exe: &std::path::Path) -> bool {
    // The path of a program that was built anew ends in " (deleted)".
    exe.to_string_lossy().starts_with(LEASEHOLD)
}

fn parent_of(pid: Pid) -> Option<Pid> {
    Pid::from_raw(stat(pid, 1)?.parse().ok()?)
}

/// `S` asleep, `T` stopped, and so on.
pub(crate) fn state(pid: Pid) -> Option<char> {
    stat(pid, 0)?.chars().next()
}

/// Whether what is typed goes to this one's group of processes.
pub(crate) fn has_terminal(pid: Pid) -> bool {
    let group = stat(pid, 2);
    group.is_some() && group == stat(pid, 5)
}

/// A field of `/proc/PID/stat`, counted after the program's name.
fn stat(pid: Pid, field: usize) -> Option<String> {
    let text = fs::read_to_string(proc(pid, "stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(field).map(str::to_owned)
}

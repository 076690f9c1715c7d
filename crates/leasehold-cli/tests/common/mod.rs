//! A host of its own for each test: a folder, an environment, and the command in it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than anything here takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Every subcommand.
pub(crate) const COMMANDS: [&str; 15] = [
    "run",
    "acquire",
    "extend",
    "release",
    "status",
    "list",
    "break",
    "doctor",
    "fence",
    "once",
    "redlock",
    "schema",
    "config",
    "completions",
    "man",
];

pub(crate) struct Host {
    folder: tempfile::TempDir,
    /// Another store than a file in the folder.
    store: Option<String>,
}

/// What a call came to.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Host {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self {
            folder,
            store: None,
        }
    }

    /// A host whose store is elsewhere.
    pub(crate) fn on(store: impl Into<String>) -> Self {
        Self {
            store: Some(store.into()),
            ..Self::new()
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn store(&self) -> String {
        match &self.store {
            Some(store) => store.clone(),
            None => format!("sqlite://{}/locks.db", self.path().display()),
        }
    }

    /// The command with nothing set but a path and a home.
    pub(crate) fn bare(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// The command with a store in the host's folder.
    pub(crate) fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = self.bare(args);
        command.env("LEASEHOLD_STORE", self.store());
        command
    }

    pub(crate) fn run(&self, args: &[impl AsRef<OsStr>]) -> Done {
        done(&mut self.command(args))
    }

    /// A job that holds `name` until it is told to end.
    pub(crate) fn hold(&self, name: &str, options: &[&str]) -> Holding {
        let job = ["--", "sh", "-c", "echo held; read line; exit 0"];
        let args: Vec<&str> = ["run", name]
            .iter()
            .chain(options)
            .chain(&job)
            .copied()
            .collect();
        let mut child = self
            .command(&args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "held\n");
        Holding {
            stdin: child.stdin.take(),
            child: Some(child),
        }
    }

    /// Waits until `name` has so many waiters.
    pub(crate) fn await_waiters(&self, name: &str, count: usize) {
        eventually(|| {
            let status = self.run(&["status", name, "--json"]).json();
            status["waiters"].as_array().unwrap().len() == count
        });
    }
}

/// A job that runs.
pub(crate) struct Holding {
    child: Option<Child>,
    stdin: Option<ChildStdin>,
}

impl Holding {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().unwrap())
    }

    /// Lets the job end.
    pub(crate) fn end(mut self) -> Done {
        drop(self.stdin.take());
        self.wait()
    }

    /// Waits for it to end by itself.
    pub(crate) fn wait(mut self) -> Done {
        self.child
            .take()
            .unwrap()
            .wait_with_output()
            .unwrap()
            .into()
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(self.stdin.take());
            let _ = child.wait();
        }
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Done {
    /// Standard output, one JSON object.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {:?} {:?}", self.out, self.err))
    }

    /// The lines of standard error, each a JSON object.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.err
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[track_caller]
    pub(crate) fn is(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout {:?}, stderr {:?}",
            self.out,
            self.err
        );
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text), "{text:?} is not in {:?}", self.err);
        self
    }
}

pub(crate) fn done(command: &mut Command) -> Done {
    command.output().unwrap().into()
}

pub(crate) fn signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

/// `store = value  (origin)` as `config` prints it.
#[track_caller]
pub(crate) fn shows(done: &Done, line: &str) {
    assert!(
        done.out.lines().any(|shown| shown == line),
        "{line:?} is not in {}",
        done.out
    );
}

#[track_caller]
pub(crate) fn eventually(mut fact: impl FnMut() -> bool) {
    let begun = leasehold_core::clock::now();
    while !fact() {
        assert!(
            leasehold_core::clock::now().since(begun).steady < LONG,
            "it never came true"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The text with every number as N and every duration as D, so that two runs say the same.
pub(crate) fn mask(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        masked.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = duration_length(rest);
        if length > 0 {
            masked.push('D');
            rest = &rest[length..];
        } else {
            masked.push('N');
            rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        }
    }
    masked + rest
}

/// How many bytes at the beginning of `text` are a duration.
fn duration_length(text: &str) -> usize {
    let mut end = 0;
    loop {
        let digits = text[end..].len()
            - text[end..]
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .len();
        let unit = ["ms", "d", "h", "m", "s"]
            .iter()
            .find(|unit| text[end + digits..].starts_with(**unit));
        match unit {
            Some(unit) if digits > 0 => end += digits + unit.len(),
            _ => break,
        }
    }
    let whole = !text[end..].starts_with(|c: char| c.is_alphanumeric());
    if whole { end } else { 0 }
}

/// Who runs the tests, as the command shows it: `root@host`.
pub(crate) fn me() -> String {
    let identity = leasehold::Identity::of_this_process();
    format!("{}@{}", identity.user, identity.host)
}

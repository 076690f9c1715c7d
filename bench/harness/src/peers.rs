//! Who takes part: leasehold, the raw driver, and the peers that could be brought.

use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_bench_load::{Result, text};

use crate::server::Store;
use crate::subjects;
use crate::worker::Worker;

/// Somebody who takes part.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Its tries are plain SETs; a script's own commands are counted too and are no requests.
    pub(crate) sets: bool,
    start: std::result::Result<Start, String>,
}

/// What it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Leasehold,
    /// The least that a lock can be; it can't wait.
    Raw,
    Peer,
}

type Start = Box<dyn Fn(&str) -> Result<Command>>;

impl Entry {
    fn own(name: &'static str, kind: Kind, word: &'static str) -> Self {
        Self {
            name,
            kind,
            sets: kind == Kind::Raw,
            start: Ok(Box::new(move |url| subjects::command(&[word, url]))),
        }
    }

    /// A worker of it, connected to `url`.
    pub(crate) fn worker(&self, url: &str) -> Result<Worker> {
        match &self.start {
            Ok(start) => Worker::start(start(url)?),
            Err(why) => Err(why.clone()),
        }
    }

    /// Why it can't take part.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.start.as_ref().err().map(String::as_str)
    }
}

/// leasehold, and second the raw driver, which the others are compared with.
pub(crate) fn ours(store: Store) -> [Entry; 2] {
    let raw = match store {
        Store::Sqlite => "raw rusqlite",
        Store::Redis => "raw redis-rs 1.8.1",
        Store::Redlock => "raw redis-rs 1.8.1, two phases",
        Store::Etcd => "raw tonic, two transactions",
    };
    [
        Entry::own("**leasehold**", Kind::Leasehold, "leasehold"),
        Entry::own(raw, Kind::Raw, "raw"),
    ]
}

/// etcd's own lock service: part of the server, so that nothing has to be brought.
pub(crate) fn lock_service() -> Entry {
    Entry::own("etcd lock service", Kind::Peer, "lock-service")
}

/// Brings the peers on Redis. One that can't be had says why in the tables.
pub(crate) fn bring(target: &Path) -> Result<Vec<Entry>> {
    let sources = sources()?;
    let rust = rust(&sources, target);
    Ok(vec![
        peer("rslock 0.7.3", true, of_rust(&rust, "rslock")),
        peer(
            "distributed-lock-redis 0.2.0",
            true,
            of_rust(&rust, "distributed-lock"),
        ),
        peer("redis-py 8.1.0", true, python(&sources, target)),
        peer("node redlock 5.0.0-beta.2", false, node(&sources, target)),
    ])
}

/// Brings the peers that lock on a majority of several Redis.
pub(crate) fn on_nodes(target: &Path) -> Result<Vec<Entry>> {
    let sources = sources()?;
    let rust = rust(&sources, target);
    Ok(vec![
        peer("rslock 0.7.3", true, of_rust(&rust, "rslock")),
        peer("node redlock 5.0.0-beta.2", false, node(&sources, target)),
        peer("pottery 3.0.1", true, python(&sources, target)),
    ])
}

fn sources() -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
    sources.canonicalize().map_err(text)
}

fn peer(name: &'static str, sets: bool, start: std::result::Result<Start, String>) -> Entry {
    Entry {
        name,
        kind: Kind::Peer,
        sets,
        start,
    }
}

fn of_rust(program: &Result<PathBuf>, word: &'static str) -> Result<Start> {
    let program = program.clone()?;
    Ok(Box::new(move |url: &str| {
        let mut command = Command::new(&program);
        command.args([word, url]);
        Ok(command)
    }))
}

fn rust(sources: &Path, target: &Path) -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "--manifest-path",
        ])
        .arg(sources.join("rust/Cargo.toml"))
        .arg("--target-dir")
        .arg(target);
    succeed(build)?;
    Ok(target.join("release/leasehold-bench-peers"))
}

fn python(sources: &Path, target: &Path) -> Result<Start> {
    let folder = target.join("peers/python");
    let worker = sources.join("python/worker.py");
    let there = ["redis", "pottery"].map(|name| folder.join(name).exists());
    if there.contains(&false) {
        let mut install = Command::new("python3");
        install
            .args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args(["--require-hashes", "--root-user-action=ignore"])
            .arg("--requirement")
            .arg(sources.join("python/requirements.txt"))
            .args(["--upgrade", "--target"])
            .arg(&folder);
        succeed(install)?;
    }
    Ok(Box::new(move |url| {
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", &folder).arg(&worker).arg(url);
        Ok(command)
    }))
}

fn node(sources: &Path, target: &Path) -> Result<Start> {
    let folder = target.join("peers/node");
    std::fs::create_dir_all(&folder).map_err(text)?;
    for file in ["package.json", "package-lock.json", "worker.mjs"] {
        std::fs::copy(sources.join("node").join(file), folder.join(file)).map_err(text)?;
    }
    if !folder.join("node_modules/redlock").exists() {
        let mut install = Command::new("npm");
        install
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(&folder);
        succeed(install)?;
    }
    Ok(Box::new(move |url| {
        let mut command = Command::new("node");
        command.arg(folder.join("worker.mjs")).arg(url);
        Ok(command)
    }))
}

/// Runs a command whose output is no part of the tables.
fn succeed(mut command: Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{program} can't be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    eprintln!("{said}");
    let last = said.lines().last().unwrap_or_default();
    Err(format!("{program} failed: {last}"))
}

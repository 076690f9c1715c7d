//! Brings the peers from where they are published, and says how their workers start.

use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_bench_load::{Result, text};
use leasehold_testkit::servers::ZooKeeper;

/// Makes the command of a worker for a URL.
pub(crate) type Start = Box<dyn Fn(&str) -> Result<Command>>;

/// Where peers come from and go to.
pub(crate) struct Bring {
    sources: PathBuf,
    target: PathBuf,
}

impl Bring {
    pub(crate) fn new(target: &Path) -> Result<Self> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
        Ok(Self {
            sources: sources.canonicalize().map_err(text)?,
            target: target.to_owned(),
        })
    }

    /// The Rust peer called `word`, which takes these features.
    pub(crate) fn rust(&self, word: &'static str, features: &str) -> Result<Start> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut build = Command::new(cargo);
        build
            .args(["build", "--release", "--quiet", "--locked"])
            .args(["--features", features])
            .arg("--manifest-path")
            .arg(self.sources.join("rust/Cargo.toml"))
            .arg("--target-dir")
            .arg(&self.target);
        succeed(build)?;
        let program = self.target.join("release/leasehold-bench-peers");
        Ok(Box::new(move |url: &str| {
            let mut command = Command::new(&program);
            command.args([word, url]);
            Ok(command)
        }))
    }

    /// The Python peer for the store of the URL.
    pub(crate) fn python(&self) -> Result<Start> {
        let folder = self.target.join("peers/python");
        let worker = self.sources.join("python/worker.py");
        let wanted = self.sources.join("python/requirements.txt");
        // What is there was brought by these.
        let brought = folder.join("requirements.txt");
        let text_of = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        if text_of(&brought) != text_of(&wanted) {
            let mut install = Command::new("python3");
            install
                .args(["-m", "pip", "install", "--quiet", "--no-deps"])
                .args(["--require-hashes", "--root-user-action=ignore"])
                .arg("--requirement")
                .arg(&wanted)
                .args(["--upgrade", "--target"])
                .arg(&folder);
            succeed(install)?;
            std::fs::copy(&wanted, &brought).map_err(text)?;
        }
        Ok(Box::new(move |url| {
            let mut command = Command::new("python3");
            command
                .env("PYTHONPATH", &folder)
                .args(["-W", "ignore"])
                .arg(&worker)
                .arg(url);
            Ok(command)
        }))
    }

    /// The peer on node.js.
    pub(crate) fn node(&self) -> Result<Start> {
        let (sources, folder) = (self.sources.join("node"), self.target.join("peers/node"));
        std::fs::create_dir_all(&folder).map_err(text)?;
        for file in ["package.json", "package-lock.json", "worker.mjs"] {
            std::fs::copy(sources.join(file), folder.join(file)).map_err(text)?;
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

    /// The peer in Java, by the jars that the test kit has.
    pub(crate) fn java(&self) -> Result<Start> {
        let folder = self.target.join("peers/java");
        std::fs::create_dir_all(&folder).map_err(text)?;
        let mut compile = ZooKeeper::java().map_err(text)?;
        compile
            .args(["--module", "jdk.compiler/com.sun.tools.javac.Main", "-d"])
            .arg(&folder)
            .arg(self.sources.join("java/Worker.java"));
        let jars = class_path(&compile).ok_or("Java without a class path")?;
        compile.args(["-classpath", &jars]);
        succeed(compile)?;
        let classes = format!("{}:{jars}", folder.display());
        Ok(Box::new(move |url: &str| {
            let (_, host) = url.split_once("://").ok_or("no URL")?;
            let mut command = ZooKeeper::java().map_err(text)?;
            // Of what is set for servers of tests the last word counts: this one is to run fast.
            command
                .args(["-XX:TieredStopAtLevel=4", "-Xmx256m"])
                .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
                .args(["-classpath", &classes, "Worker", host]);
            Ok(command)
        }))
    }
}

fn class_path(java: &Command) -> Option<String> {
    let mut words = java.get_args().skip_while(|word| *word != "-classpath");
    words.nth(1)?.to_str().map(str::to_owned)
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

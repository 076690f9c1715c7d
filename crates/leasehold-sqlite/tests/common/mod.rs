//! A store in a folder of its own, and other processes that use it.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::backend::{Attempt, Backend, Contender, Grant};
use leasehold_core::clock::{self, Moment};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Claim, Client, Guard, Identity, Name, Owner, Result};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A folder with a store's file in it; both go when this does.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    pub(crate) fn live(&self) -> PathBuf {
        self.folder.path().join("locks.db.live")
    }

    pub(crate) fn live_files(&self) -> usize {
        std::fs::read_dir(self.live()).unwrap().count()
    }

    pub(crate) fn url(&self) -> String {
        url_of(&self.file())
    }

    pub(crate) async fn backend(&self) -> Arc<dyn Backend> {
        connect(&self.file()).await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::new(self.backend().await, "").unwrap()
    }

    /// Runs SQL on the file as an operator might; the first column of the first row, if any.
    pub(crate) fn sql(&self, sql: &str) -> Option<String> {
        let connection = rusqlite::Connection::open(self.file()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let mut rows = statement.query([]).unwrap();
        let row = rows.next().unwrap()?;
        let value: rusqlite::types::Value = row.get(0).unwrap();
        Some(match value {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => format!("{other:?}"),
        })
    }
}

pub(crate) fn url_of(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

pub(crate) async fn connect(path: &Path) -> Result<Arc<dyn Backend>> {
    leasehold_sqlite::connect(StoreUrl::parse(&url_of(path)).unwrap()).await
}

pub(crate) fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

pub(crate) fn claim(lock: &str, ttl: Duration, waits: bool) -> Claim {
    Claim {
        name: name(lock),
        owner: Owner::random().unwrap(),
        ttl,
        waits,
        identity: Arc::new(Identity::of_this_process().clone()),
    }
}

pub(crate) async fn contend(
    backend: &Arc<dyn Backend>,
    lock: &str,
    ttl: Duration,
    waits: bool,
) -> Box<dyn Contender> {
    backend.contend(claim(lock, ttl, waits)).await.unwrap()
}

/// A grant, or a panic that says who is in the way.
pub(crate) async fn granted(contender: &mut Box<dyn Contender>) -> Grant {
    match contender.try_acquire().await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Busy(busy) => panic!("{busy:?}"),
    }
}

/// The place in the queue, or a panic when it is granted.
pub(crate) async fn busy(contender: &mut Box<dyn Contender>) -> u32 {
    match contender.try_acquire().await.unwrap() {
        Attempt::Granted(grant) => panic!("{grant:?}"),
        Attempt::Busy(busy) => busy.position.unwrap(),
    }
}

/// The boot clock.
pub(crate) fn now() -> u64 {
    clock::now().boot
}

pub(crate) fn since(moment: Moment) -> Duration {
    clock::now().since(moment).steady
}

/// Tries until it is so; how long that took. Panics after `most`.
pub(crate) async fn until(most: Duration, mut so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = clock::now();
    while !so().await {
        let waited = since(begun);
        assert!(waited < most, "not so after {waited:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    since(begun)
}

/// Another process with a client of the store, told what to do line by line. It is killed when this is dropped.
pub(crate) struct Agent {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

/// Reads what an agent says, on a thread of its own: so that waiting for it can end.
fn answers_of(out: ChildStdout) -> Receiver<String> {
    let (said, heard) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines() {
            // The harness may have begun a line.
            if let Ok(line) = line
                && let Some(at) = line.find(MARK)
                && said.send(line[at + MARK.len()..].to_owned()).is_err()
            {
                return;
            }
        }
    });
    heard
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

fn as_user(user: u32, group: u32) -> Command {
    let mut command = this_program();
    if rustix::process::geteuid().is_root() {
        command.uid(user).gid(group);
    }
    command
}

const STORE: &str = "LEASEHOLD_TEST_STORE";
/// Marks an answer among what the test harness prints.
const MARK: &str = "answer: ";

impl Agent {
    pub(crate) fn start(place: &Place) -> Self {
        Self::ready(Self::spawn(this_program(), place))
    }

    /// In namespaces of its own, as `unshare` names them, in which a shell does something first.
    pub(crate) fn start_in(place: &Place, namespaces: &[&str], first: &str) -> Self {
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--fork", "--kill-child"])
            .args(namespaces)
            .args(["sh", "-c", &format!("{first} && exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap());
        Self::ready(Self::spawn(command, place))
    }

    /// As another user, where this one may do that.
    pub(crate) fn start_as(place: &Place, user: u32, group: u32) -> Self {
        Self::ready(Self::spawn(as_user(user, group), place))
    }

    /// What an agent says that can't connect.
    pub(crate) fn refused_as(place: &Place, user: u32, group: u32) -> String {
        Self::spawn(as_user(user, group), place).hear()
    }

    fn ready(mut self) -> Self {
        assert_eq!(self.hear(), "ready");
        self
    }

    fn spawn(mut command: Command, place: &Place) -> Self {
        command
            .args(["--exact", "agent", "--nocapture", "--test-threads=1"])
            .env(STORE, place.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = answers_of(child.stdout.take().unwrap());
        Self {
            child,
            orders,
            answers,
        }
    }

    pub(crate) fn say(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    pub(crate) fn hear(&mut self) -> String {
        match self.answers.recv_timeout(LONG / 2) {
            Ok(answer) => answer,
            Err(error) => panic!("the agent says nothing: {error}"),
        }
    }

    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.say(order);
        self.hear()
    }

    /// The token of a grant.
    pub(crate) fn acquire(&mut self, name: &str, ttl: Duration) -> u64 {
        let answer = self.ask(&format!("acquire {name} {}", ttl.as_millis()));
        answer.split(' ').nth(2).unwrap().parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an agent does; nothing where this process is not one. To be called by a test named `agent`.
pub(crate) fn agent() {
    let Ok(url) = std::env::var(STORE) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let url = StoreUrl::parse(&url).unwrap();
        let client = match leasehold_sqlite::connect(url).await {
            Ok(backend) => Client::new(backend, "").unwrap(),
            Err(error) => return answer(&format!("error {} {error}", error.kind().as_str())),
        };
        answer("ready");
        let guards = Arc::new(Mutex::new(HashMap::new()));
        for line in std::io::stdin().lines() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            obey(&client, &guards, &words).await;
        }
    });
}

type Guards = Arc<Mutex<HashMap<String, Guard>>>;

async fn obey(client: &Client, guards: &Guards, words: &[&str]) {
    match *words {
        // Waits for the lock, others meanwhile: "granted NAME TOKEN BOOTTIME".
        ["acquire", name, ttl] => {
            let ttl = Duration::from_millis(ttl.parse().unwrap());
            let lock = client.lock(name).unwrap().ttl(ttl);
            let guards = guards.clone();
            let name = name.to_owned();
            tokio::spawn(async move {
                match lock.acquire().await {
                    Ok(guard) => {
                        let text = format!("granted {name} {} {}", guard.token(), now());
                        guards.lock().unwrap().insert(name, guard);
                        answer(&text);
                    }
                    Err(error) => answer(&format!("error {} {error}", error.kind().as_str())),
                }
            });
        }
        ["try", name, ttl] => {
            let ttl = Duration::from_millis(ttl.parse().unwrap());
            match client.lock(name).unwrap().ttl(ttl).try_acquire().await {
                Ok(Some(guard)) => {
                    let text = format!("granted {name} {} {}", guard.token(), now());
                    guards.lock().unwrap().insert(name.to_owned(), guard);
                    answer(&text);
                }
                Ok(None) => answer("busy"),
                Err(error) => answer(&format!("error {} {error}", error.kind().as_str())),
            }
        }
        // "released OUTCOME BOOTTIME", the time before the release.
        ["release", name] => {
            let guard = guards.lock().unwrap().remove(name).unwrap();
            let begun = now();
            match guard.release().await {
                Ok(outcome) => answer(&format!("released {} {begun}", outcome.as_str())),
                Err(error) => answer(&format!("error {} {error}", error.kind().as_str())),
            }
        }
        // Whether the hold is lost, and why.
        ["lost", name] => {
            let held = guards.lock().unwrap()[name].held();
            let reason = held
                .lost()
                .await
                .map_or("released", |reason| reason.as_str());
            answer(&format!("lost {reason} {}", now()));
        }
        ["inherit", seconds] => inherit(client, seconds),
        ["fill"] => fill(client, guards).await,
        // Takes and releases the lock for ever: "granted NAME TOKEN BOOTTIME" each time.
        ["spin", name] => loop {
            let guard = client.lock(name).unwrap().acquire().await.unwrap();
            answer(&format!("granted {name} {} {}", guard.token(), now()));
            guard.release().await.unwrap();
        },
        ["list"] => match client.list("").await {
            Ok(found) => answer(&format!("list {}", found.len())),
            Err(error) => answer(&format!("error {} {error}", error.kind().as_str())),
        },
        _ => panic!("{words:?}"),
    }
}

/// Starts a program that inherits the liveness file, as its standard input.
fn inherit(client: &Client, seconds: &str) {
    #[allow(clippy::zombie_processes, reason = "it is to outlive its parent")]
    let child = Command::new("sleep")
        .arg(seconds)
        .stdin(client.inherit().unwrap())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    answer(&format!("child {}", child.id()));
}

/// Takes one lock after the other until that fails: "full COUNT KIND".
async fn fill(client: &Client, guards: &Guards) {
    for count in 0.. {
        let name = format!("fill/{count}");
        let note = "x".repeat(200);
        let lock = client.lock(&name).unwrap().note(note).ttl(LONG * 60);
        match lock.try_acquire().await {
            Ok(guard) => drop(guards.lock().unwrap().insert(name, guard.unwrap())),
            Err(error) => return answer(&format!("full {count} {}", error.kind().as_str())),
        }
    }
}

fn answer(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{text}").unwrap();
    out.flush().unwrap();
}

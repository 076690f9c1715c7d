//! Another process that uses the store, told what to do line by line.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::url::StoreUrl;
use leasehold_core::{Client, Guard};
use leasehold_testkit::freezing::{self, Pid};

use super::{LONG, Place, now};

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

    /// Whether it has an inotify instance.
    pub(crate) fn listens(&self) -> bool {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        descriptors
            .filter_map(|descriptor| std::fs::read_link(descriptor.ok()?.path()).ok())
            .any(|target| target.to_string_lossy().contains("inotify"))
    }

    pub(crate) fn freeze(&self) {
        freezing::freeze(Pid::from_child(&self.child)).unwrap();
    }

    pub(crate) fn thaw(&self) {
        freezing::thaw(Pid::from_child(&self.child)).unwrap();
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
        ["cycle", name, times] => cycle(client, name, times.parse().unwrap()).await,
        ["hog"] => hog(),
        ["unhog"] => {
            std::fs::remove_file(beside("hog")).unwrap();
            answer("unhogged");
        }
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

/// Takes and releases the lock, again where the store can't, some times: "cycled COUNT".
async fn cycle(client: &Client, name: &str, times: usize) {
    let lock = client.lock(name).unwrap();
    let mut done = 0;
    for _ in 0..2 * times {
        if done < times
            && let Ok(Some(guard)) = lock.try_acquire().await
            && guard.release().await.is_ok()
        {
            done += 1;
        }
    }
    answer(&format!("cycled {done}"));
}

/// Takes all room that is left where the store's file is.
fn hog() {
    let mut hog = std::fs::File::create(beside("hog")).unwrap();
    while hog.write_all(&[1; 1024]).is_ok() {}
    answer("hogged");
}

fn beside(name: &str) -> PathBuf {
    let url = StoreUrl::parse(&std::env::var(STORE).unwrap()).unwrap();
    Path::new(url.path()).with_file_name(name)
}

fn answer(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{text}").unwrap();
    out.flush().unwrap();
}

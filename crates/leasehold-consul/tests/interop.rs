//! Clients of other makes and leasehold exclude each other.
#![allow(clippy::unwrap_used, reason = "a test that can't go on is to stop")]

mod common;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use common::*;
use leasehold::Release;
use leasehold_testkit::servers::Consul;

/// Another program that says a line when it has the lock, and lets go when its input ends.
struct Other {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Other {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    /// `consul lock`, whose command says that it runs and goes on until its input ends.
    fn consul_lock(consul: &Consul, name: &str) -> Self {
        let mut command = consul.control(0).unwrap();
        command.args(["lock", "-pass-stdin", name, "echo held; cat"]);
        Self::start(&mut command)
    }

    /// Takes the lock with python-consul, as its users do: a session, and `kv.put` with `acquire`.
    fn python(consul: &Consul, name: &str) -> Self {
        let mut command = Command::new("python3");
        command
            .env("PYTHONPATH", python_consul())
            .args(["-W", "ignore", "-c", PYTHON])
            .arg(consul.address(0).port().to_string())
            .arg(format!("{name}/.lock"));
        Self::start(&mut command)
    }

    fn holds_within(&self, most: Duration) -> bool {
        self.lines
            .recv_timeout(most)
            .is_ok_and(|line| line == "held")
    }

    /// Has it let go, and waits for its end.
    fn end(mut self) {
        let mut input = self.input.take().unwrap();
        input.write_all(b"\n").unwrap();
        drop(input);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PYTHON: &str = "
import sys, time, consul
port, key = int(sys.argv[1]), sys.argv[2]
c = consul.Consul(port=port)
s = c.session.create(name='python', ttl=10, lock_delay=0, checks=[])
while not c.kv.put(key, 'python', flags=0x2ddccbc058a50c18, acquire=s):
    time.sleep(0.1)
print('held', flush=True)
sys.stdin.readline()
assert c.kv.put(key, 'python', flags=0x2ddccbc058a50c18, release=s)
c.session.destroy(s)
";

/// The folder that python-consul is in; brings it on first use.
fn python_consul() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers/python");
    let folder = target.join("consul");
    std::fs::create_dir_all(&target).unwrap();
    let lock = File::create(target.join("lock")).unwrap();
    lock.lock().unwrap();
    if !folder.exists() {
        let partial = target.join("consul.partial");
        let _ = std::fs::remove_dir_all(&partial);
        let brought = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--target"])
            .arg(&partial)
            .args(["--disable-pip-version-check", "--root-user-action=ignore"])
            .arg("python-consul==1.1.0")
            .status()
            .unwrap();
        assert!(brought.success(), "python-consul is needed: {brought}");
        std::fs::rename(&partial, &folder).unwrap();
    }
    folder
}

/// Both directions, and a lock that changes hands between them.
async fn exclude_each_other(consul: &Consul, start: impl Fn() -> Other) {
    let client = connect(&consul.url()).await;
    let ours = take(&client, "jobs/x", LONG).await;
    let other = start();
    assert!(!other.holds_within(ms(3000)), "two holders");
    assert!(ours.is_held());
    assert_eq!(ours.release().await.unwrap(), Release::Freed);
    assert!(other.holds_within(SLACK * 4));
    assert_busy(&client, "jobs/x").await;
    let seen = client.inspect("jobs/x").await.unwrap().holder.unwrap();
    assert!(seen.identity.is_none() && seen.token.is_some());
    let next = lock(&client, "jobs/x", LONG);
    let next = tokio::spawn(async move { next.acquire().await });
    tokio::time::sleep(ms(500)).await;
    assert!(!next.is_finished(), "two holders");
    other.end();
    let next = tokio::time::timeout(SLACK * 2, next).await.unwrap();
    let next = next.unwrap().unwrap();
    assert!(Some(next.token()) > seen.token);
    assert_eq!(next.release().await.unwrap(), Release::Freed);
    // What the other one leaves is gone with our release.
    assert_eq!(keys(consul), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_lock_and_leasehold_exclude_each_other() {
    let consul = single();
    exclude_each_other(&consul, || Other::consul_lock(&consul, "jobs/x")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_consul_and_leasehold_exclude_each_other() {
    let consul = single();
    exclude_each_other(&consul, || Other::python(&consul, "jobs/x")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_python_holders_lock_is_taken_after_its_session() {
    let consul = single();
    let client = connect(&consul.url()).await;
    let mut other = Other::python(&consul, "jobs/x");
    assert!(other.holds_within(SLACK * 4));
    other.child.kill().unwrap();
    // Its session lasts ten seconds, and the server waits twice as long.
    let got = lock(&client, "jobs/x", LONG)
        .acquire_within(ms(20_000) + SLACK)
        .await;
    got.unwrap().unwrap().release().await.unwrap();
    assert_eq!(keys(&consul), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_of_consul_lock_is_refused() {
    let consul = single();
    let client = connect(&consul.url()).await;
    let mut command = consul.control(0).unwrap();
    command.args(["lock", "-n", "2", "-pass-stdin", "jobs/x", "echo held; cat"]);
    let other = Other::start(&mut command);
    assert!(other.holds_within(SLACK * 4));
    let error = lock(&client, "jobs/x", LONG)
        .try_acquire()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("semaphore"), "{error}");
    other.end();
}

//! Clients of other makes and leasehold exclude each other.

use std::process::Command;
use std::time::Duration;

use crate::common::*;
use leasehold::Release;
use leasehold_testkit::program::Program;
use leasehold_testkit::servers::{Consul, python_packages};

/// Another program that says a line when it has the lock, and lets go when it is told a line.
struct Other(Program);

impl Other {
    /// `consul lock`, whose command says that it runs and goes on until its input ends.
    fn consul_lock(consul: &Consul, name: &str) -> Self {
        let mut command = consul.control(0).unwrap();
        command.args(["lock", "-pass-stdin", name, "echo held; cat"]);
        Self(Program::start(&mut command))
    }

    /// Takes the lock with python-consul, as its users do: a session, and `kv.put` with `acquire`.
    fn python(consul: &Consul, name: &str) -> Self {
        let mut command = Command::new("python3");
        command
            .env(
                "PYTHONPATH",
                python_packages("python-consul", PINS).unwrap(),
            )
            .args(["-W", "ignore", "-c", PYTHON])
            .arg(consul.address(0).port().to_string())
            .arg(format!("{name}/.lock"));
        Self(Program::start(&mut command))
    }

    fn holds_within(&self, most: Duration) -> bool {
        self.0.line_within(most).as_deref() == Some("held")
    }

    /// Has it let go, and waits for its end.
    fn end(mut self) {
        self.0.tell("");
        assert!(self.0.end(), "it didn't end well");
    }
}

const PINS: &str = "
python-consul==1.1.0 --hash=sha256:eeaaeeae87807ad1bc0d476ca3a9c53823ed5d514832951acebeca671eb54b20
certifi==2026.10.19.post1 --hash=sha256:1324c476b4811eff41a8bc2122cd0bbd4d9c7234c725446d99ab1612b3a7fdd2
charset-normalizer==3.5.3 --hash=sha256:96e268b0cbda016ac519513294fcd17032264085b600abaac58b93049477e132
idna==3.20 --hash=sha256:ab7ae7122974553370f0bdb919e1a960b2cd1bc1ef0276416d896db81c14582c
requests==2.34.2 --hash=sha256:2a0d60c172f83ac6ab31e4554906c0f3b3588d37b5cb939b1c061f4907e278e0
six==1.17.0 --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274
urllib3==2.8.0 --hash=sha256:0cf3cae568d36aa9576b28dfb35f11328f1cb974ca7647d9475ebb86c75ac6e3
";

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
    let other = Other::python(&consul, "jobs/x");
    assert!(other.holds_within(SLACK * 4));
    // Killed.
    drop(other);
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
    let other = Other(Program::start(&mut command));
    assert!(other.holds_within(SLACK * 4));
    let error = lock(&client, "jobs/x", LONG)
        .try_acquire()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("semaphore"), "{error}");
    other.end();
}

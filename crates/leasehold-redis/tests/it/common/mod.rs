//! A server of one's own, and other processes that use it.

pub(crate) mod cluster;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::store::Broken;
use leasehold::{Client, Error, Guard, LossReason, Release};
use leasehold_testkit::freezing::{self, Pid};
use leasehold_testkit::servers::{Proxy, Redis, RedisEdition};
pub(crate) use leasehold_testkit::steps::{
    LONG, assert_busy, connect, lock, ms, queued, since, take, until,
};

/// How much later than promised anything may be on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(2);

pub(crate) fn server() -> Redis {
    Redis::start(RedisEdition::Redis7).unwrap()
}

/// A server that has on disk what it answered.
pub(crate) fn durable_server() -> Redis {
    let args = ["--appendonly", "yes", "--appendfsync", "always"];
    Redis::start_with(RedisEdition::Redis7, &args).unwrap()
}

/// A server and a proxy before it.
pub(crate) fn proxied() -> (Redis, Proxy) {
    let server = server();
    let proxy = Proxy::start(server.address()).unwrap();
    (server, proxy)
}

pub(crate) fn url_of(address: SocketAddr) -> String {
    format!("redis://{address}")
}

/// Everything the library does on a server.
pub(crate) async fn everything(client: &Client) -> Result<(), Error> {
    let guard = client.lock("a")?.ttl(LONG).try_acquire().await?.unwrap();
    assert!(client.lock("a")?.try_acquire().await?.is_none());
    let next = client.lock("a")?.ttl(LONG);
    let next = tokio::spawn(async move { next.acquire().await });
    while client.inspect("a").await?.waiters.is_empty() {
        // Who may not wait fails, and is never seen.
        if next.is_finished() {
            drop(next.await.unwrap()?);
            unreachable!("the lock is held");
        }
        tokio::time::sleep(ms(5)).await;
    }
    guard.extend(LONG).await?;
    assert_eq!(client.list("").await?.len(), 1);
    assert_eq!(guard.release().await?, Release::Freed);
    let next = next.await.unwrap()?;
    assert!(matches!(
        client.break_hold("a", Some(next.token())).await?,
        Broken::Ended(_)
    ));
    assert_eq!(next.lost().await, LossReason::Broken);
    let detached = client
        .lock("b")?
        .ttl(LONG)
        .try_acquire()
        .await?
        .unwrap()
        .detach(LONG)
        .await?;
    let mut resumed = client.resume("b", detached.owner).await?;
    resumed.extend(LONG).await?;
    assert_eq!(resumed.release().await?, Release::Freed);
    // A hash at the key is found out by its type, and a try that may land late leaves its note.
    client.check().await?;
    let dropped = tokio::time::timeout(ms(1), client.lock("c")?.ttl(ms(200)).acquire()).await;
    drop(dropped);
    client.close().await;
    Ok(())
}

/// A plain connection to a server, as an operator or another program has it.
pub(crate) struct Raw(redis::Connection);

impl Raw {
    pub(crate) fn to(server: &Redis) -> Self {
        Self::at(&server.url())
    }

    pub(crate) fn at(url: &str) -> Self {
        Self(redis::Client::open(url).unwrap().get_connection().unwrap())
    }

    /// A command in words.
    pub(crate) fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        self.tried(words)
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub(crate) fn tried<T: redis::FromRedisValue>(
        &mut self,
        words: &[&str],
    ) -> redis::RedisResult<T> {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        command.query(&mut self.0)
    }

    pub(crate) fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    /// How often the server has run a command since its start.
    pub(crate) fn calls(&mut self, command: &str) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let mark = format!("cmdstat_{command}:calls=");
        stats
            .lines()
            .find_map(|line| line.strip_prefix(&mark)?.split(',').next()?.parse().ok())
            .unwrap_or(0)
    }
}

/// Another process with a client of the store, told what to do line by line. It is killed when this is dropped.
pub(crate) struct Agent {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

const STORE: &str = "LEASEHOLD_TEST_STORE";
/// Marks an answer among what the test harness prints.
const MARK: &str = "answer: ";

impl Agent {
    pub(crate) fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "agent", "--nocapture", "--test-threads=1"])
            .env(STORE, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut agent = Self {
            child,
            orders,
            answers,
        };
        assert_eq!(agent.hear(), "ready");
        agent
    }

    pub(crate) fn say(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.answers.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the agent is gone");
            // The harness may have begun a line.
            if let Some(at) = line.find(MARK) {
                return line[at + MARK.len()..].trim_end().to_owned();
            }
        }
    }

    /// Begins to wait for a lock; [`hear`](Self::hear) answers its token.
    pub(crate) fn acquire(&mut self, name: &str, ttl: Duration) {
        self.say(&format!("acquire {name} {}", ttl.as_millis()));
    }

    /// Takes a lock that is free.
    pub(crate) fn take(&mut self, name: &str, ttl: Duration) -> u64 {
        self.acquire(name, ttl);
        self.hear().parse().unwrap()
    }

    pub(crate) fn release(&mut self, name: &str) -> String {
        self.say(&format!("release {name}"));
        self.hear()
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
        let client = connect(&url).await;
        answer("ready");
        let guards = Arc::new(Mutex::new(HashMap::new()));
        for line in std::io::stdin().lines() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            obey(&client, &guards, &words).await;
        }
    });
}

async fn obey(client: &Client, guards: &Arc<Mutex<HashMap<String, Guard>>>, words: &[&str]) {
    match *words {
        // Waits for the lock, others meanwhile.
        ["acquire", name, ttl] => {
            let lock = lock(client, name, ms(ttl.parse().unwrap()));
            let guards = guards.clone();
            let name = name.to_owned();
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let token = guard.token();
                guards.lock().unwrap().insert(name, guard);
                answer(&token.to_string());
            });
        }
        ["release", name] => {
            let guard = guards.lock().unwrap().remove(name).unwrap();
            answer(guard.release().await.unwrap().as_str());
        }
        _ => panic!("{words:?}"),
    }
}

fn answer(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{text}").unwrap();
    out.flush().unwrap();
}

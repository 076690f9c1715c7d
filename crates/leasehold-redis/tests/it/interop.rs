//! The clients of other makes, the real ones, on the same key.
//!
//! They are brought into the target folder on first use, from the registries their languages have.
#![allow(clippy::print_stdout, reason = "the measures")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use crate::common::{
    LONG, Raw, SLACK, assert_busy, connect, lock, ms, queued, server, since, until,
};
use leasehold::{LossReason, Release};
use leasehold_core::clock;
use leasehold_testkit::servers::{Redis, RedisEdition, RedisNodes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Make {
    RedisPy,
    Pottery,
    NodeRedlock,
    Rslock,
}

/// What both sides use.
enum Servers {
    One(Redis),
    Nodes(RedisNodes),
}

impl Servers {
    fn nodes() -> Self {
        Self::Nodes(RedisNodes::start(RedisEdition::Redis7, 5).unwrap())
    }

    /// How leasehold reaches them, so that its names are the keys of this make.
    fn url(&self, make: Make) -> String {
        let url = match self {
            Self::One(server) => server.url(),
            Self::Nodes(nodes) => nodes.url(),
        };
        match make {
            Make::Pottery => format!("{url}?prefix=redlock:"),
            Make::RedisPy | Make::NodeRedlock | Make::Rslock => url,
        }
    }

    fn ports(&self) -> Vec<u16> {
        match self {
            Self::One(server) => vec![server.address().port()],
            Self::Nodes(nodes) => (0..nodes.size())
                .map(|at| nodes.address(at).port())
                .collect(),
        }
    }
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn target() -> PathBuf {
    here().join("../../../target/peers")
}

impl Make {
    /// What brings it: pinned, into a folder of its own.
    fn setup(self) -> Command {
        let folder = target();
        let mut command;
        match self {
            Self::RedisPy | Self::Pottery => {
                let into = if self == Self::Pottery {
                    "pottery"
                } else {
                    "python"
                };
                command = Command::new("python3");
                command
                    .args([
                        "-m",
                        "pip",
                        "install",
                        "--quiet",
                        "--disable-pip-version-check",
                        "--target",
                    ])
                    .arg(folder.join(into))
                    .args(["redis==5.2.1", "async-timeout==5.0.1"]);
                if self == Self::Pottery {
                    command.arg("pottery==3.0.1");
                }
            }
            Self::NodeRedlock => {
                command = Command::new("npm");
                command
                    .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
                    .arg(folder.join("node"))
                    .args(["redlock@5.0.0-beta.2", "ioredis@5.4.1"]);
            }
            Self::Rslock => {
                command = Command::new(env!("CARGO"));
                command
                    .args(["build", "--quiet", "--locked", "--manifest-path"])
                    .arg(here().join("peers/rslock/Cargo.toml"))
                    .arg("--target-dir")
                    .arg(folder.join("rslock"));
            }
        }
        command
    }

    /// Brings it unless it is here; fails with what to do.
    fn bring(self) {
        // Tests run at once, in this process.
        static BRINGING: Mutex<Vec<Make>> = Mutex::new(Vec::new());
        let mut brought = BRINGING.lock().unwrap();
        let ready = match self {
            Self::RedisPy => target().join("python/redis").is_dir(),
            Self::Pottery => target().join("pottery/pottery").is_dir(),
            Self::NodeRedlock => target().join("node/node_modules/redlock").is_dir(),
            // cargo knows itself what is to be done.
            Self::Rslock => brought.contains(&self),
        };
        if ready {
            return;
        }
        std::fs::create_dir_all(target()).unwrap();
        let mut setup = self.setup();
        let done = setup.output().unwrap_or_else(|error| {
            panic!(
                "{self:?} is needed and {setup:?} can't be started: {error}; install that program"
            )
        });
        assert!(
            done.status.success(),
            "{self:?} is needed and couldn't be brought; see that this works: {setup:?}\n{}",
            String::from_utf8_lossy(&done.stderr)
        );
        brought.push(self);
    }

    fn start(self, servers: &Servers) -> Peer {
        self.bring();
        let mut command = match self {
            Self::RedisPy => {
                let mut command = Command::new("python3");
                command
                    .arg(here().join("peers/redis_py.py"))
                    .env("PYTHONPATH", target().join("python"));
                command
            }
            Self::Pottery => {
                let mut command = Command::new("python3");
                command
                    .arg(here().join("peers/pottery_redlock.py"))
                    .env("PYTHONPATH", target().join("pottery"));
                command
            }
            Self::NodeRedlock => {
                let mut command = Command::new("node");
                command
                    .arg(here().join("peers/redlock.js"))
                    .env("NODE_PATH", target().join("node/node_modules"));
                command
            }
            Self::Rslock => Command::new(target().join("rslock/debug/rslock-peer")),
        };
        let mut child = command
            .args(servers.ports().iter().map(u16::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut peer = Peer {
            child,
            orders,
            answers,
        };
        assert_eq!(peer.hear(), "ready");
        peer
    }
}

/// A process with another maker's client. It is killed when this is dropped.
struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn say(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Asks for a lock without waiting.
    fn tries(&mut self, name: &str, ttl: Duration) -> bool {
        self.acquiring(name, ttl, Duration::ZERO);
        self.granted()
    }

    fn acquiring(&mut self, name: &str, ttl: Duration, wait: Duration) {
        self.say(&format!(
            "acquire {name} {} {}",
            ttl.as_millis(),
            wait.as_millis()
        ));
    }

    fn granted(&mut self) -> bool {
        match self.hear().as_str() {
            "granted" => true,
            "busy" => false,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, name: &str) -> String {
        self.say(&format!("release {name}"));
        self.hear()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn excludes_in_both_directions(make: Make, servers: Servers) {
    let mut peer = make.start(&servers);
    let client = connect(&servers.url(make)).await;

    // They hold: busy, then ours after their release.
    assert!(peer.tries("a", LONG), "{make:?}");
    assert_busy(&client, "a").await;
    assert!(client.inspect("a").await.unwrap().holder.is_some());
    let next = lock(&client, "a", LONG);
    let next = tokio::spawn(async move { next.acquire().await.unwrap() });
    queued(&client, "a", 1).await;
    let begun = clock::now();
    assert_eq!(peer.release("a"), "released");
    let guard = next.await.unwrap();
    println!("{make:?}: ours {:?} after their release", since(begun));
    assert!(since(begun) < SLACK, "{:?}", since(begun));

    // We hold: refused, then theirs after our release.
    assert!(!peer.tries("a", LONG), "{make:?}");
    assert!(guard.is_held());
    peer.acquiring("a", LONG, ms(20_000));
    tokio::time::sleep(ms(300)).await;
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
    assert!(peer.granted(), "{make:?}");
    assert_busy(&client, "a").await;
    assert_eq!(peer.release("a"), "released");

    // They hold and go silent: ours when their time is over.
    assert!(peer.tries("b", ms(1500)), "{make:?}");
    let begun = clock::now();
    let guard = lock(&client, "b", LONG).acquire().await.unwrap();
    assert!(
        since(begun) > ms(1000) && since(begun) < ms(1500) + SLACK,
        "{:?}",
        since(begun)
    );
    // Their late release takes nothing of ours away.
    peer.release("b");
    assert!(!peer.tries("b", LONG), "{make:?}");
    assert_busy(&client, "b").await;
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
}

async fn overrun_hold_releases_nothing_of_theirs(make: Make) {
    let servers = Servers::One(server());
    let mut peer = make.start(&servers);
    let client = connect(&servers.url(make)).await;
    let mut raw = Raw::at(&servers.url(make));
    let lock = lock(&client, "a", ms(400)).renew(false);
    let guard = lock.try_acquire().await.unwrap().unwrap();
    peer.acquiring("a", LONG, ms(20_000));
    assert!(peer.granted(), "{make:?}");
    assert_eq!(guard.lost().await, LossReason::Expired);
    let value: Vec<u8> = raw.ask(&["GET", "a"]);
    assert_eq!(guard.release().await.unwrap(), Release::Another);
    assert_eq!(raw.ask::<Vec<u8>>(&["GET", "a"]), value);
    assert_eq!(peer.release("a"), "released");
    until(SLACK, async || {
        client.inspect("a").await.unwrap().holder.is_none()
    })
    .await;
}

/// A client that polls gets its turn though leasehold's waiters never leave the queue empty.
async fn polling_client_is_not_starved(make: Make) {
    let servers = Servers::One(server());
    let mut peer = make.start(&servers);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = connect(&servers.url(make)).await;
        let stop = stop.clone();
        crowd.spawn(async move {
            let mut turns = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let guard = lock(&client, "a", LONG).acquire().await.unwrap();
                tokio::time::sleep(ms(5)).await;
                guard.release().await.unwrap();
                turns += 1;
            }
            turns
        });
    }
    let client = connect(&servers.url(make)).await;
    until(ms(10_000), async || {
        client.inspect("a").await.unwrap().waiters.len() >= 4
    })
    .await;
    let begun = clock::now();
    peer.acquiring("a", ms(5000), ms(30_000));
    let granted =
        tokio::task::spawn_blocking(move || (peer.granted(), peer.release("a"), since(begun)));
    let (granted, _, took) = granted.await.unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let turns: u32 = crowd.join_all().await.into_iter().sum();
    println!("{make:?}: its turn after {took:?}, {turns} turns of leasehold's meanwhile");
    assert!(
        granted,
        "{make:?} got no turn within {took:?} among {turns}"
    );
}

macro_rules! makes {
    ($($module:ident $make:ident)+) => {
        $(mod $module {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn excludes_in_both_directions() {
                super::excludes_in_both_directions(Make::$make, Servers::One(server())).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn overrun_hold_releases_nothing_of_theirs() {
                super::overrun_hold_releases_nothing_of_theirs(Make::$make).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn polling_client_is_not_starved() {
                super::polling_client_is_not_starved(Make::$make).await;
            }
        })+
    };
}

makes! {
    redis_py RedisPy
    node_redlock NodeRedlock
    rslock Rslock
}

/// On several nodes, where it takes a majority of them.
mod nodes {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn pottery_excludes_in_both_directions() {
        excludes_in_both_directions(Make::Pottery, Servers::nodes()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn node_redlock_excludes_in_both_directions() {
        excludes_in_both_directions(Make::NodeRedlock, Servers::nodes()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rslock_excludes_in_both_directions() {
        excludes_in_both_directions(Make::Rslock, Servers::nodes()).await;
    }
}

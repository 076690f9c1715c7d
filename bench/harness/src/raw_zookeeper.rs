//! What leasehold on ZooKeeper is measured against: the least requests that a lock can be.
//!
//! By the messages of leasehold's client over a plain connection, with a session that is ready.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_bench_load::{Result, Subject, TTL, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;

use crate::wire_zookeeper::{Acl, Answer, Connect, Connected, Kind, Request};

/// The code of an answer that says a node isn't there.
const NO_NODE: i32 = -101;

/// Those who wait for answers, which come in the order of the requests.
type Waiting = Arc<Mutex<VecDeque<oneshot::Sender<Answer>>>>;

/// An ephemeral node with a number and a look at its siblings, sent together; and its deletion.
pub(crate) struct RawZooKeeper {
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    waiting: Waiting,
}

impl RawZooKeeper {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let (_, host) = url.split_once("://").ok_or("no URL")?;
        let stream = TcpStream::connect(host).await.map_err(text)?;
        stream.set_nodelay(true).map_err(text)?;
        let (reader, mut writer) = stream.into_split();
        // Rounds are shorter than that, and each has a process of its own: it needs no pings.
        let connect = Connect {
            timeout_ms: i32::try_from(TTL.as_millis()).map_err(text)? * 4,
            session: 0,
            password: vec![0; 16],
        };
        writer.write_all(&connect.encode()).await.map_err(text)?;
        let mut reader = BufReader::new(reader);
        let connected = Connected::decode(&message(&mut reader).await?);
        if connected.is_none_or(|connected| connected.timeout_ms <= 0) {
            return Err("the server gave no session".into());
        }
        let waiting = Waiting::default();
        tokio::spawn(receive(reader, waiting.clone()));
        Ok(Self {
            writer: tokio::sync::Mutex::new(writer),
            waiting,
        })
    }

    async fn call<const N: usize>(&self, requests: [Request; N]) -> Result<[Answer; N]> {
        let mut bytes = Vec::new();
        for request in &requests {
            request.encode(1, &mut bytes);
        }
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..N).map(|_| oneshot::channel()).unzip();
        let mut writer = self.writer.lock().await;
        let waiting = || self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting().extend(senders);
        writer.write_all(&bytes).await.map_err(text)?;
        drop(writer);
        let mut answers = Vec::with_capacity(N);
        for receiver in receivers {
            answers.push(receiver.await.map_err(|_| "the connection ended")?);
        }
        answers.try_into().map_err(|_| "too few answers".into())
    }

    /// Makes the nodes above a place.
    async fn make_parents(&self, path: &str) -> Result<()> {
        for (end, _) in path.match_indices('/').skip(1) {
            let parent = Request::create(&path[..end], b"", Kind::Container, Acl::Open);
            // It may be there.
            self.call([parent]).await?;
        }
        Ok(())
    }
}

impl Subject for RawZooKeeper {
    type Hold = String;

    async fn acquire(&self, name: &str) -> Result<String> {
        let parent = format!("/{name}");
        let path = format!("{parent}/raw-lock-");
        loop {
            let create = Request::create(&path, b"", Kind::EphemeralSequential, Acl::Open);
            let [created, children] = self.call([create, Request::children(&parent)]).await?;
            if created.code == NO_NODE {
                self.make_parents(&path).await?;
                continue;
            }
            let made = created.created().ok_or("no node was made")?.0;
            let children = children.texts().ok_or("no children were told")?;
            let number = |name: &str| name.rsplit('-').next().map(str::to_owned);
            let first = children.iter().filter_map(|child| number(child)).min();
            return if number(&made) == first {
                Ok(made)
            } else {
                Err(format!("{name} is held"))
            };
        }
    }

    async fn release(&self, node: String) -> Result<()> {
        let [deleted] = self.call([Request::delete(&node)]).await?;
        if deleted.code == 0 {
            Ok(())
        } else {
            Err(format!("{node} was not there"))
        }
    }
}

/// Hands out answers until the connection ends; then those who wait are told by their senders' end.
async fn receive(mut reader: BufReader<OwnedReadHalf>, waiting: Waiting) {
    while let Ok(bytes) = message(&mut reader).await {
        let Some(answer) = Answer::decode(&bytes) else {
            break;
        };
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = waiting.pop_front() {
            let _ = sender.send(answer);
        }
    }
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.clear();
}

async fn message(reader: &mut BufReader<OwnedReadHalf>) -> Result<Vec<u8>> {
    let length = reader.read_u32().await.map_err(text)?;
    let mut bytes = vec![0; length as usize];
    reader.read_exact(&mut bytes).await.map_err(text)?;
    Ok(bytes)
}

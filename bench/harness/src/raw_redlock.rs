//! What leasehold on several Redis is measured against: the least requests of a lock whose token a majority has.
//!
//! Everything goes to all nodes at once, and all their answers are waited for: on one machine they come together.

use futures_util::future::join_all;
use leasehold_bench_load::{Result, Subject, TTL, text};
use redis::Script;
use redis::aio::MultiplexedConnection;

/// `SET NX PX` with a look at the counter; the counter written back where the lock is still ours; a deletion of what
/// is still ours.
pub(crate) struct RawRedlock {
    nodes: Vec<MultiplexedConnection>,
    write: Script,
    delete: Script,
}

impl RawRedlock {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let (_, hosts) = url.split_once("://").ok_or("no URL")?;
        let mut nodes = Vec::new();
        for host in hosts.split(',') {
            let client = redis::Client::open(format!("redis://{host}")).map_err(text)?;
            let connection = client.get_multiplexed_async_connection().await;
            nodes.push(connection.map_err(text)?);
        }
        Ok(Self {
            nodes,
            write: Script::new(
                "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
                 redis.call('SET', KEYS[2], ARGV[2]) return 1",
            ),
            delete: Script::new(
                "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
            ),
        })
    }

    /// How many nodes the lock was taken on, and the newest token any of them knows.
    async fn take(&self, name: &str, counter: &str) -> Result<(usize, u64)> {
        let asked = self.nodes.iter().map(async |node| {
            redis::pipe()
                .cmd("SET")
                .arg(name)
                .arg("owner")
                .arg("NX")
                .arg("PX")
                .arg(TTL.as_millis() as u64)
                .cmd("GET")
                .arg(counter)
                .query_async::<(Option<String>, Option<u64>)>(&mut node.clone())
                .await
        });
        let (mut taken, mut newest) = (0, 0);
        for answer in join_all(asked).await {
            let (set, token) = answer.map_err(text)?;
            taken += usize::from(set.is_some());
            newest = newest.max(token.unwrap_or(0));
        }
        Ok((taken, newest))
    }

    /// How many nodes the script says yes on.
    async fn agree(&self, script: &Script, keys: &[&str], args: &[&str]) -> Result<usize> {
        let asked = self.nodes.iter().map(async |node| {
            let mut call = script.prepare_invoke();
            keys.iter().for_each(|key| {
                call.key(*key);
            });
            args.iter().for_each(|arg| {
                call.arg(*arg);
            });
            call.invoke_async::<usize>(&mut node.clone()).await
        });
        let mut agreed = 0;
        for answer in join_all(asked).await {
            agreed += answer.map_err(text)?;
        }
        Ok(agreed)
    }

    fn is_majority(&self, nodes: usize) -> bool {
        nodes > self.nodes.len() / 2
    }
}

impl Subject for RawRedlock {
    type Hold = String;

    async fn acquire(&self, name: &str) -> Result<String> {
        let counter = format!("{{{name}}}:counter");
        let (taken, newest) = self.take(name, &counter).await?;
        if !self.is_majority(taken) {
            return Err(format!("{name} is held"));
        }
        let token = (newest + 1).to_string();
        let (keys, args) = ([name, &counter], ["owner", &token]);
        let written = self.agree(&self.write, &keys, &args).await?;
        if self.is_majority(written) {
            Ok(name.to_owned())
        } else {
            Err(format!("{name} was lost"))
        }
    }

    async fn release(&self, name: String) -> Result<()> {
        let deleted = self.agree(&self.delete, &[&name], &["owner"]).await?;
        if self.is_majority(deleted) {
            Ok(())
        } else {
            Err(format!("{name} was not held"))
        }
    }
}

//! Keys of Redis. The work is elsewhere, so there are two requests on each side: one before it and one after.

use leasehold_bench_load::{Result, text};
use leasehold_once::redis as once;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

use super::{Keys, RESULT, first, recorded};
use crate::ways::{self, Way};

pub(super) fn ways(url: &str) -> Result<Vec<Way>> {
    let (mut plain, mut scripted) = (Server::open(url)?, Server::open(url)?);
    Ok(vec![
        Way::new("`SET NX`, and `SET` of the result", move || plain.unique()),
        Way::new("`redis::begin` and `finish`", move || scripted.once()),
    ])
}

struct Server {
    runtime: Runtime,
    connection: MultiplexedConnection,
    keys: Keys,
}

impl Server {
    fn open(url: &str) -> Result<Self> {
        let (runtime, connection) = ways::redis(url)?;
        Ok(Self {
            runtime,
            connection,
            keys: Keys::new()?,
        })
    }

    fn unique(&mut self) -> Result<()> {
        let once = self.keys.next()?;
        let key = once.key().as_str();
        self.runtime.block_on(async {
            let new: bool = self.connection.set_nx(key, "").await.map_err(text)?;
            if !new {
                return Err("a new key was there".into());
            }
            let stored = self.connection.set::<_, _, ()>(key, RESULT);
            stored.await.map_err(text)
        })
    }

    fn once(&mut self) -> Result<()> {
        let next = self.keys.next()?;
        let pass = &self.keys.pass;
        self.runtime.block_on(async {
            let begun = once::begin(&mut self.connection, &next, pass).await;
            first(&begun.map_err(text)?)?;
            let finished = once::finish(&mut self.connection, &next, pass, RESULT).await;
            recorded(finished.map_err(text)?)
        })
    }
}

//! A key of Redis.

use leasehold_bench_load::{Result, text};
use leasehold_core::Name;
use leasehold_fence::{Mark, redis as fence};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, Script};
use tokio::runtime::Runtime;

use super::{accepted, mark};
use crate::ways::{self, Way};

struct Server {
    runtime: Runtime,
    connection: MultiplexedConnection,
}

pub(super) fn ways(url: &str) -> Result<Vec<Way>> {
    let (mut plain, mut scripted, mut fenced) = (open(url)?, open(url)?, open(url)?);
    let (stock, mark): (Name, Mark) = ("stock".parse().map_err(text)?, mark()?);
    let script = Script::new("return redis.call('SET', KEYS[1], ARGV[1])");
    Ok(vec![
        Way::new("unguarded, `SET`", move || {
            let set = plain.connection.set::<_, _, ()>("stock", 41);
            plain.runtime.block_on(set).map_err(text)
        }),
        Way::new("unguarded, `SET` in a script", move || {
            let mut call = script.prepare_invoke();
            call.key("stock").arg(41);
            let set = call.invoke_async::<()>(&mut scripted.connection);
            scripted.runtime.block_on(set).map_err(text)
        }),
        Way::new("`redis::set`", move || {
            let set = fence::set(&mut fenced.connection, &stock, mark, "stock", 41);
            accepted(fenced.runtime.block_on(set).map_err(text)?)
        }),
    ])
}

fn open(url: &str) -> Result<Server> {
    let (runtime, connection) = ways::redis(url)?;
    Ok(Server {
        runtime,
        connection,
    })
}

use std::time::Duration;

use ::redis::AsyncConnectionConfig;
use ::redis::aio::MultiplexedConnection;
use leasehold_core::{Name, Result};
use leasehold_fence::Pass;
use leasehold_once::{Begun, Finished, Once, Record, Success, redis};
use tokio::runtime::Runtime;

use super::{Database, runtime};

pub(super) struct Redis(Runtime, MultiplexedConnection);

/// Longer than anything takes on a busy machine; the driver's own is half a second.
const LONG: Duration = Duration::from_secs(60);

/// Makes every record older, and one whose time is over then is no more.
const AGE: &str = "for _, key in ipairs(redis.call('KEYS', 'leasehold:once:*')) do
    for _, field in ipairs({ 'started', 'ended' }) do
        if redis.call('HEXISTS', key, field) == 1 then redis.call('HINCRBY', key, field, string.format('%.0f', -ARGV[1])) end
    end
    local left = redis.call('PTTL', key)
    if left >= 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end
end";

impl Redis {
    pub(super) fn open(url: &str) -> Self {
        let runtime = runtime();
        let client = ::redis::Client::open(url).unwrap();
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LONG))
            .set_response_timeout(Some(LONG));
        let connection = runtime
            .block_on(client.get_multiplexed_async_connection_with_config(&patient))
            .unwrap();
        Self(runtime, connection)
    }

    fn ask<T: ::redis::FromRedisValue>(&mut self, command: &[&str]) -> T {
        let mut asked = ::redis::cmd(command[0]);
        asked.arg(&command[1..]);
        let Self(runtime, connection) = self;
        runtime.block_on(asked.query_async(connection)).unwrap()
    }
}

impl Database for Redis {
    fn prepare(&mut self) {
        self.ask::<()>(&["FLUSHALL"]);
    }

    fn begin(&mut self, once: &Once, pass: &Pass) -> Result<Begun> {
        let Self(runtime, connection) = self;
        runtime.block_on(redis::begin(connection, once, pass))
    }

    fn finish(&mut self, once: &Once, pass: &Pass, result: &[u8]) -> Result<Finished> {
        let Self(runtime, connection) = self;
        runtime.block_on(redis::finish(connection, once, pass, result))
    }

    fn fail(&mut self, once: &Once, pass: &Pass) -> Result<bool> {
        let Self(runtime, connection) = self;
        runtime.block_on(redis::fail(connection, once.key(), pass))
    }

    fn done(&mut self, once: &Once, lock: &Name) -> Result<Option<Success>> {
        let Self(runtime, connection) = self;
        runtime.block_on(redis::done(connection, once, lock))
    }

    fn list(&mut self, prefix: &str) -> Vec<Record> {
        let Self(runtime, connection) = self;
        runtime.block_on(redis::list(connection, prefix)).unwrap()
    }

    fn forget(&mut self, once: &Once) -> bool {
        let Self(runtime, connection) = self;
        let forget = redis::forget(connection, once.key());
        runtime.block_on(forget).unwrap()
    }

    fn age(&mut self, by: i64) {
        self.ask::<()>(&["EVAL", AGE, "0", &by.to_string()]);
    }

    fn whole(&mut self, once: &Once, pass: &Pass, between: &dyn Fn()) -> Begun {
        let begun = self.begin(once, pass).unwrap();
        if begun == Begun::First {
            self.ask::<()>(&["INCR", "worked"]);
            between();
            let result = pass.mark().to_string();
            let finished = self.finish(once, pass, result.as_bytes());
            assert_eq!(finished.unwrap(), Finished::Recorded);
        }
        begun
    }

    fn worked(&mut self) -> i64 {
        self.ask::<Option<i64>>(&["GET", "worked"]).unwrap_or(0)
    }
}

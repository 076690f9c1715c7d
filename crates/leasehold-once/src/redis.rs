//! Records on Redis and Valkey, for the `redis` crate.
//!
//! There is no transaction with the work in it: the work is elsewhere, between [`begin`] and [`finish`], under a lock.
//!
//! ```no_run
//! use leasehold_fence::Pass;
//! use leasehold_once::{Begun, Finished, Once, redis};
//! # async fn charge() -> Vec<u8> { Vec::new() }
//! # async fn example(mut connection: ::redis::aio::MultiplexedConnection) -> Result<(), Box<dyn std::error::Error>> {
//! let (once, pass): (_, Pass) = (Once::new("charge/4711/2026-11".parse()?), "charges:41".parse()?);
//! match redis::begin(&mut connection, &once, &pass).await? {
//!     Begun::First => {
//!         let receipt = charge().await;
//!         if redis::finish(&mut connection, &once, &pass, &receipt).await? != Finished::Recorded {
//!             return Err("a newer holder has taken over".into());
//!         }
//!     }
//!     Begun::Done(success) => println!("{:?}", success.result),
//!     Begun::Running(attempt) => return Err(attempt.to_string().into()),
//!     Begun::Stale(stale) => return Err(stale.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A record is a hash of its own under [`key`], which expires by itself. It is as durable as the server's data, which is
//! what the server's persistence and failover make it: what is lost may happen again. The crate's README has more.

use std::sync::LazyLock;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Name, Result};
use leasehold_fence::Pass;
use leasehold_fence::redis::lacks_right;
use leasehold_fence::sql::parameters;
use redis::aio::ConnectionLike;
use redis::{FromRedisValue, RedisError, Script, Value};

use crate::record::{Begun, Finished, Once, Record, Success};
use crate::row::{ROUNDS, Row, span, undecided};

/// What every record's key begins with.
const PREFIX: &str = "leasehold:once:";

/// How many keys a look at all of them takes at a time.
const SCANNED: usize = 1000;

static BEGIN: LazyLock<Script> = LazyLock::new(|| {
    script("return leasehold_begin(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5])")
});
static FINISH: LazyLock<Script> = LazyLock::new(|| {
    script(
        "local ended = leasehold_end(KEYS[1], ARGV[1], ARGV[2], ARGV[3], 'done')
         if ended ~= true then return ended end
         redis.call('HSET', KEYS[1], 'result', ARGV[5])
         leasehold_expire(KEYS[1], ARGV[4])
         return 1",
    )
});
static FAIL: LazyLock<Script> = LazyLock::new(|| {
    script("return leasehold_end(KEYS[1], ARGV[1], ARGV[2], ARGV[3], 'failed') == true")
});
static READ: LazyLock<Script> = LazyLock::new(|| script("return leasehold_read(KEYS[1])"));

/// What a script answers of a record: its fields, the server's time, and for how long it is kept.
type Fields = (
    String,
    i64,
    i64,
    String,
    i64,
    Option<i64>,
    Option<Vec<u8>>,
    i64,
    i64,
);

fn script(body: &str) -> Script {
    Script::new(&format!("{}\n{body}", include_str!("redis/once.lua")))
}

/// The key of a record.
#[must_use]
pub fn key(once: &Name) -> String {
    format!("{PREFIX}{once}")
}

/// Begins an attempt, or says why not.
///
/// # Errors
/// `Ambiguous` when the connection broke before the answer: asked again, the attempt is `Running` by its own token if it
/// has begun; `Unavailable` when the server accepts no writes; `Unauthorized` when it refuses the user; `Unsupported`
/// for a token above 9223372036854775807; `Invalid` when the key belongs to another lock, or holds what leasehold never
/// writes.
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn begin(
    connection: &mut impl ConnectionLike,
    once: &Once,
    pass: &Pass,
) -> Result<Begun> {
    let name = once.key();
    let begin = async {
        let mut call = BEGIN.prepare_invoke();
        let (epoch, token) = parameters(pass.mark())?;
        call.key(key(name))
            .arg(pass.name().as_str())
            .arg(epoch)
            .arg(token)
            .arg(millis(once.attempt_kept()))
            .arg(millis(once.window()));
        for _ in 0..ROUNDS {
            let answer = call.invoke_async(&mut *connection).await.map_err(fault)?;
            let Some(row) = row(name, answer)? else {
                return Ok(Begun::First);
            };
            if let Some(refusal) = row.refusal(once, pass)? {
                return Ok(refusal);
            }
        }
        Err(undecided())
    };
    begin
        .await
        .map_err(|error: Error| error.during("begin").named(name.as_str()))
}

/// Stores the result of the attempt: then it has happened.
///
/// # Errors
/// As [`begin`]; after `Ambiguous` the same call again is safe.
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn finish(
    connection: &mut impl ConnectionLike,
    once: &Once,
    pass: &Pass,
    result: &[u8],
) -> Result<Finished> {
    let name = once.key();
    let finish = async {
        let mut call = FINISH.prepare_invoke();
        let (epoch, token) = parameters(pass.mark())?;
        call.key(key(name))
            .arg(pass.name().as_str())
            .arg(epoch)
            .arg(token)
            .arg(millis(once.kept()))
            .arg(result);
        match call.invoke_async(connection).await.map_err(fault)? {
            Value::Int(1) => Ok(Finished::Recorded),
            answer => row(name, answer)?.map_or(Ok(Finished::NotBegun), |row| row.unfinished(pass)),
        }
    };
    finish
        .await
        .map_err(|error: Error| error.during("finish").named(name.as_str()))
}

/// Says that the attempt failed, so that nobody takes it for one under way. A newer attempt doesn't need that; another
/// one of the same mark does. Answers whether this attempt was the newest, and running.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn fail(connection: &mut impl ConnectionLike, once: &Name, pass: &Pass) -> Result<bool> {
    let fail = async {
        let mut call = FAIL.prepare_invoke();
        let (epoch, token) = parameters(pass.mark())?;
        call.key(key(once))
            .arg(pass.name().as_str())
            .arg(epoch)
            .arg(token);
        call.invoke_async(connection).await.map_err(fault)
    };
    fail.await
        .map_err(|error| error.during("fail").named(once.as_str()))
}

/// The success, if it has happened and still counts. For looking only: who is to work asks [`begin`].
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Safe.
pub async fn done(
    connection: &mut impl ConnectionLike,
    once: &Once,
    lock: &Name,
) -> Result<Option<Success>> {
    let name = once.key();
    let done = match read(connection, name.as_str()).await {
        Ok(Some(row)) => row.success(once, lock),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    done.map_err(|error| error.during("look").named(name.as_str()))
}

/// All records whose keys begin with this, in the order of their keys. It goes through all keys of the server's database,
/// a thousand at a time.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Safe.
pub async fn list(connection: &mut impl ConnectionLike, prefix: &str) -> Result<Vec<Record>> {
    let list = async {
        let mut records = Vec::new();
        for key in keys(connection, prefix).await.map_err(fault)? {
            let name = key.strip_prefix(PREFIX).unwrap_or(&key);
            // One that has expired meanwhile is none.
            let row = read(connection, name).await;
            let record = row.and_then(|row| row.map(|row| row.record()).transpose());
            records.extend(record.map_err(|error| error.named(name))?);
        }
        Ok(records)
    };
    list.await.map_err(|error: Error| error.during("list"))
}

/// Forgets a key: the work may happen again, and an attempt that is at it can't store its result. Answers whether there
/// was a record.
///
/// # Errors
/// As [`begin`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn forget(connection: &mut impl ConnectionLike, once: &Name) -> Result<bool> {
    let mut delete = redis::cmd("DEL");
    let forgotten = delete.arg(key(once)).query_async(connection).await;
    forgotten.map_err(|error| fault(error).during("forget").named(once.as_str()))
}

/// The keys of all records whose own begin with this, each one once.
async fn keys(
    connection: &mut impl ConnectionLike,
    prefix: &str,
) -> redis::RedisResult<Vec<String>> {
    let mut pattern = PREFIX.to_owned();
    for character in prefix.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('*');
    let (mut found, mut cursor) = (Vec::new(), 0_u64);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg(&pattern)
            .arg("COUNT")
            .arg(SCANNED);
        let (next, some): (u64, Vec<String>) = scan.query_async(connection).await?;
        found.extend(some);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

async fn read(connection: &mut impl ConnectionLike, name: &str) -> Result<Option<Row>> {
    let mut call = READ.prepare_invoke();
    call.key(format!("{PREFIX}{name}"));
    let answer = call.invoke_async(connection).await.map_err(fault)?;
    row(name, answer)
}

fn row(name: impl ToString, answer: Value) -> Result<Option<Row>> {
    if answer == Value::Nil {
        return Ok(None);
    }
    let fields = Fields::from_redis_value(answer);
    let (lock, epoch, token, state, started, ended, result, now, left) =
        fields.map_err(|_| no_record())?;
    Ok(Some(Row {
        key: name.to_string(),
        lock,
        epoch,
        token,
        state,
        started,
        ended,
        expires: (left >= 0).then(|| now.saturating_add(left)),
        now,
        result,
    }))
}

/// A span as a script takes it; nothing is for ever.
fn millis(time: Option<Duration>) -> String {
    span(time).map_or_else(String::new, |millis| millis.to_string())
}

fn no_record() -> Error {
    Error::new(
        ErrorKind::Invalid,
        "the key of the record, leasehold:once:…, holds something that leasehold never writes; look at it, and forget \
         the key if the work may be repeated",
    )
}

fn fault(error: RedisError) -> Error {
    let text = error.to_string();
    let lost = error.is_io_error() || error.is_timeout() || error.is_connection_dropped();
    if text.contains("holds no record") || text.contains("WRONGTYPE") {
        return no_record();
    }
    let (kind, what) = if lost {
        (
            ErrorKind::Ambiguous,
            "the connection broke before the server answered; the same call again is safe",
        )
    } else if lacks_right(&error) {
        (
            ErrorKind::Unauthorized,
            "the server refuses the user, or a right that is needed: EVALSHA, EVAL, SCRIPT LOAD, HMGET, HSET, DEL, \
             EXISTS, PTTL, PEXPIRE, PERSIST and TIME on the keys leasehold:once:*, and SCAN to list them",
        )
    } else {
        (ErrorKind::Unavailable, "the server refused the request")
    };
    Error::new(kind, what).because(text)
}

//! A fence on Redis and Valkey, for the `redis` crate.
//!
//! The mark is a key of its own, beside what it guards: `leasehold:fence:{stock}` for the resource `stock`. Its value is
//! the mark in 30 digits, epoch and token, so that it can be compared exactly where Lua's numbers couldn't. It never
//! expires. It is as durable as the server's data, which is what the server's persistence and failover make it; see
//! the crate's README.

use std::sync::LazyLock;

use leasehold_core::{Error, ErrorKind, Name, Result};
use redis::aio::ConnectionLike;
use redis::{ErrorKind as Kind, RedisError, Script, ServerErrorKind, ToRedisArgs};

use crate::digits;
use crate::mark::{Checked, Mark, Seen};

/// The building block for a script of the caller's own: text to put before it.
///
/// `leasehold_fence(KEYS[n], ARGV[m])` takes the key of the mark, from [`key`], and the mark, from [`text`]. It answers
/// `false` when the mark is accepted, and remembers it; else what has been seen, and the script must write nothing.
/// All keys of the script are to be in the mark's slot: name them with the same hash tag.
pub const LUA: &str = include_str!("redis/fence.lua");

static CHECK: LazyLock<Script> =
    LazyLock::new(|| script("return leasehold_fence(KEYS[1], ARGV[1])"));
static SET: LazyLock<Script> = LazyLock::new(|| {
    script(
        "local seen = leasehold_fence(KEYS[1], ARGV[1])
         if not seen then redis.call('SET', KEYS[2], ARGV[2]) end
         return seen",
    )
});
static ADVANCE: LazyLock<Script> =
    LazyLock::new(|| script("return leasehold_advance(KEYS[1], ARGV[1])"));

fn script(body: &str) -> Script {
    Script::new(&format!("{LUA}\n{body}"))
}

/// The key of a resource's mark, in the slot of the resource's own name: `leasehold:fence:{stock}`, and
/// `leasehold:fence:{b}:a{b}c` for a name with a hash tag of its own. A name like `a}b`, which can't stand in braces and
/// has no tag, gets a key in another slot: on a cluster [`set`] of such a name is refused by the server.
#[must_use]
pub fn key(resource: &Name) -> String {
    let name = resource.as_str();
    let own_tag = || Some(name.split_once('{')?.1.split_once('}')?.0).filter(|tag| !tag.is_empty());
    match own_tag() {
        None if name.contains('}') => format!("leasehold:fence::{name}"),
        None => format!("leasehold:fence:{{{name}}}"),
        Some(tag) => format!("leasehold:fence:{{{tag}}}:{name}"),
    }
}

/// A mark as [`LUA`] takes it.
#[must_use]
pub fn text(mark: Mark) -> String {
    digits::write(mark.into())
}

/// Sets a key if the mark is accepted, in one step. The key is to be in the slot of the resource's mark: on a cluster
/// that is the resource itself, or a key with its hash tag.
///
/// # Errors
/// `Ambiguous` when the connection broke before the answer: the same call again is safe; `Unavailable` when the server
/// accepts no writes; `Unauthorized` when it refuses the user; `Unsupported` when the mark's key holds something else.
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn set(
    connection: &mut impl ConnectionLike,
    resource: &Name,
    mark: Mark,
    key: impl ToRedisArgs,
    value: impl ToRedisArgs,
) -> Result<Checked> {
    let mut call = SET.prepare_invoke();
    call.key(self::key(resource))
        .key(key)
        .arg(text(mark))
        .arg(value);
    let seen: redis::RedisResult<Option<String>> = call.invoke_async(connection).await;
    checked(seen, mark).map_err(|error| error.during("set").named(resource.as_str()))
}

/// Shuts older holders out without writing. A holder does this before it *reads* what it will write anew: until then an
/// older one can still get a write in between.
///
/// # Errors
/// As [`set`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn check(
    connection: &mut impl ConnectionLike,
    resource: &Name,
    mark: Mark,
) -> Result<Checked> {
    let mut call = CHECK.prepare_invoke();
    call.key(key(resource)).arg(text(mark));
    let seen: redis::RedisResult<Option<String>> = call.invoke_async(connection).await;
    checked(seen, mark).map_err(|error| error.during("check").named(resource.as_str()))
}

/// The highest mark that the resource has seen.
///
/// # Errors
/// As [`set`].
///
/// # Cancel safety
/// Safe.
pub async fn seen(connection: &mut impl ConnectionLike, resource: &Name) -> Result<Seen> {
    let held: redis::RedisResult<Option<String>> = redis::cmd("GET")
        .arg(key(resource))
        .query_async(connection)
        .await;
    let seen = held.map_err(fault).and_then(|held| match held {
        None => Ok(Seen::default()),
        Some(held) => read(&held),
    });
    seen.map_err(|error| error.during("show").named(resource.as_str()))
}

/// Begins an epoch: every write of an older one is stale from here on. Answers what has been seen afterwards, which is
/// of a higher epoch where that has begun already; nothing is changed then, and nothing when it is this one.
///
/// # Errors
/// As [`set`].
///
/// # Cancel safety
/// Dropped, it may have taken effect.
pub async fn advance(
    connection: &mut impl ConnectionLike,
    resource: &Name,
    epoch: u32,
) -> Result<Seen> {
    let mut call = ADVANCE.prepare_invoke();
    call.key(key(resource))
        .arg(digits::write(Seen::new(epoch, None)));
    let seen: redis::RedisResult<String> = call.invoke_async(connection).await;
    let seen = seen.map_err(fault).and_then(|seen| read(&seen));
    seen.map_err(|error| error.during("advance").named(resource.as_str()))
}

fn checked(seen: redis::RedisResult<Option<String>>, mark: Mark) -> Result<Checked> {
    match seen.map_err(fault)? {
        None => Ok(Checked::Accepted),
        Some(seen) => Ok(read(&seen)?.check(mark)),
    }
}

fn read(text: &str) -> Result<Seen> {
    digits::read(text).ok_or_else(no_mark)
}

fn no_mark() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the key of the mark, leasehold:fence:…, holds something that is no mark, so nobody can tell which writes are \
         stale; delete it, if older writes may pass again, or choose another name",
    )
}

/// What a script is told that was refused a command or a key; no code of its own tells that in older servers.
const LACKS_RIGHT: [&str; 3] = [
    "ACL failure in script",
    "can't run this command or subcommand",
    "can't access at least one of the keys",
];

/// Whether the server refuses the user, or a right of his, also one that a script needs.
#[must_use]
pub fn lacks_right(error: &RedisError) -> bool {
    let text = error.to_string();
    error.kind() == Kind::AuthenticationFailed
        || error.kind() == Kind::Server(ServerErrorKind::NoPerm)
        || LACKS_RIGHT.iter().any(|sign| text.contains(sign))
}

fn fault(error: RedisError) -> Error {
    let text = error.to_string();
    let lost = error.is_io_error() || error.is_timeout() || error.is_connection_dropped();
    if text.contains("holds no mark") || text.contains("WRONGTYPE") {
        return no_mark();
    }
    let (kind, what) = if lost {
        (
            ErrorKind::Ambiguous,
            "the connection broke before the server answered; the same call again is safe",
        )
    } else if lacks_right(&error) {
        (
            ErrorKind::Unauthorized,
            "the server refuses the user, or a right that is needed: EVALSHA, EVAL, SCRIPT LOAD, GET and SET on the \
             keys",
        )
    } else {
        (ErrorKind::Unavailable, "the server refused the request")
    };
    Error::new(kind, what).because(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_in_the_slot_of_its_resource() {
        let key = |name: &str| key(&Name::new(name).unwrap());
        assert_eq!(key("stock"), "leasehold:fence:{stock}");
        assert_eq!(key("a{b"), "leasehold:fence:{a{b}");
        assert_eq!(key("a{b}c"), "leasehold:fence:{b}:a{b}c");
        assert_eq!(key("{stock}"), "leasehold:fence:{stock}:{stock}");
        assert_eq!(key("a{}c"), "leasehold:fence::a{}c");
        assert_eq!(key("a}b"), "leasehold:fence::a}b");
    }
}

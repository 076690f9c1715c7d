//! The scripts and how they are called: by their hash, and whole when the server has forgotten them.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisResult, Script, ServerErrorKind, Value};

/// A script with its hash.
pub(crate) struct Code {
    pub(crate) text: &'static str,
    hash: String,
}

macro_rules! script {
    ($name:ident, $doc:literal, $($part:literal),+) => {
        #[doc = $doc]
        pub(crate) static $name: LazyLock<$crate::script::Code> = LazyLock::new(|| {
            $crate::script::Code::new(concat!($(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts/", $part))),+))
        });
    };
}
pub(crate) use script;

impl Code {
    pub(crate) fn new(text: &'static str) -> Self {
        let hash = Script::new(text).get_hash().to_owned();
        Self { text, hash }
    }
}

script!(
    ACQUIRE,
    "One try.",
    "common.lua",
    "acquire_free.lua",
    "queue.lua",
    "acquire.lua"
);
script!(
    RELEASE,
    "Ends an attempt or a hold.",
    "release_free.lua",
    "common.lua",
    "queue.lua",
    "release.lua"
);
script!(
    BREAK,
    "Takes a lock from its holder.",
    "common.lua",
    "queue.lua",
    "break.lua"
);
script!(RENEW, "Renews many holds.", "renew.lua");
script!(INSPECT, "Who holds and who waits.", "inspect.lua");

/// Calls a script. `EVALSHA` first; `EVAL` where the server doesn't have it, which also loads it. Needs no
/// right to `SCRIPT LOAD`.
pub(crate) async fn call(
    connection: &mut (impl ConnectionLike + Send),
    script: &Code,
    keys: &[&str],
    args: &[&str],
) -> RedisResult<Value> {
    let command = |verb: &str, code: &str| {
        let mut command = Cmd::new();
        command
            .arg(verb)
            .arg(code)
            .arg(keys.len())
            .arg(keys)
            .arg(args);
        command
    };
    match command("EVALSHA", &script.hash)
        .query_async(connection)
        .await
    {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            command("EVAL", script.text).query_async(connection).await
        }
        answer => answer,
    }
}

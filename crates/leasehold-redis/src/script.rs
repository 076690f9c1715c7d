//! The scripts and how they are called: by their hash, and whole when the server has forgotten them.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Script, ServerErrorKind, Value};

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
script!(
    INSPECT,
    "Who holds and who waits.",
    "common.lua",
    "queue.lua",
    "inspect.lua"
);

/// Calls a script. `EVALSHA` first; `EVAL` where the server doesn't have it, which also loads it. Needs no
/// right to `SCRIPT LOAD`.
pub(crate) async fn call(
    connection: &mut (impl ConnectionLike + Send),
    script: &Code,
    keys: &[&str],
    args: &[&str],
) -> RedisResult<Value> {
    match script.by_hash(keys, args).query_async(connection).await {
        Err(error) if is_unknown(&error) => script.whole(keys, args).query_async(connection).await,
        answer => answer,
    }
}

/// As [`call`], each time with `ASKING` right before it.
pub(crate) async fn call_asking(
    connection: &mut (impl ConnectionLike + Send),
    script: &Code,
    keys: &[&str],
    args: &[&str],
) -> RedisResult<Value> {
    let asking = Cmd::new().arg("ASKING").to_owned();
    match both(connection, &asking, &script.by_hash(keys, args)).await {
        Err(error) if is_unknown(&error) => {
            both(connection, &asking, &script.whole(keys, args)).await
        }
        answer => answer,
    }
    .map(|(_, answer)| answer)
}

/// As [`call`], each time with a command right behind it.
pub(crate) async fn call_and_then(
    connection: &mut (impl ConnectionLike + Send),
    script: &Code,
    keys: &[&str],
    args: &[&str],
    then: &Cmd,
) -> RedisResult<(Value, Value)> {
    match both(connection, &script.by_hash(keys, args), then).await {
        Err(error) if is_unknown(&error) => both(connection, &script.whole(keys, args), then).await,
        answer => answer,
    }
}

/// Sends two commands with nothing between them; the error is that of the first that has one.
async fn both(
    connection: &mut (impl ConnectionLike + Send),
    first: &Cmd,
    second: &Cmd,
) -> RedisResult<(Value, Value)> {
    let mut pipeline = Pipeline::new();
    pipeline.add_command(first.clone());
    pipeline.add_command(second.clone());
    pipeline.ignore_errors();
    let (first, second): (Value, Value) = pipeline.query_async(connection).await?;
    Ok((known(first)?, known(second)?))
}

/// An answer among several, unless it is an error.
pub(crate) fn known(answer: Value) -> RedisResult<Value> {
    match answer {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}

fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

impl Code {
    fn by_hash(&self, keys: &[&str], args: &[&str]) -> Cmd {
        command("EVALSHA", &self.hash, keys, args)
    }

    fn whole(&self, keys: &[&str], args: &[&str]) -> Cmd {
        command("EVAL", self.text, keys, args)
    }
}

fn command(verb: &str, code: &str, keys: &[&str], args: &[&str]) -> Cmd {
    let texts = [verb, code]
        .into_iter()
        .chain(keys.iter().chain(args).copied());
    let bytes: usize = texts.map(str::len).sum();
    // Grown piece by piece it would be copied again and again.
    let mut command = Cmd::with_capacity(3 + keys.len() + args.len(), bytes + 4);
    command
        .arg(verb)
        .arg(code)
        .arg(keys.len())
        .arg(keys)
        .arg(args);
    command
}

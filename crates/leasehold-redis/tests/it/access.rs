//! Who may, over what connection, and what is said to those who may not.

use crate::common::{LONG, Raw, assert_busy, connect, everything, lock, server, take};
use leasehold::{ErrorKind, Release};
use leasehold_testkit::servers::{Redis, RedisCluster, RedisEdition, RedisSentinel};

/// Stands for a password, and must not be shown anywhere.
const CANARY: &str = "canary-4711";

/// The words of the README's access rule, with this password.
fn rule() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("```text\nACL SETUSER").unwrap();
    let (rule, _) = rest.split_once("```").unwrap();
    let words = "ACL SETUSER".split(' ').chain(rule.split_whitespace());
    words
        .map(|word| word.replace(">PASSWORD", &format!(">{CANARY}")))
        .collect()
}

/// The rights that the README names behind these words.
fn more(of: &str) -> Vec<String> {
    let readme = include_str!("../../README.md").replace('\n', " ");
    let (_, rest) = readme.split_once(of).unwrap();
    let (_, rest) = rest.split_once('`').unwrap();
    let (rights, _) = rest.split_once('`').unwrap();
    rights.split(' ').map(str::to_owned).collect()
}

fn setting(at: std::net::SocketAddr, words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Raw::at(&format!("redis://{at}")).ask::<()>(&words);
}

/// A server with the README's user.
fn ruled(edition: RedisEdition, change: impl Fn(&mut Vec<String>)) -> Redis {
    let server = Redis::start(edition).unwrap();
    let mut rule = rule();
    change(&mut rule);
    let words: Vec<&str> = rule.iter().map(String::as_str).collect();
    Raw::to(&server).ask::<()>(&words);
    server
}

fn url(server: &Redis) -> String {
    format!(
        "redis://locker:{CANARY}@{}/0?prefix=locks:",
        server.address()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_rule_is_enough_on_every_edition() {
    for edition in RedisEdition::ALL {
        let server = ruled(edition, |_| {});
        let mut raw = Raw::to(&server);
        raw.ask::<()>(&["HSET", "locks:hash", "f", "v"]);
        let client = connect(&url(&server)).await;
        everything(&client).await.unwrap();
        let client = connect(&url(&server)).await;
        let error = lock(&client, "hash", LONG).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let denied: Vec<redis::Value> = raw.ask(&["ACL", "LOG"]);
        // CONFIG is for `doctor` and may be refused, and so may be what gives a connection a name.
        for entry in denied {
            let text = format!("{entry:?}");
            // Redis 6.2 names the command alone.
            let refused = ["config|get", "client|setinfo", "config", "client"]
                .map(|command| format!(r#"bulk-string('"object"'), bulk-string('"{command}"')"#));
            assert!(
                refused.iter().any(|refused| text.contains(refused)),
                "{edition:?} {text}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_right_of_the_readmes_rule_is_needed() {
    let server = ruled(RedisEdition::Redis7, |_| {});
    let mut raw = Raw::to(&server);
    // The first two are for what isn't done here: a driver that greets, another database. Without the last nobody
    // is told anything, and all look for themselves.
    let spared = ["+hello", "+select", "+publish"];
    let mut needless = Vec::new();
    for right in rule()
        .iter()
        .filter(|word| word.starts_with('+') && !spared.contains(&word.as_str()))
    {
        let words: Vec<String> = rule();
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        let without = right.replace('+', "-");
        words.push(&without);
        raw.ask::<()>(&words);
        raw.ask::<()>(&["FLUSHALL"]);
        let outcome = match leasehold::connect(&url(&server)).await {
            Ok(client) => tokio::time::timeout(LONG, everything(&client))
                .await
                .unwrap(),
            Err(error) => Err(error),
        };
        let Err(error) = outcome else {
            needless.push(right.clone());
            continue;
        };
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{right}: {error}");
        let text = format!("{error}");
        assert!(
            text.contains("README") && !text.contains(CANARY),
            "{right}: {text}"
        );
    }
    // What else is at a key is looked up where there is something else alone: see the test above.
    assert_eq!(needless, ["+type"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn further_rights_of_the_readme_are_enough_in_a_cluster() {
    let cluster = RedisCluster::start(RedisEdition::Redis7).unwrap();
    let words = [
        rule(),
        more("More for Cluster:"),
        more("More for `min-replicas`:"),
    ]
    .concat();
    for at in 0..cluster.size() {
        setting(cluster.address(at), &words);
    }
    let credentials = format!("//locker:{CANARY}@");
    let url = cluster.url().replace("//", &credentials) + "?prefix=locks:&min-replicas=1";
    let client = connect(&url).await;
    everything(&client).await.unwrap();
    assert!(!format!("{client:?} {:?}", client.info()).contains("canary"));
    // The password is as wrong at every node.
    let error = leasehold::connect(&url.replace(CANARY, "wrong"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn further_rights_of_the_readme_are_enough_behind_sentinels() {
    let group = RedisSentinel::start(RedisEdition::Redis7).unwrap();
    let words = [rule(), more("More for Sentinel, on the servers:")].concat();
    for at in 0..group.size() {
        setting(group.address(at), &words);
    }
    let readme = include_str!("../../README.md");
    let (_, watcher) = readme.split_once("ACL SETUSER watcher").unwrap();
    let (watcher, _) = watcher.split_once("```").unwrap();
    let watcher: Vec<String> = "ACL SETUSER watcher"
        .split(' ')
        .chain(watcher.split_whitespace())
        .map(|word| word.replace(">PASSWORD", &format!(">{CANARY}-2")))
        .collect();
    for at in 0..3 {
        setting(group.sentinel_address(at), &watcher);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, format!("{CANARY}-2\n")).unwrap();
    let credentials = format!("//locker:{CANARY}@");
    let url = format!(
        "{}&prefix=locks:&sentinel-user=watcher&sentinel-password-file={}",
        group.url().replace("//", &credentials),
        file.path().display()
    );
    let client = connect(&url).await;
    everything(&client).await.unwrap();
    assert!(!format!("{client:?} {:?}", client.info()).contains("canary"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_channels_outside_the_rule_are_unauthorized() {
    let server = ruled(RedisEdition::Redis7, |_| {});
    let outside = format!("redis://locker:{CANARY}@{}", server.address());
    let client = connect(&outside).await;
    let error = lock(&client, "other", LONG)
        .try_acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert!(error.to_string().contains("README"), "{error}");

    let server = ruled(RedisEdition::Redis7, |rule| {
        rule.retain(|word| !word.starts_with('&'))
    });
    let client = connect(&url(&server)).await;
    let _guard = take(&client, "a", LONG).await;
    let error = lock(&client, "a", LONG).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_unauthorized_and_never_shown() {
    let with_user = ruled(RedisEdition::Redis7, |_| {});
    let with_password =
        Redis::start_with(RedisEdition::Redis7, &["--requirepass", "right"]).unwrap();
    let mut shown = Vec::new();
    for (server, credentials) in [
        (&with_user, format!("locker:{CANARY}x@")),
        (&with_user, format!("nobody:{CANARY}@")),
        (&with_password, format!(":{CANARY}@")),
        (&with_password, String::new()),
    ] {
        let url = format!("redis://{credentials}{}", server.address());
        let error = leasehold::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        shown.push(format!("{error} {error:?} {error:#?}"));
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            shown.push(format!("{cause} {cause:?}"));
            source = cause.source();
        }
    }
    // And where they are right.
    let client = connect(&url(&with_user)).await;
    let guard = take(&client, "a", LONG).await;
    shown.push(format!(
        "{client:?} {client:#?} {guard:?} {:?} {:?}",
        client.lock("a"),
        client.info()
    ));
    // A server that is gone.
    let gone = url(&with_user);
    drop(with_user);
    shown.push(format!(
        "{:?}",
        leasehold::connect(&gone).await.unwrap_err()
    ));
    shown.push(format!("{:?}", client.inspect("a").await.unwrap_err()));
    for text in shown {
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unix_socket_is_the_same_store() {
    let server = server();
    let url = format!("redis+unix://{}", server.socket().display());
    let client = connect(&url).await;
    everything(&client).await.unwrap();
    let client = connect(&url).await;
    let held = take(&client, "x", LONG).await;
    assert_busy(&connect(&server.url()).await, "x").await;
    assert_eq!(held.release().await.unwrap(), Release::Freed);
}

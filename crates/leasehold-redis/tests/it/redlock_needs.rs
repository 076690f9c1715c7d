//! What Redlock needs of its nodes, on real servers: the rights, a memory, and that each stays the server it was.

use crate::common::{LONG, Raw, connect, everything, lock, ms, take, until, url_of};
use leasehold::store::Verdict;
use leasehold::{Client, ErrorKind, Release, StoreUrl};
use leasehold_testkit::servers::{Redis, RedisEdition, RedisNodes};

/// Stands for a password, and must not be shown anywhere.
const CANARY: &str = "canary-4711";

fn nodes(args: &[&str]) -> RedisNodes {
    RedisNodes::start_with(RedisEdition::Redis7, 3, args).unwrap()
}

fn raw(nodes: &RedisNodes, at: usize) -> Raw {
    Raw::at(&url_of(nodes.address(at)))
}

/// The words of the README's access rule, and the rights that Redlock's page adds.
fn rule() -> (Vec<String>, Vec<String>) {
    let (_, rest) = include_str!("../../README.md")
        .split_once("```text\nACL SETUSER")
        .unwrap();
    let (rule, _) = rest.split_once("```").unwrap();
    let words = "ACL SETUSER".split(' ').chain(rule.split_whitespace());
    let words = words.map(|word| word.replace(">PASSWORD", &format!(">{CANARY}")));
    let (_, more) = include_str!("../../REDLOCK.md")
        .split_once("More for Redlock: `")
        .unwrap();
    let (more, _) = more.split_once('`').unwrap();
    (
        words.collect(),
        more.split(' ').map(str::to_owned).collect(),
    )
}

fn set_user(nodes: &RedisNodes, words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for at in 0..nodes.size() {
        raw(nodes, at).ask::<()>(&words);
    }
}

fn url_of_user(nodes: &RedisNodes) -> String {
    let credentials = format!("//locker:{CANARY}@");
    nodes.url().replace("//", &credentials) + "?prefix=locks:"
}

/// What a node is found to be.
async fn found(client: &Client, node: &str, what: &str) -> Option<Verdict> {
    let findings = client.check().await.unwrap();
    let of_node = |text: &str| text.starts_with(&format!("{node}: ")) && text.contains(what);
    let finding = findings.iter().find(|finding| of_node(&finding.what));
    finding.map(|finding| finding.verdict)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documents_rights_are_enough() {
    let nodes = nodes(&[]);
    let (rule, more) = rule();
    set_user(&nodes, &[rule, more].concat());
    let url = url_of_user(&nodes);
    let client = connect(&url).await;
    everything(&client).await.unwrap();
    let rejoined = leasehold_redis::rejoin(StoreUrl::parse(&url).unwrap()).await;
    assert_eq!(rejoined.unwrap()[0].verdict, Verdict::Good);
    for at in 0..nodes.size() {
        let denied: Vec<redis::Value> = raw(&nodes, at).ask(&["ACL", "LOG"]);
        // What gives a connection a name may be refused.
        let other = |entry: &&redis::Value| !format!("{entry:?}").contains("client|setinfo");
        assert!(denied.iter().find(other).is_none(), "{denied:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_one_of_the_rights_the_error_names_it() {
    // Older ones don't say which command a script was refused.
    let nodes = RedisNodes::start_with(RedisEdition::Redis8, 3, &["--databases", "64"]).unwrap();
    let (rule, more) = rule();
    // As for one server; and without `config|get` a node counts as one that forgets.
    let spared = ["+hello", "+select", "+publish", "+config|get"];
    let mut needless = Vec::new();
    let words = [rule, more].concat();
    let rights = words.iter().filter(|word| word.starts_with('+'));
    let rights = rights.filter(|right| !spared.contains(&right.as_str()));
    // In a database of its own each, because a client that was refused may go on writing for a while.
    for (database, right) in (1..).zip(rights) {
        let mut words = words.clone();
        words.push(right.replace('+', "-"));
        set_user(&nodes, &words);
        for at in 0..nodes.size() {
            raw(&nodes, at).ask::<()>(&["SCRIPT", "FLUSH"]);
        }
        let url = url_of_user(&nodes).replace('?', &format!("/{database}?"));
        let outcome = match leasehold::connect(&url).await {
            Ok(client) => tokio::time::timeout(LONG, everything(&client))
                .await
                .unwrap_or_else(|_| panic!("it hangs without {right}")),
            Err(error) => Err(error),
        };
        let Err(error) = outcome else {
            needless.push(right.clone());
            continue;
        };
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{right}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("README") && !text.contains(CANARY),
            "{right}: {text}"
        );
        assert!(text.contains(&right[1..]), "{right}: {text}");
    }
    // One server is asked for an answer at connecting, nodes for more than that. What else is at a key is looked up
    // where there is something else alone.
    assert_eq!(needless, ["+ping", "+type"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn evicted_locks_are_granted_again_with_a_higher_token_and_doctor_warns() {
    let nodes = nodes(&["--maxmemory-policy", "volatile-lru"]);
    let (client, other) = (connect(&nodes.url()).await, connect(&nodes.url()).await);
    let first = nodes.address(0).to_string();
    let policy = "maxmemory-policy is volatile-lru";
    assert_eq!(found(&client, &first, policy).await, Some(Verdict::Warning));
    let guard = take(&client, "a", LONG).await;
    for at in 0..nodes.size() {
        let mut raw = raw(&nodes, at);
        raw.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        until(ms(10_000), async || {
            // Refused, and before that the server makes room.
            let _ = raw.tried::<()>(&["SET", "x", "y", "PX", "1"]);
            !raw.keys().iter().any(|key| key == "a")
        })
        .await;
        raw.ask::<()>(&["CONFIG", "SET", "maxmemory", "1gb"]);
    }
    assert_eq!(found(&client, &first, policy).await, Some(Verdict::Bad));
    let next = take(&other, "a", LONG).await;
    assert!(next.token() > guard.token());
    assert!(guard.is_held(), "it can't know before it renews");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_restarted_at_once_grant_again_with_a_higher_token() {
    let mut nodes = nodes(&[]);
    let client = connect(&nodes.url()).await;
    let guard = take(&client, "a", LONG).await;
    for at in 0..3 {
        nodes.node(at).kill().unwrap();
    }
    for at in 0..3 {
        nodes.node(at).start_again().unwrap();
    }
    let other = connect(&nodes.url()).await;
    let next = take(&other, "a", LONG).await;
    assert!(next.token() > guard.token());
    assert!(guard.is_held(), "it can't know before it renews");
    drop(guard);
    assert!(next.is_held());
}

/// It has what it was sent, on disk too, and may lack what the node answered last.
#[tokio::test(flavor = "multi_thread")]
async fn replica_in_place_of_its_node_has_no_vote() {
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut nodes = nodes(&durable);
    let client = connect(&nodes.url()).await;
    let node = nodes.address(2);
    let name = node.to_string();
    let replica = Redis::start_with(RedisEdition::Redis7, &durable).unwrap();
    let mut operator = Raw::to(&replica);
    let port = node.port().to_string();
    operator.ask::<()>(&["REPLICAOF", "127.0.0.1", &port]);
    until(ms(20_000), async || {
        found(&client, &name, "it has 1 replica(s)").await == Some(Verdict::Warning)
    })
    .await;
    let ttl = ms(1000);
    let guard = take(&client, "a", ttl).await;
    until(ms(10_000), async || {
        operator.keys().iter().any(|key| key == "a")
    })
    .await;
    nodes.node(2).kill().unwrap();
    operator.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    operator.ask::<()>(&["CONFIG", "SET", "port", &port]);
    // It has been running for longer than the longest TTL.
    tokio::time::sleep(ms(3500)).await;
    let other = connect(&nodes.url()).await;
    let promoted = found(&other, &name, "was a replica").await;
    assert_eq!(promoted, Some(Verdict::Bad));
    let busy = lock(&other, "a", ttl).try_acquire().await.unwrap();
    assert!(busy.is_none(), "{busy:?}");
    assert!(guard.is_held());
    // The node itself has kept its memory.
    drop(replica);
    nodes.node(2).start_again().unwrap();
    until(ms(20_000), async || {
        found(&other, &name, "it counts").await == Some(Verdict::Good)
    })
    .await;
    assert_eq!(guard.release().await.unwrap(), Release::Freed);
}

/// Taken anew by a renewal it would be a second grant of one token.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_does_not_get_back_a_vote_that_it_lost() {
    let nodes = nodes(&[]);
    let ttl = ms(3000);
    let client = connect(&nodes.url()).await;
    let holder = take(&client, "x", ttl).await;
    raw(&nodes, 0).ask::<()>(&["DEL", "x"]);
    tokio::time::sleep(ttl * 2).await;
    assert!(holder.is_held(), "{holder:?}");
    let found: Option<String> = raw(&nodes, 0).ask(&["GET", "x"]);
    assert_eq!(found, None);
    raw(&nodes, 1).ask::<()>(&["DEL", "x"]);
    tokio::time::timeout(ttl + LONG, holder.lost())
        .await
        .unwrap();
}

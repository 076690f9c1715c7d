//! A URL that names another kind of server than the one that is there: refused at connect, with what to write.

use crate::common::server;
use leasehold::ErrorKind;
use leasehold_testkit::servers::{RedisCluster, RedisEdition, RedisSentinel};

#[track_caller]
fn is_invalid(error: &leasehold::Error, hint: &str) {
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains(hint), "{error}");
    assert_eq!(error.operation(), Some("connect"), "{error}");
}

async fn refused(url: &str, hint: &str) {
    is_invalid(&leasehold::connect(url).await.unwrap_err(), hint);
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinel_or_replica_as_a_server_and_server_as_a_sentinel() {
    for edition in [
        RedisEdition::Redis6,
        RedisEdition::Redis7,
        RedisEdition::Valkey8,
    ] {
        let group = RedisSentinel::start(edition).unwrap();
        let sentinel = group.sentinel_address(0);
        refused(&format!("redis://{sentinel}"), "redis+sentinel://").await;
        refused(&format!("redis://{sentinel}/1"), "redis+sentinel://").await;
        refused(&format!("redis+cluster://{sentinel}"), "redis+sentinel://").await;
        let (master, replica) = (group.address(0), group.address(1));
        let hint = format!("a replica of {master}");
        refused(&format!("redis://{replica}"), &hint).await;
        let url = format!("redis+sentinel://{master}?master=mymaster");
        refused(&url, "write redis:// for redis+sentinel://").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_of_a_cluster_as_a_server() {
    for edition in [RedisEdition::Redis7, RedisEdition::Valkey8] {
        let cluster = RedisCluster::start(edition).unwrap();
        let node = cluster.address(0);
        refused(&format!("redis://{node}"), "redis+cluster://").await;
        refused(&format!("redis://{node}/1"), "redis+cluster://").await;
        let [other, third] = [cluster.address(1), cluster.address(2)];
        refused(
            &format!("redlock://{node},{other},{third}"),
            "a node of a cluster",
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinel_as_a_node_of_redlock() {
    let group = RedisSentinel::start(RedisEdition::Redis7).unwrap();
    let [a, b, c] = [0, 1, 2].map(|at| group.sentinel_address(at));
    refused(&format!("redlock://{a},{b},{c}"), "is a sentinel").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_as_a_cluster_or_without_that_database_or_tls() {
    let server = server();
    let at = server.address();
    let hint = "write redis:// for redis+cluster://";
    refused(&format!("redis+cluster://{at}"), hint).await;
    refused(&format!("redis://{at}/99"), "databases").await;
    let unix = format!("redis+unix://{}?prefix=a", server.socket().display());
    leasehold::connect(&unix).await.unwrap();
    // It mostly says nothing to what it can't read.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let error = leasehold::connect(&format!("rediss://{at}"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("redis://"), "{error}");
}

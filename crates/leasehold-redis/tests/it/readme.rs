//! The README says what the code does.

use leasehold_core::url::StoreUrl;
use leasehold_testkit::readme::check_capabilities;
use leasehold_testkit::servers::{Redis, RedisEdition, RedisNodes};

#[tokio::test]
async fn the_capability_table_is_true() {
    let server = Redis::start(RedisEdition::Redis7).expect("Redis starts");
    let url = StoreUrl::parse(&server.url()).expect("the server's URL is one");
    let backend = leasehold_redis::connect(url).await.expect("connects");
    check_capabilities(
        include_str!("../../README.md"),
        &backend.info().capabilities,
    );
}

#[tokio::test]
async fn the_capability_table_of_redlock_is_true() {
    let nodes = RedisNodes::start(RedisEdition::Redis7, 3).expect("Redis starts");
    let url = StoreUrl::parse(&nodes.url()).expect("the nodes' URL is one");
    let backend = leasehold_redis::connect(url).await.expect("connects");
    check_capabilities(
        include_str!("../../REDLOCK.md"),
        &backend.info().capabilities,
    );
}

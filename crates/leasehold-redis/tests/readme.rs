//! The README says what the code does.

use leasehold_core::url::StoreUrl;
use leasehold_testkit::readme::check_capabilities;
use leasehold_testkit::servers::{Redis, RedisEdition};

#[tokio::test]
async fn the_capability_table_is_true() {
    let server = Redis::start(RedisEdition::Redis7).expect("Redis starts");
    let url = StoreUrl::parse(&server.url()).expect("the server's URL is one");
    let backend = leasehold_redis::connect(url).await.expect("connects");
    check_capabilities(include_str!("../README.md"), &backend.info().capabilities);
}

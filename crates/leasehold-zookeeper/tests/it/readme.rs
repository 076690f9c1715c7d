//! The README says what the code does.

use leasehold_core::url::StoreUrl;
use leasehold_testkit::readme::check_capabilities;
use leasehold_testkit::servers::ZooKeeper;

#[tokio::test]
async fn the_capability_table_is_true() {
    // As a server has them that sets nothing of it.
    let settings = [
        "tickTime=2000",
        "minSessionTimeout=-1",
        "maxSessionTimeout=-1",
    ];
    let zookeeper = ZooKeeper::start_with(1, &settings, None).expect("ZooKeeper starts");
    let url = StoreUrl::parse(&zookeeper.url()).expect("the server's URL is one");
    let backend = leasehold_zookeeper::connect(url).await.expect("connects");
    check_capabilities(
        include_str!("../../README.md"),
        &backend.info().capabilities,
    );
}

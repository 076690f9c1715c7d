//! The README says what the code does.

use leasehold_core::url::StoreUrl;
use leasehold_testkit::readme::check_capabilities;
use leasehold_testkit::servers::Consul;

#[tokio::test]
async fn the_capability_table_is_true() {
    let consul = Consul::start(1).expect("Consul starts");
    let url = StoreUrl::parse(&consul.url()).expect("the server's URL is one");
    let backend = leasehold_consul::connect(url).await.expect("connects");
    check_capabilities(
        include_str!("../../README.md"),
        &backend.info().capabilities,
    );
}

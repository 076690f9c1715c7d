//! The README says what the code does.

use leasehold_core::url::StoreUrl;
use leasehold_testkit::readme::check_capabilities;
use leasehold_testkit::servers::{Etcd, EtcdEdition};

async fn capabilities(edition: EtcdEdition) -> leasehold::store::Capabilities {
    let etcd = Etcd::start(edition, 1).expect("etcd starts");
    let url = StoreUrl::parse(&etcd.url()).expect("the server's URL is one");
    let backend = leasehold_etcd::connect(url).await.expect("connects");
    backend.info().capabilities
}

#[tokio::test]
async fn the_capability_table_is_true() {
    let capabilities = capabilities(EtcdEdition::Etcd35).await;
    check_capabilities(include_str!("../../README.md"), &capabilities);
}

#[tokio::test]
async fn a_server_that_may_end_leases_has_a_lower_grade() {
    let capabilities = capabilities(EtcdEdition::Etcd34).await;
    assert_eq!(
        capabilities.token,
        leasehold::store::TokenGrade::Durable,
        "3.4.23 lacks the cure"
    );
}

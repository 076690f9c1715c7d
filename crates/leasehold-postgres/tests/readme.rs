//! The README says what the code does.

use leasehold_core::url::StoreUrl;
use leasehold_testkit::readme::check_capabilities;
use leasehold_testkit::servers::Postgres;

#[tokio::test]
async fn the_capability_table_is_true() {
    let postgres = Postgres::start().expect("PostgreSQL starts");
    let url = StoreUrl::parse(&postgres.url()).expect("the server's URL is one");
    let backend = leasehold_postgres::connect(url).await.expect("connects");
    check_capabilities(include_str!("../README.md"), &backend.info().capabilities);
}

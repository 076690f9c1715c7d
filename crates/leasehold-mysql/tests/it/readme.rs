//! The README says what the code does.

use leasehold_core::url::StoreUrl;
use leasehold_testkit::readme::check_capabilities;
use leasehold_testkit::servers::{Mysql, MysqlEdition};

#[tokio::test]
async fn the_capability_table_is_true() {
    for edition in MysqlEdition::ALL {
        let mysql = Mysql::start(edition).expect("the server starts");
        let url = StoreUrl::parse(&mysql.url()).expect("the server's URL is one");
        let backend = leasehold_mysql::connect(url).await.expect("connects");
        check_capabilities(
            include_str!("../../README.md"),
            &backend.info().capabilities,
        );
    }
}

//! The README's table of capabilities against what the store says of itself.

use crate::common::Place;
use leasehold_testkit::readme::check_capabilities;

#[tokio::test(flavor = "multi_thread")]
async fn readme_states_the_capabilities_there_are() {
    let place = Place::new();
    let backend = place.backend().await;
    check_capabilities(
        include_str!("../../README.md"),
        &backend.info().capabilities,
    );
}

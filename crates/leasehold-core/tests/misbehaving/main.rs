//! The core over a store that misbehaves on command.

#![allow(clippy::unwrap_used)] // a test may

mod acquire;
mod keeper;
mod scripted;

use std::time::Duration;

const TTL: Duration = Duration::from_secs(1);
/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(10);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future)
        .await
        .expect("takes far too long")
}

async fn until(what: &str, mut check: impl FnMut() -> bool) {
    soon(async {
        while !check() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert!(check(), "{what}");
}

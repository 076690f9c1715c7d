//! Processes that write, and holds of the lock that guards what they write to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Child;
use std::time::Duration;

use leasehold::{Client, Guard};
use leasehold_fence::Mark;
use leasehold_testkit::freezing::{self, Pid};
use tokio::runtime::Runtime;

const TTL: Duration = Duration::from_millis(500);
/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A process that writes; killed when dropped.
pub(crate) struct Writer(pub(crate) Child);

impl Writer {
    pub(crate) fn says(&mut self) -> String {
        let mut line = String::new();
        // One byte at a time, because what is read too much would be lost with the reader.
        BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn go_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub(crate) fn freeze(&self) {
        freezing::freeze(Pid::from_child(&self.0)).unwrap();
    }

    pub(crate) fn thaw(&self) {
        freezing::thaw(Pid::from_child(&self.0)).unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A hold of the lock that guards the resource.
pub(crate) struct Hold {
    runtime: Runtime,
    client: Client,
    guard: Guard,
}

impl Hold {
    pub(crate) fn take(locks: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (client, guard) = runtime.block_on(async {
            let client = leasehold::connect(locks).await.unwrap();
            let lock = client.lock("stock").unwrap().ttl(TTL);
            (client, lock.acquire_within(LONG).await.unwrap().unwrap())
        });
        Self {
            runtime,
            client,
            guard,
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        self.guard.token().into()
    }

    pub(crate) fn give_back(self) {
        self.runtime.block_on(async {
            self.guard.release().await.unwrap();
            self.client.close().await;
        });
    }
}

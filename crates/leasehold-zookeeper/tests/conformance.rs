//! The conformance suite on real servers of ZooKeeper 3.8.

use std::process::ExitCode;

use leasehold_testkit::conformance::{self, Shared};
use leasehold_testkit::servers::ZooKeeper;

/// No case cuts the machine's power, and three members on one disk wait for one another.
const FAST: &[&str] = &["forceSync=no"];

static SINGLE: Shared<ZooKeeper> = Shared::new(|| warm(1), ZooKeeper::url).alone(single);
static ENSEMBLE: Shared<ZooKeeper> = Shared::new(|| warm(3), ZooKeeper::url).alone(single);
static KAZOO: Shared<ZooKeeper> = Shared::new(|| warm(1), ZooKeeper::url)
    .alone(single)
    .with("layout=kazoo");

fn single() -> ZooKeeper {
    start(1)
}

fn start(members: usize) -> ZooKeeper {
    ZooKeeper::start_with(members, FAST, None).expect("ZooKeeper starts")
}

fn warm(members: usize) -> ZooKeeper {
    let servers = start(members);
    warm_up(&servers.url());
    servers
}

/// A server that has just started compiles itself while it works, and takes a hundred times as long for each request.
fn warm_up(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        // Sessions too: each client begins its own.
        for _ in 0..20 {
            let client = leasehold::connect(url).await.expect("the server answers");
            for _ in 0..10 {
                let lock = client.lock("warm").expect("a name");
                let guard = lock.acquire().await.expect("the server answers");
                guard.release().await.expect("the server answers");
            }
            client.close().await;
        }
    });
}

fn main() -> ExitCode {
    conformance::main(&[
        ("single", &SINGLE),
        ("ensemble", &ENSEMBLE),
        ("kazoo", &KAZOO),
    ])
}

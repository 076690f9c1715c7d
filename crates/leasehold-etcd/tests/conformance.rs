//! The conformance suite on real clusters.

use std::process::ExitCode;

use leasehold_testkit::conformance::{self, Shared};
use leasehold_testkit::servers::{Etcd, EtcdEdition};

/// No case cuts the machine's power, and three members on one disk wait for one another.
const FAST: &[&str] = &["--unsafe-no-fsync"];

static ETCD35: Shared<Etcd> = Shared::new(|| start(EtcdEdition::Etcd35, 1), Etcd::url);
static ETCD34: Shared<Etcd> = Shared::new(|| start(EtcdEdition::Etcd34, 1), Etcd::url);
static CLUSTER: Shared<Etcd> = Shared::new(|| start(EtcdEdition::Etcd35, 3), Etcd::url)
    .alone(|| start(EtcdEdition::Etcd35, 1));

fn start(edition: EtcdEdition, members: usize) -> Etcd {
    Etcd::start_with(edition, members, FAST).expect("etcd starts")
}

fn main() -> ExitCode {
    conformance::main(&[
        ("etcd35", &ETCD35),
        ("etcd34", &ETCD34),
        ("cluster", &CLUSTER),
    ])
}

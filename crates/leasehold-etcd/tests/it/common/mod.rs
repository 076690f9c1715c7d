//! Clusters of one's own, and what other programs do with them.

use std::io::Write as _;
use std::process::Stdio;

use leasehold_testkit::servers::{Etcd, EtcdEdition};
pub(crate) use leasehold_testkit::steps::*;

pub(crate) fn single() -> Etcd {
    Etcd::start(EtcdEdition::Etcd35, 1).unwrap()
}

pub(crate) fn three() -> Etcd {
    Etcd::start(EtcdEdition::Etcd35, 3).unwrap()
}

/// Runs `etcdctl` with these words and this input; what it printed.
pub(crate) fn ctl_with(etcd: &Etcd, words: &[&str], input: &str) -> String {
    let mut child = etcd
        .control()
        .unwrap()
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let done = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "etcdctl {words:?}: {err}");
    String::from_utf8(done.stdout).unwrap()
}

pub(crate) fn ctl(etcd: &Etcd, words: &[&str]) -> String {
    ctl_with(etcd, words, "")
}

/// All keys there are.
pub(crate) fn keys(etcd: &Etcd) -> Vec<String> {
    let text = ctl(etcd, &["get", "", "--prefix", "--keys-only"]);
    text.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

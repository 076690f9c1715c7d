//! No space left: at the cluster's quota, and on one member's disk.

use std::process::Command;
use std::time::Duration;

use crate::common::*;
use leasehold::store::Verdict;
use leasehold::{ErrorKind, HoldState, Release};
use leasehold_testkit::servers::{Etcd, EtcdEdition};

const TTL: Duration = Duration::from_secs(4);
/// Room for what starts, and soon filled.
const QUOTA: &str = "4194304";

/// Writes until the cluster takes no more.
fn fill(etcd: &Etcd) {
    let much = "x".repeat(1 << 20);
    for at in 0..64 {
        let mut command = etcd.control().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("much");
        std::fs::write(&file, &much).unwrap();
        let put = command
            .args(["put", &format!("much/{at}")])
            .stdin(std::fs::File::open(&file).unwrap());
        let done = put.output().unwrap();
        if !done.status.success() {
            let text = String::from_utf8_lossy(&done.stderr);
            assert!(text.contains("database space exceeded"), "{text}");
            return;
        }
    }
    panic!("the quota is never used up");
}

/// The newest revision.
fn revision(etcd: &Etcd) -> String {
    let status = ctl(etcd, &["get", "none", "--write-out", "json"]);
    let (_, rest) = status.split_once("\"revision\":").unwrap();
    rest.split([',', '}']).next().unwrap().to_owned()
}

/// Holds cost no writes, so they go on; what is new is refused with the reason; a hand-over only deletes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_quota_is_used_up_keeps_its_holds_and_refuses_new_ones() {
    for edition in EtcdEdition::ALL {
        let etcd = Etcd::start_with(edition, 1, &["--quota-backend-bytes", QUOTA]).unwrap();
        let (one, two) = (connect(&etcd.url()).await, connect(&etcd.url()).await);
        let holder = take(&one, "x", TTL).await;
        let waiting = lock(&two, "x", TTL);
        let waiter = tokio::spawn(async move { waiting.acquire().await });
        queued(&one, "x", 1).await;
        fill(&etcd);

        tokio::time::sleep(TTL * 2).await;
        assert_eq!(holder.state(), HoldState::Held);
        let refused = lock(&one, "y", TTL).try_acquire().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(refused.to_string().contains("space"), "{refused}");
        let findings = one.check().await.unwrap();
        assert!(
            findings
                .iter()
                .any(|found| found.verdict == Verdict::Bad && found.what.contains("NOSPACE")),
            "{findings:?}"
        );

        assert_eq!(holder.release().await.unwrap(), Release::Freed);
        let next = tokio::time::timeout(SLACK, waiter).await.unwrap();
        let next = next.unwrap().unwrap();
        assert_eq!(next.release().await.unwrap(), Release::Freed);

        // An operator makes room.
        ctl(&etcd, &["del", "much/", "--prefix"]);
        ctl(&etcd, &["compaction", "--physical", &revision(&etcd)]);
        ctl(&etcd, &["defrag"]);
        ctl(&etcd, &["alarm", "disarm"]);
        take(&one, "y", TTL).await.release().await.unwrap();
    }
}

/// A member that can't write ends, or stands still; the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_takes_no_more_costs_no_lock() {
    let mut etcd = three();
    let leader = etcd.leader().unwrap();
    let client = connect(&etcd.url()).await;
    let holder = take(&client, "x", TTL).await;
    let pid = etcd.member(leader).process_id().unwrap();
    // From now on each write of its to any file fails.
    let limited = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), "--fsize=0"])
        .status()
        .unwrap();
    assert!(limited.success());
    let other = connect(&etcd.url()).await;
    tokio::time::sleep(TTL * 2).await;
    assert!(holder.is_held(), "{holder:?}");
    assert_busy(&other, "x").await;
    until(SLACK * 2, async || holder.state() == HoldState::Held).await;
    assert_eq!(holder.release().await.unwrap(), Release::Freed);
    take(&other, "x", TTL).await.release().await.unwrap();
}

//! One holder at a time.

use std::time::Duration;

use leasehold::Release;

use super::{Bench, LONG, Outcome, assert_busy, take};
use crate::history::{self, Verdict};
use crate::process::crowds;
use crate::protocol::{Crowd, CrowdHold, Terms, Wait};
use crate::worker::read;

pub(super) async fn no_two_of_64_tasks_in_4_processes_hold_at_once(bench: Bench) -> Outcome {
    let counter = std::env::temp_dir().join(format!("leasehold-counter-{}", std::process::id()));
    std::fs::write(&counter, "0")?;
    let crowd = Crowd {
        name: "crowded".into(),
        tasks: 16,
        // Long enough that no hold is lost for want of a processor: what is tested here are the grants.
        terms: Terms::renewed(bench.ttl(10_000)),
        waits: vec![
            Wait::No,
            Wait::AtMost(Duration::from_millis(20)),
            Wait::AtMost(Duration::from_millis(500)),
        ],
        holds: u32::MAX,
        at_least: 4,
        lasts: Duration::from_secs(4),
        extends: false,
        gives_back: Some(Duration::from_millis(2)),
        counter: Some(counter.clone()),
    };
    let (holds, _workers) = crowds(&bench.url, 4, &crowd).await?;
    let written = read(&counter);
    std::fs::remove_file(&counter)?;

    let lost = holds.iter().filter(|hold| hold.told.is_some()).count();
    assert_eq!(lost, 0, "holds of 10 s were lost within milliseconds");
    history::check(&histories(&holds), Verdict::Exclusive)?;
    assert_eq!(written, holds.len() as u64, "updates were lost");
    bench.free_within("crowded", super::SLACK).await?;
    Ok(())
}

pub(super) fn histories(holds: &[CrowdHold]) -> Vec<history::Hold> {
    holds.iter().map(|hold| hold.hold).collect()
}

pub(super) async fn two_tasks_of_one_process_exclude_each_other(bench: Bench) -> Outcome {
    let lock = bench.lock("one")?;
    let guard = take(&lock).await?;
    // The same lock, another of the same client, and another connection.
    assert_busy(&lock).await?;
    assert_busy(&lock.clone()).await?;
    assert_busy(&bench.lock("one")?).await?;
    assert_busy(&bench.other().await?.lock("one")?).await?;
    assert_eq!(guard.release().await?, Release::Freed);
    take(&lock).await?.release().await?;
    Ok(())
}

pub(super) async fn two_processes_exclude_each_other(bench: Bench) -> Outcome {
    let mut worker = bench.worker().await?;
    let lock = bench.lock("two")?;
    let (theirs, _) = worker.take("two", Terms::renewed(LONG)).await?;
    assert_busy(&lock).await?;
    assert_eq!(worker.release(theirs).await?, "freed");
    let ours = take(&lock).await?;
    let refused = worker.acquiring("two", Terms::renewed(LONG), Wait::No)?;
    assert_eq!(worker.granted(refused).await?, None);
    assert_eq!(ours.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn prefixes_keep_namespaces_apart(bench: Bench) -> Outcome {
    let (ours, theirs) = (
        bench.prefixed("ours:").await?,
        bench.prefixed("theirs:").await?,
    );
    let our_guard = take(&ours.lock("job")?).await?;
    let their_guard = take(&theirs.lock("job")?).await?;
    let plain_guard = take(&bench.lock("job")?).await?;
    // With its prefix written out it is the same lock.
    assert_busy(&bench.lock("ours:job")?).await?;
    assert!(our_guard.name().as_str().ends_with("ours:job"));

    let seen = ours.inspect("job").await?;
    assert_eq!(seen.name.as_str(), "job");
    assert_eq!(
        seen.holder.and_then(|holder| holder.token),
        Some(our_guard.token())
    );
    let listed = |found: Vec<leasehold::Inspection>| -> Vec<String> {
        found.iter().map(|one| one.name.to_string()).collect()
    };
    assert_eq!(listed(ours.list("").await?), ["job"]);
    assert_eq!(listed(theirs.list("jo").await?), ["job"]);
    assert_eq!(
        listed(bench.client.list("").await?),
        ["job", "ours:job", "theirs:job"]
    );
    for guard in [our_guard, their_guard, plain_guard] {
        assert_eq!(guard.release().await?, Release::Freed);
    }
    Ok(())
}

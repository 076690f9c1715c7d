//! Which names are one lock, which are two, and which are none.

use leasehold::{ErrorKind, Release};

use super::{Bench, Outcome, SLACK, take};
use crate::protocol::{Terms, Wait};
use crate::tools::{boot, elapsed};

pub(super) async fn child_held_never_delays_its_parent(bench: Bench) -> Outcome {
    let (parent, child) = (bench.lock("a")?, bench.lock("a/b")?);
    let held = take(&child).await?;
    // Neither a hold nor a queue of the child's.
    let mut worker = bench.worker().await?;
    let terms = Terms::renewed(super::LONG);
    let waiting = worker.acquiring("a/b", terms, Wait::Forever)?;
    bench.queued("a/b", 1).await?;
    for name in ["a", "a/c", "a/b/c", "a/bc", "b"] {
        let since = boot();
        let guard = bench.lock(name)?.acquire().await?;
        assert!(elapsed(since) < SLACK, "\"{name}\" was delayed");
        assert_eq!(guard.release().await?, Release::Freed);
    }
    let above = take(&parent).await?;
    assert_eq!(held.release().await?, Release::Freed);
    assert!(worker.granted(waiting).await?.is_some());
    assert_eq!(worker.release(waiting).await?, "freed");
    assert_eq!(above.release().await?, Release::Freed);
    Ok(())
}

pub(super) async fn names_that_look_alike_are_different_locks(bench: Bench) -> Outcome {
    let long = "n".repeat(199);
    let names = [
        "job",
        "JOB",
        "Job",
        "j_b",
        "j%b",
        "j*b",
        "j?b",
        "[j]ob",
        "jób",
        "jo\u{301}b",
        "job ",
        " job",
        "jo b",
        "job\u{200b}",
        "'job'",
        "\"job\"",
        "job\\",
        "job;--",
        "{job}",
        "job}b",
        "job:",
        "job.",
        "...",
        "%6aob",
        "ｊob",
        "ß",
        "ss",
        "ﬁ",
        "fi",
        "🔒",
        "zookeeper2/x",
        &format!("{long}a"),
        &format!("{long}b"),
    ];
    let mut guards = Vec::new();
    for name in names {
        let guard = take(&bench.lock(name)?).await;
        guards.push(guard.map_err(|error| format!("{error}; another name excludes it"))?);
    }
    for (name, guard) in names.iter().zip(&guards) {
        let seen = bench.client.inspect(name).await?;
        assert_eq!(seen.name.as_str(), *name);
        assert_eq!(
            seen.holder.and_then(|holder| holder.token),
            Some(guard.token())
        );
    }
    for prefix in ["", "j", "J", "j_", "j%", "jo", "[", "\"", "n", "{"] {
        let listed = bench.client.list(prefix).await?;
        let listed: Vec<&str> = listed.iter().map(|one| one.name.as_str()).collect();
        let mut expected: Vec<&str> = names
            .into_iter()
            .filter(|n| n.starts_with(prefix))
            .collect();
        expected.sort_unstable();
        assert_eq!(listed, expected, "listing \"{prefix}\"");
    }
    for guard in guards {
        assert_eq!(guard.release().await?, Release::Freed);
    }
    assert_eq!(bench.client.list("").await?, []);
    Ok(())
}

pub(super) async fn names_that_break_the_rules_are_refused(bench: Bench) -> Outcome {
    let client = &bench.client;
    let too_long = "n".repeat(201);
    let names = [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/./b",
        "a/..",
        "a\nb",
        "a\0b",
        "a\u{7f}",
        "\u{85}",
        "a\u{e000}",
        "\u{f8ff}",
        "zookeeper",
        "zookeeper/x",
        &too_long,
    ];
    for name in names {
        let refused = [
            client.lock(name).err(),
            client.inspect(name).await.err(),
            client.break_hold(name, None).await.err(),
        ];
        for error in refused {
            let error = error.ok_or_else(|| format!("{name:?} was taken for a name"))?;
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name:?}");
            assert!(!error.message().is_empty());
            assert!(!error.to_string().contains(['\n', '\0']), "{error}");
        }
    }
    // With its prefix a name of the longest length is too long.
    let prefixed = bench.prefixed("p:").await?;
    let fits = client.lock(&"n".repeat(200));
    assert!(fits.is_ok() || bench.url.contains("prefix="));
    let error = prefixed.lock(&"n".repeat(200)).err();
    let kind = error.map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::Invalid));
    Ok(())
}

//! Settings that a store can't do are refused before anything is sent.

use std::time::Duration;

use leasehold::{Error, ErrorKind, Release};

use super::{Bench, Outcome, take};

pub(super) async fn ttl_out_of_bounds_is_refused_with_the_bounds(bench: Bench) -> Outcome {
    let (shortest, longest) = (bench.can.ttl_min, bench.can.ttl_max);
    let step = Duration::from_nanos(1);
    let names_both = |error: &Error| {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        assert!(text.contains(&format!("{shortest:?}")), "{text}");
        assert!(text.contains(&format!("{longest:?}")), "{text}");
    };
    let guard = take(&bench.lock("held")?).await?;
    for outside in [
        Duration::ZERO,
        shortest - step,
        longest + step,
        Duration::MAX,
    ] {
        let lock = bench.client.lock("ttl")?.ttl(outside);
        let refused = lock.try_acquire().await.err();
        names_both(&refused.ok_or_else(|| format!("{outside:?} was accepted"))?);
        let refused = lock.acquire().await.err();
        names_both(&refused.ok_or_else(|| format!("{outside:?} was accepted"))?);
        let refused = guard.extend(outside).await.err();
        names_both(&refused.ok_or_else(|| format!("{outside:?} was accepted"))?);
    }
    assert!(guard.is_held(), "a refused extension harmed the hold");
    assert_eq!(guard.release().await?, Release::Freed);
    for inside in [longest, shortest] {
        let lock = bench.client.lock("ttl")?.ttl(inside);
        // The shortest one may be over before a busy machine has answered.
        match lock.acquire().await {
            Ok(guard) => drop(guard.release().await?),
            Err(error) => assert_ne!(error.kind(), ErrorKind::Invalid, "{error}"),
        }
        bench.free_within("ttl", Duration::from_secs(5)).await?;
    }
    Ok(())
}

pub(super) async fn note_is_shown_and_a_long_one_refused(bench: Bench) -> Outcome {
    let longest = "ä".repeat(100);
    let guard = take(&bench.lock("note")?.note(longest.as_str())).await?;
    let seen = bench.client.inspect("note").await?;
    let note = seen
        .holder
        .and_then(|holder| holder.identity)
        .and_then(|identity| identity.note);
    assert_eq!(note, Some(longest.clone()));
    guard.release().await?;

    let lock = bench.lock("note")?.note(format!("{longest}x"));
    let error = lock.try_acquire().await.err().ok_or("a long note passed")?;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("201"), "{error}");
    let error = bench.lock("note")?.max_hold(Duration::ZERO).acquire().await;
    assert_eq!(
        error.map_err(|error| error.kind()).err(),
        Some(ErrorKind::Invalid)
    );
    bench.free_within("note", Duration::ZERO).await?;
    Ok(())
}

//! Many seeds: the same in every push, so that one that fails is to blame for it; fresh ones where they are asked for.
//!
//! `LEASEHOLD_SIM_SEEDS` says how many fresh ones are run instead, `LEASEHOLD_SIM_SEED` which one alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "it runs in a test, which stops by a panic and says what it did"
)]

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What became of a run: how many holds there were, or what was violated.
pub type Outcome = Result<usize, String>;

/// The seed that is to be run alone, with all that happens in it printed.
/// # Panics
/// When the variable is no number.
#[must_use]
pub fn alone() -> Option<u64> {
    let seed = std::env::var("LEASEHOLD_SIM_SEED").ok()?;
    Some(seed.parse().expect("LEASEHOLD_SIM_SEED is a number"))
}

/// Runs the first `usual` seeds, or as many fresh ones as the environment says. Answers how many, and how many holds
/// there were. `package` and `test` are what cargo calls the test.
///
/// # Panics
/// With how to replay it, when a seed is violated; when the variable is no number; when there is no chance to be had.
pub fn keep<R: FnMut(u64) -> Outcome>(
    usual: u64,
    package: &str,
    test: &str,
    worker: impl Fn() -> R + Sync,
) -> (u64, usize) {
    let range = std::env::var("LEASEHOLD_SIM_SEEDS").map_or(0..usual, |seeds| fresh(&seeds));
    let (violation, holds) = search(range.clone(), &worker);
    if let Some((seed, violation)) = violation {
        panic!(
            "seed {seed}: {violation}\nreplay it with \
             LEASEHOLD_SIM_SEED={seed} cargo test -p {package} --lib -- --exact {test} --nocapture"
        );
    }
    let seeds = range.end - range.start;
    println!("{seeds} seeds from {} on: {holds} holds", range.start);
    (seeds, holds)
}

/// So many seeds that nobody has seen.
fn fresh(seeds: &str) -> Range<u64> {
    let seeds: u64 = seeds.parse().expect("LEASEHOLD_SIM_SEEDS is a number");
    let owner = leasehold_core::Owner::random().unwrap().to_hex();
    let start = u64::from_str_radix(&owner[..15], 16).unwrap();
    start..start + seeds
}

/// Runs seeds on all processors until one is violated: it and what was violated, and how many holds there were.
///
/// # Panics
/// When a run does.
pub fn search<R: FnMut(u64) -> Outcome>(
    seeds: Range<u64>,
    worker: impl Fn() -> R + Sync,
) -> (Option<(u64, String)>, usize) {
    let found = Mutex::new(None);
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let holds = Mutex::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut run = worker();
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match run(seed) {
                        Ok(count) => *holds.lock().unwrap() += count,
                        Err(violation) => {
                            found.lock().unwrap().get_or_insert((seed, violation));
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    (found.into_inner().unwrap(), holds.into_inner().unwrap())
}

/// Runs seeds until something is violated, and asserts that it is and as what: `says` are words of which one must be
/// in it.
///
/// # Panics
/// When nothing is found, or something else.
pub fn shows<R: FnMut(u64) -> Outcome>(seeds: u64, says: &[&str], worker: impl Fn() -> R + Sync) {
    shows_among(0..seeds, says, worker);
}

/// As [`shows`], with these seeds: for what is too rare to be met among the first.
///
/// # Panics
/// When nothing is found, or something else.
pub fn shows_among<R: FnMut(u64) -> Outcome>(
    seeds: Range<u64>,
    says: &[&str],
    worker: impl Fn() -> R + Sync,
) {
    let (found, _) = search(seeds.clone(), worker);
    let (seed, violation) = found.unwrap_or_else(|| panic!("not found in the seeds {seeds:?}"));
    println!("seed {seed}: {violation}");
    assert!(
        says.iter().any(|part| violation.contains(part)),
        "found as something else, in seed {seed}: {violation}"
    );
}

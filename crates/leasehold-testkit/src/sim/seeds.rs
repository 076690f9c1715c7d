//! Many seeds: those that are always run, and fresh ones.
//!
//! `LEASEHOLD_SIM_SEEDS` says how many instead of the default, `LEASEHOLD_SIM_SEED` which one alone.

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

/// Runs `usual` seeds, or as many as the environment says: half of them the same each time, half of them fresh.
/// Answers how many, and how many holds there were. `package` and `test` are what cargo calls the test.
///
/// # Panics
/// With how to replay it, when a seed is violated; when the variable is no number; when there is no chance to be had.
pub fn keep<R: FnMut(u64) -> Outcome>(
    usual: u64,
    package: &str,
    test: &str,
    worker: impl Fn() -> R + Sync,
) -> (u64, usize) {
    let seeds = std::env::var("LEASEHOLD_SIM_SEEDS").map_or(usual, |n| n.parse().unwrap());
    let owner = leasehold_core::Owner::random().unwrap().to_hex();
    let fresh = u64::from_str_radix(&owner[..15], 16).unwrap();
    let half = seeds / 2;
    let mut holds = 0;
    for range in [0..half, fresh..fresh + seeds - half] {
        let (violation, more) = search(range, &worker);
        holds += more;
        if let Some((seed, violation)) = violation {
            panic!(
                "seed {seed}: {violation}\nreplay it with \
                 LEASEHOLD_SIM_SEED={seed} cargo test -p {package} --lib -- --exact {test} --nocapture"
            );
        }
    }
    println!("{seeds} seeds, half of them from {fresh} on: {holds} holds");
    (seeds, holds)
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
    let (found, _) = search(0..seeds, worker);
    let (seed, violation) = found.unwrap_or_else(|| panic!("not found in {seeds} seeds"));
    println!("seed {seed}: {violation}");
    assert!(
        says.iter().any(|part| violation.contains(part)),
        "found as something else, in seed {seed}: {violation}"
    );
}

//! Many seeds, and the ways to see that they find something.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::lua::{Interpreter, Texts};
use super::scenario::{Assumption, Scenario};
use super::world::{Faults, World};

/// What is run: the scripts, the faults put in, and the assumption broken.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) texts: Texts,
    pub(super) faults: Faults,
    pub(super) broken: Option<Assumption>,
}

impl Setup {
    pub(super) fn shipped() -> Self {
        Self {
            texts: Texts::shipped(),
            faults: Faults::default(),
            broken: None,
        }
    }
}

/// One run; the number of holds in it, or what was violated.
pub(super) fn run(setup: &Setup, redis: &Interpreter, seed: u64) -> Result<usize, String> {
    let scenario = Scenario::new(seed, setup.broken);
    let mut world = World::new(scenario, redis, setup.faults);
    finish(&mut world)
}

fn finish(world: &mut World<'_>) -> Result<usize, String> {
    world.run_until(world.scenario.end_at());
    world.finish();
    match world.violation.take() {
        Some(violation) => Err(violation),
        None => Ok(world.records.count()),
    }
}

/// Runs seeds on all processors until one is violated; it and what was violated.
pub(super) fn first_violation(setup: &Setup, seeds: u64) -> Option<(u64, String)> {
    run_all(setup, seeds).0
}

fn run_all(setup: &Setup, seeds: u64) -> (Option<(u64, String)>, usize) {
    let found = Mutex::new(None);
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let holds = Mutex::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let redis = Interpreter::new(&setup.texts);
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    match run(setup, &redis, seed) {
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

/// One seed with all that happened in it.
fn replay(seed: u64) {
    let redis = Interpreter::new(&Texts::shipped());
    let mut world = World::new(Scenario::new(seed, None), &redis, Faults::default());
    world.trace = Some(vec![format!("{:#?}", world.scenario)]);
    let outcome = finish(&mut world);
    println!("{}", world.trace.unwrap_or_default().join("\n"));
    assert_eq!(outcome.map(|_| ()), Ok(()), "seed {seed}");
}

#[test]
fn twenty_thousand_seeds_keep_the_promises() {
    if let Ok(seed) = std::env::var("LEASEHOLD_SIM_SEED") {
        return replay(seed.parse().expect("LEASEHOLD_SIM_SEED is a number"));
    }
    let seeds = std::env::var("LEASEHOLD_SIM_SEEDS").map_or(20_000, |n| n.parse().unwrap());
    let (violation, holds) = run_all(&Setup::shipped(), seeds);
    if let Some((seed, violation)) = violation {
        panic!(
            "seed {seed}: {violation}\nreplay it with \
             LEASEHOLD_SIM_SEED={seed} cargo test -p leasehold-redis simulation::seeds"
        );
    }
    assert!(
        holds as u64 > 10 * seeds,
        "only {holds} holds: the runs are too tame"
    );
}

#[test]
fn a_seed_replays_exactly() {
    let redis = Interpreter::new(&Texts::shipped());
    let run = |seed| {
        let mut world = World::new(Scenario::new(seed, None), &redis, Faults::default());
        world.trace = Some(Vec::new());
        finish(&mut world).unwrap();
        world.trace.unwrap_or_default()
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1), run(2));
}

//! Many seeds, and the ways to see that they find something.

use super::scenario::{Assumption, Scenario};
use super::world::{Faults, World};
use leasehold_testkit::sim::seeds::{self, Outcome};

/// What is run: the faults put in, and the assumption broken.
#[derive(Clone, Debug, Default)]
pub(super) struct Setup {
    pub(super) faults: Faults,
    pub(super) broken: Option<Assumption>,
}

impl Setup {
    /// What runs seeds in one thread.
    pub(super) fn worker(&self) -> impl FnMut(u64) -> Outcome {
        let (faults, broken) = (self.faults, self.broken);
        move |seed| finish(&mut World::new(Scenario::new(seed, broken), faults))
    }
}

fn finish(world: &mut World) -> Outcome {
    world.run_until(world.scenario.end_at());
    world.finish();
    match world.violation.take() {
        Some(violation) => Err(violation),
        None => Ok(world.records.count()),
    }
}

/// One seed with all that happened in it.
fn replay(seed: u64) {
    let mut world = World::new(Scenario::new(seed, None), Faults::default());
    world.trace = Some(vec![format!("{:#?}", world.scenario)]);
    let outcome = finish(&mut world);
    println!("{}", world.trace.unwrap_or_default().join("\n"));
    assert_eq!(outcome.map(|_| ()), Ok(()), "seed {seed}");
}

const TEST: &str = "simulation::seeds::many_seeds_keep_the_promises";

#[test]
fn many_seeds_keep_the_promises() {
    if let Some(seed) = seeds::alone() {
        return replay(seed);
    }
    let setup = Setup::default();
    let (seeds, holds) = seeds::keep(5_000, env!("CARGO_PKG_NAME"), TEST, || setup.worker());
    assert!(
        holds as u64 > 10 * seeds,
        "only {holds} holds: the runs are too tame"
    );
}

#[test]
fn a_seed_replays_exactly() {
    let run = |seed| {
        let mut world = World::new(Scenario::new(seed, None), Faults::default());
        world.trace = Some(Vec::new());
        finish(&mut world).unwrap();
        world.trace.unwrap_or_default()
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1), run(2));
}

//! Many seeds, and the ways to see that they find something.

use super::lua::{Interpreter, Texts};
use super::scenario::{Assumption, Scenario};
use super::world::{Faults, World};
use leasehold_testkit::sim::seeds::{self, Outcome};

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

    /// What runs seeds in one thread.
    pub(super) fn worker(&self) -> impl FnMut(u64) -> Outcome {
        let redis = Interpreter::new(&self.texts);
        move |seed| {
            let scenario = Scenario::new(seed, self.broken);
            finish(&mut World::new(scenario, &redis, self.faults))
        }
    }
}

fn finish(world: &mut World<'_>) -> Outcome {
    world.run_until(world.scenario.end_at());
    world.finish();
    match world.violation.take() {
        Some(violation) => Err(violation),
        None => Ok(world.records.count()),
    }
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

const TEST: &str = "simulation::seeds::many_seeds_keep_the_promises";

#[test]
fn many_seeds_keep_the_promises() {
    if let Some(seed) = seeds::alone() {
        return replay(seed);
    }
    let setup = Setup::shipped();
    let (seeds, holds) = seeds::keep(20_000, env!("CARGO_PKG_NAME"), TEST, || setup.worker());
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

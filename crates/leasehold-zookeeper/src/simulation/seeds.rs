//! Many seeds, and the ways to see that they find something.

use leasehold_testkit::sim::seeds::{self, Outcome};

use super::fault::{self, Fault};
use super::run;
use super::scenario::{Assumption, Scenario};

/// What is run: the fault put in, and the assumption broken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup {
    pub(super) fault: Option<Fault>,
    pub(super) broken: Option<Assumption>,
}

impl Setup {
    /// What runs seeds in one thread.
    pub(super) fn worker(self) -> impl FnMut(u64) -> Outcome {
        fault::put_in(self.fault);
        move |seed| run(&Scenario::new(seed, self.broken), false).0
    }
}

/// One seed with all that happened in it.
fn replay(seed: u64) {
    let scenario = Scenario::new(seed, None);
    let (outcome, traced) = run(&scenario, true);
    println!("{scenario:#?}\n{}", traced.join("\n"));
    assert_eq!(outcome.map(|_| ()), Ok(()), "seed {seed}");
}

const TEST: &str = "simulation::seeds::many_seeds_keep_the_promises";

#[test]
fn many_seeds_keep_the_promises() {
    if let Some(seed) = seeds::alone() {
        return replay(seed);
    }
    let setup = Setup::default();
    let (seeds, holds) = seeds::keep(1_000, env!("CARGO_PKG_NAME"), TEST, || setup.worker());
    assert!(
        holds as u64 > 5 * seeds,
        "only {holds} holds: the runs are too tame"
    );
}

#[test]
fn a_seed_replays_exactly() {
    let run = |seed| run(&Scenario::new(seed, None), true);
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1), run(2));
}

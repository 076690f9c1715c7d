use std::time::Duration;

use super::Rng;

/// How one program behaves that wants a lock again and again.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Where it runs.
    pub machine: usize,
    /// The number of its lock.
    pub name: usize,
    /// The TTL it asks for.
    pub ttl: Duration,
    /// How many of its attempts wait.
    pub waits: f64,
    /// How many of those that wait give up after some time.
    pub gives_up: f64,
    /// Whether its holds are renewed.
    pub renews: bool,
    /// The longest it works with the lock, in nanoseconds.
    pub works: u64,
    /// And without.
    pub thinks: u64,
}

impl Habits {
    /// Those of somebody on one of so many machines, who wants one of so many locks, usually for `base` nanoseconds.
    #[must_use]
    pub fn draw(rng: &mut Rng, base: u64, machines: usize, names: usize) -> Self {
        let ttl = base * [1, 1, 1, 2][rng.below(4)];
        Self {
            machine: rng.below(machines),
            name: rng.below(names),
            ttl: Duration::from_nanos(ttl),
            waits: [1.0, 1.0, 0.7, 0.0][rng.below(4)],
            gives_up: [0.0, 0.3][rng.below(2)],
            renews: rng.chance(0.85),
            works: [base / 50, base / 4, base, 3 * base][rng.below(4)],
            thinks: [base / 20, base / 2, 2 * base][rng.below(3)],
        }
    }
}

//! Jitter. Not for secrets: those come from the system's random source.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// A number in 0..1.
pub(crate) fn jitter() -> f64 {
    #[cfg(feature = "simulated")]
    if let Some(process) = crate::simulated::current() {
        return unit(process.host().bits());
    }
    // Each RandomState has keys of its own, seeded by the system once per thread.
    let bits = RandomState::new().build_hasher().finish();
    unit(bits)
}

fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number in 0..1 that the holds of one process share when they were taken one after another, 64 at a time: they are
/// renewed together. Then what the renewals touch lies close together in memory, too. Of a hundred thousand holds in any
/// other order each would touch pages that no cache knows.
pub(crate) fn shared_jitter(id: u64) -> f64 {
    #[cfg(feature = "simulated")]
    if crate::simulated::current().is_some() {
        return jitter();
    }
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    unit(SEED.hash_one(id / 64))
}

#[cfg(test)]
mod tests {
    #[test]
    fn neighbours_share_their_jitter_and_groups_spread() {
        let of = super::shared_jitter;
        assert!((64..128).all(|id| of(id).to_bits() == of(64).to_bits()));
        let early = (0..4000).filter(|group| of(group * 64) < 0.25).count();
        assert!((800..1200).contains(&early), "{early}");
    }

    #[test]
    fn jitter_spreads_over_the_unit_interval() {
        let mut quarters = [0; 4];
        for _ in 0..4000 {
            let jitter = super::jitter();
            assert!((0.0..1.0).contains(&jitter));
            quarters[(jitter * 4.0) as usize] += 1;
        }
        assert!(quarters.iter().all(|count| *count > 700), "{quarters:?}");
    }
}

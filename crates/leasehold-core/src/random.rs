//! Jitter. Not for secrets: those come from the system's random source.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A number in 0..1.
pub(crate) fn jitter() -> f64 {
    // Each RandomState has keys of its own, seeded by the system once per thread.
    let bits = RandomState::new().build_hasher().finish();
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
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

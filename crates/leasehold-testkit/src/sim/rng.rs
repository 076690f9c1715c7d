use std::ops::Range;

/// Random numbers from a seed (SplitMix64: <https://doi.org/10.1145/2714064.2660195>).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Seeds are small numbers in a row; the first steps spread them.
        let mut rng = Self(seed ^ 0x5851_f42d_4c95_7f2d);
        rng.bits();
        rng
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number in `range`; its start where the range is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        let span = range.end.saturating_sub(range.start).max(1);
        range.start + self.bits() % span
    }

    /// An index below `count`, which must not be zero.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True this often, of one.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

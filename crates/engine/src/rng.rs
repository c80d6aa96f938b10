//! A seeded random number generator: the same seed gives the same numbers.

/// `SplitMix64` (Steele, Lea, Flood 2014). It has one 64-bit state and accepts every seed. The engine needs
/// only uniformly distributed numbers.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator that starts from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 if `bound` is 0.
    ///
    /// Takes the high half of a 128-bit product, so that every number of a span over 4 GiB can be drawn. The
    /// kernel's 32-bit `damon_rand()` cannot draw all of them.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rng_repeats_numbers_for_equal_seed() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
    }

    #[test]
    fn numbers_stay_below_bound_and_exceed_32_bits() {
        let mut rng = Rng::new(1);
        let bound = 20 << 30;
        let drawn: Vec<u64> = (0..1000).map(|_| rng.below(bound)).collect();
        assert!(drawn.iter().all(|n| *n < bound));
        assert!(drawn.iter().any(|n| *n > u64::from(u32::MAX)));
        assert_eq!(rng.below(0), 0);
    }
}

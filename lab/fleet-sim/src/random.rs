//! Random draws. Everything random in the fleet comes from one seed.

use thermo_engine::rng::Rng;

/// A generator for part `part` of what `seed` determines: independent of all other parts, so that a host's
/// data do not depend on the number of hosts.
pub(crate) fn part_of(seed: u64, part: u64) -> Rng {
    Rng::new(Rng::new(seed).next_u64() ^ Rng::new(part ^ 0x5eed_0f7e_57a7_e000).next_u64())
}

/// A number in [0, 1).
pub(crate) fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number in [low, high).
pub(crate) fn uniform(rng: &mut Rng, (low, high): (f64, f64)) -> f64 {
    low + unit(rng) * (high - low)
}

/// A number in [low, high) whose logarithm is uniformly distributed.
pub(crate) fn log_uniform(rng: &mut Rng, (low, high): (f64, f64)) -> f64 {
    uniform(rng, (low.ln(), high.ln())).exp()
}

/// An exponentially distributed time with the mean `1 / rate`.
pub(crate) fn exponential(rng: &mut Rng, rate: f64) -> f64 {
    -(1.0 - unit(rng)).ln() / rate
}

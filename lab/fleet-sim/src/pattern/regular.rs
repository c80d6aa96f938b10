//! Accesses in order: streams, and bursts.

use thermo_engine::rng::Rng;

use super::{Area, Pattern};
use crate::random::uniform;

/// A stream: page after page in order, over and over.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// Time for the whole area.
    pub(crate) period: f64,
}

impl Sweep {
    /// The accesses of a stream that began at `start`.
    pub(crate) fn advance_since(period: f64, start: f64, from: f64, to: f64, area: &mut Area<'_>) {
        let len = area.len as f64;
        for page in 0..area.len {
            let first = start + period * page as f64 / len;
            let rounds = ((to - first) / period).floor();
            let last = first + rounds * period;
            if rounds >= 0.0 && last > from {
                area.touch(page, last);
            }
        }
    }
}

impl Pattern for Sweep {
    fn advance(&mut self, from: f64, to: f64, area: &mut Area<'_>, _: &mut Rng) {
        Self::advance_since(self.period, 0.0, from, to, area);
    }
}

/// Bursts: the whole area at once, then nothing for a while.
#[derive(Debug)]
pub(crate) struct Bursts {
    /// Range of times between two bursts.
    gap: (f64, f64),
    next: f64,
}

impl Bursts {
    pub(crate) fn new(gap: (f64, f64), rng: &mut Rng) -> Self {
        let next = uniform(rng, (0.0, gap.1));
        Self { gap, next }
    }
}

impl Pattern for Bursts {
    fn advance(&mut self, _: f64, to: f64, area: &mut Area<'_>, rng: &mut Rng) {
        while self.next <= to {
            (0..area.len).for_each(|page| area.touch(page, self.next));
            self.next += uniform(rng, self.gap);
        }
    }
}

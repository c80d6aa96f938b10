//! How the pages of an area are accessed over time. Patterns know the exact time of each last access.

mod lifetimes;
mod poisson;
mod regular;

pub(crate) use lifetimes::{Jobs, Leak, Log, Phases};
pub(crate) use poisson::{Band, Load, Poisson};
pub(crate) use regular::{Bursts, Sweep};

use thermo_engine::rng::Rng;
use thermo_units::Nanos;

use crate::memory::Memory;

/// Accesses to an area. Times are in seconds since the start of the fleet.
pub(crate) trait Pattern: std::fmt::Debug {
    /// The program starts: memory that it has from the start is accessed.
    fn start(&mut self, area: &mut Area<'_>) {
        (0..area.len).for_each(|page| area.touch(page, 0.0));
    }

    /// The accesses after `from` until `to`. Only the last access to a page counts.
    fn advance(&mut self, from: f64, to: f64, area: &mut Area<'_>, rng: &mut Rng);
}

/// Neighbouring pages of a memory.
#[derive(Debug)]
pub(crate) struct Area<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) first: usize,
    pub(crate) len: usize,
}

impl Area<'_> {
    pub(crate) fn touch(&mut self, page: usize, at: f64) {
        self.memory.touch(self.first + page, nanos(at));
    }

    pub(crate) fn free(&mut self, page: usize) {
        self.memory.free(self.first + page);
    }

    /// A part of the area.
    pub(crate) const fn part(&mut self, first: usize, len: usize) -> Area<'_> {
        Area {
            memory: self.memory,
            first: self.first + first,
            len,
        }
    }
}

/// A time in seconds, which is not negative, as nanoseconds.
pub(crate) const fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

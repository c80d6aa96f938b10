//! When the mappings of a process are read again.

use thermo_kernel::statm::Statm;
use thermo_units::Nanos;

/// Reading the mappings of one process takes at most this part of the time of one CPU.
const READ_DIVISOR: u64 = 256;
/// After so many looks the mappings are read also if the sizes are the same.
const MAX_LOOKS: u32 = 8;

/// Decides when the mappings of a process are read again: a look at its sizes is cheap, and these change with
/// nearly every mapping. A process with very many mappings is read less often.
#[derive(Debug, Default)]
pub struct Reread {
    /// The sizes when the mappings were read.
    sizes: Statm,
    may_read_at: Nanos,
    /// Looks since they were read.
    looks: u32,
}

impl Reread {
    /// The mappings were read just now, which took `cost` of CPU time. Before that, the process had these
    /// `sizes`.
    #[must_use]
    pub fn after_read(sizes: Statm, now: Nanos, cost: Nanos) -> Self {
        Self {
            sizes,
            may_read_at: now.saturating_add(cost * READ_DIVISOR),
            looks: 0,
        }
    }

    /// Looks at the sizes that the process has now; `None` if they cannot be read. Returns whether its
    /// mappings may have changed.
    pub fn look(&mut self, sizes: Option<Statm>) -> bool {
        self.looks += 1;
        let is_same = |sizes: Statm| (sizes.size, sizes.data) == (self.sizes.size, self.sizes.data);
        !sizes.is_some_and(is_same) || self.looks > MAX_LOOKS
    }

    /// Whether the mappings may be read at `now`.
    #[must_use]
    pub fn may_read(&self, now: Nanos) -> bool {
        now >= self.may_read_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::Bytes;

    fn sizes(data: u64) -> Option<Statm> {
        Some(Statm {
            size: Bytes::mib(9),
            data: Bytes::mib(data),
            ..Statm::default()
        })
    }

    #[test]
    fn mappings_are_read_when_sizes_change_and_at_every_eighth_look() {
        let mut reread = Reread::default();
        assert!(
            reread.look(sizes(1)) && reread.may_read(Nanos::ZERO),
            "never read"
        );
        let mut reread = Reread::after_read(sizes(1).unwrap_or_default(), Nanos::secs(1), Nanos::millis(20));
        assert!((0..8).all(|_| !reread.look(sizes(1))));
        assert!(reread.look(sizes(1)), "seen often enough");
        assert!(reread.look(sizes(2)) && reread.look(None));
        assert!(!reread.may_read(Nanos::secs(6)) && reread.may_read(Nanos::secs(7)));
    }
}

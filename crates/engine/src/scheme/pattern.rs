//! Access patterns: bounds on size, access rate and age of a region.

use crate::attrs::Attrs;
use crate::region::Region;
use thermo_units::{Bytes, Nanos, Permille};

/// A minimum and a maximum, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds<T> {
    /// Minimum.
    pub min: T,
    /// Maximum.
    pub max: T,
}

impl<T: PartialOrd> Bounds<T> {
    /// True if `value` is within the bounds.
    pub fn contains(&self, value: &T) -> bool {
        self.min <= *value && *value <= self.max
    }
}

/// An access rate, in the unit that the user chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Share of all access checks; 1000 means every check.
    Permille(Permille),
    /// Accesses found per aggregation (the unit of DAMON's control files).
    Samples(u32),
}

impl Rate {
    /// The rate in accesses found per aggregation. Shares are rounded down, as in damo.
    #[must_use]
    pub fn samples(self, attrs: &Attrs) -> u32 {
        match self {
            Self::Samples(samples) => samples,
            Self::Permille(Permille(share)) => {
                let samples = u64::from(share) * u64::from(attrs.max_nr_accesses()) / 1000;
                u32::try_from(samples).unwrap_or(u32::MAX)
            }
        }
    }
}

/// An age: the time for which a region has had its access rate. In the unit that the user chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// Duration.
    Time(Nanos),
    /// Number of aggregations (the unit of DAMON's control files).
    Aggrs(u32),
}

impl Age {
    /// The age in aggregations, rounded down as in damo.
    #[must_use]
    pub fn aggrs(self, attrs: &Attrs) -> u32 {
        match self {
            Self::Aggrs(aggrs) => aggrs,
            Self::Time(Nanos::MAX) => u32::MAX,
            Self::Time(span) => attrs.aggrs_in(span),
        }
    }
}

/// The access pattern of a scheme. The default matches all memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessPattern {
    /// Size of the region.
    pub sz: Bounds<Bytes>,
    /// Access rate of the region.
    pub nr_accesses: Bounds<Rate>,
    /// Age of the region.
    pub age: Bounds<Age>,
}

impl Default for AccessPattern {
    fn default() -> Self {
        Self {
            sz: Bounds {
                min: Bytes::ZERO,
                max: Bytes::MAX,
            },
            nr_accesses: Bounds {
                min: Rate::Permille(Permille(0)),
                max: Rate::Permille(Permille(1000)),
            },
            age: Bounds {
                min: Age::Time(Nanos::ZERO),
                max: Age::Time(Nanos::MAX),
            },
        }
    }
}

impl AccessPattern {
    /// True if `region`, monitored with `attrs`, matches this pattern. A region with unknown access rate
    /// matches only a pattern that includes all rates.
    #[must_use]
    pub fn matches(&self, region: &Region, attrs: &Attrs) -> bool {
        let (min_rate, max_rate) = (
            self.nr_accesses.min.samples(attrs),
            self.nr_accesses.max.samples(attrs),
        );
        let includes_all_rates = min_rate == 0 && max_rate >= attrs.max_nr_accesses();
        let rate = region.moving_nr_accesses();
        (if region.unknown {
            includes_all_rates
        } else {
            min_rate <= rate && rate <= max_rate
        }) && self.sz.contains(&region.len())
            && self.age.min.aggrs(attrs) <= region.age
            && region.age <= self.age.max.aggrs(attrs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    fn region(pages: u64, nr_accesses: u32, age: u32) -> Region {
        Region {
            nr_accesses_bp: u64::from(nr_accesses) * 10_000,
            age,
            ..Region::new(AddrRange::new(0, pages * 4096))
        }
    }

    #[test]
    fn pattern_bounds_are_inclusive() {
        let attrs = Attrs::default();
        let pattern = AccessPattern {
            sz: Bounds {
                min: Bytes(8192),
                max: Bytes(16384),
            },
            nr_accesses: Bounds {
                min: Rate::Samples(2),
                max: Rate::Permille(Permille(500)),
            },
            age: Bounds {
                min: Age::Aggrs(3),
                max: Age::Time(Nanos::secs(1)),
            },
        };
        for (matches, region) in [
            (true, region(2, 2, 3)),
            (true, region(4, 10, 10)),
            (false, region(1, 2, 3)),
            (false, region(5, 2, 3)),
            (false, region(2, 1, 3)),
            (false, region(2, 11, 3)),
            (false, region(2, 2, 2)),
            (false, region(2, 2, 11)),
        ] {
            assert_eq!(pattern.matches(&region, &attrs), matches, "{region:?}");
        }
    }

    #[test]
    fn unknown_region_is_never_cold() {
        let attrs = Attrs::default();
        let unknown = Region {
            unknown: true,
            ..region(2, 0, 50)
        };
        let cold = AccessPattern {
            nr_accesses: Bounds {
                min: Rate::Samples(0),
                max: Rate::Samples(0),
            },
            ..AccessPattern::default()
        };
        assert!(!cold.matches(&unknown, &attrs));
        assert!(AccessPattern::default().matches(&unknown, &attrs));
    }

    #[test]
    fn rates_and_ages_round_down() {
        let attrs = Attrs::default();
        assert_eq!(Rate::Permille(Permille(50)).samples(&attrs), 1);
        assert_eq!(Rate::Permille(Permille(49)).samples(&attrs), 0);
        assert_eq!(Age::Time(Nanos::millis(250)).aggrs(&attrs), 2);
        assert_eq!(Age::Time(Nanos::MAX).aggrs(&attrs), u32::MAX);
    }
}

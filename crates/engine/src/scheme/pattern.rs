//! Which memory a scheme is for: size, access rate and age of its region, each within bounds.

use crate::attrs::Attrs;
use crate::region::Region;
use thermo_units::{Bytes, Nanos, Permille};

/// A least and a most value, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds<T> {
    /// The least.
    pub min: T,
    /// The most.
    pub max: T,
}

impl<T: PartialOrd> Bounds<T> {
    /// True when `value` lies within.
    pub fn contains(&self, value: &T) -> bool {
        self.min <= *value && *value <= self.max
    }
}

/// How often memory is accessed, as the user said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// A share of all looks; 1000 is every look.
    Permille(Permille),
    /// Looks per aggregation (the unit of DAMON's files).
    Samples(u32),
}

impl Rate {
    /// In looks per aggregation. Shares are rounded down, as damo does.
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

/// For how long memory has been accessed as it is, as the user said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// A span of time.
    Time(Nanos),
    /// Aggregations (the unit of DAMON's files).
    Aggrs(u32),
}

impl Age {
    /// In aggregations, rounded down as damo does.
    #[must_use]
    pub fn aggrs(self, attrs: &Attrs) -> u32 {
        match self {
            Self::Aggrs(aggrs) => aggrs,
            Self::Time(Nanos::MAX) => u32::MAX,
            Self::Time(span) => attrs.aggrs_in(span),
        }
    }
}

/// The access pattern of a scheme. The default is everything.
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
    /// Whether `region`, monitored with `attrs`, is of this pattern. Memory that could not be judged has no
    /// access rate, so it matches only a pattern that takes every rate.
    #[must_use]
    pub fn matches(&self, region: &Region, attrs: &Attrs) -> bool {
        let (least, most) = (
            self.nr_accesses.min.samples(attrs),
            self.nr_accesses.max.samples(attrs),
        );
        let any_rate = least == 0 && most >= attrs.max_nr_accesses();
        let rate = region.moving_nr_accesses();
        (if region.unknown {
            any_rate
        } else {
            least <= rate && rate <= most
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
    fn bounds_are_inclusive() {
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
        for (fits, region) in [
            (true, region(2, 2, 3)),
            (true, region(4, 10, 10)),
            (false, region(1, 2, 3)),
            (false, region(5, 2, 3)),
            (false, region(2, 1, 3)),
            (false, region(2, 11, 3)),
            (false, region(2, 2, 2)),
            (false, region(2, 2, 11)),
        ] {
            assert_eq!(pattern.matches(&region, &attrs), fits, "{region:?}");
        }
    }

    #[test]
    fn unknown_memory_is_never_cold() {
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
    fn shares_become_looks_rounded_down() {
        let attrs = Attrs::default();
        assert_eq!(Rate::Permille(Permille(50)).samples(&attrs), 1);
        assert_eq!(Rate::Permille(Permille(49)).samples(&attrs), 0);
        assert_eq!(Age::Time(Nanos::millis(250)).aggrs(&attrs), 2);
        assert_eq!(Age::Time(Nanos::MAX).aggrs(&attrs), u32::MAX);
    }
}

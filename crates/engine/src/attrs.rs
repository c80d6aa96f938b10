//! Monitoring attributes: how often to look, how often to sum up, with how many regions.

use thermo_units::Nanos;

/// How a context monitors (`monitoring_attrs` of DAMON's control files).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attrs {
    /// Time between two looks at a region.
    pub sample: Nanos,
    /// Time over which looks are counted; regions are merged, aged and split at its end.
    pub aggr: Nanos,
    /// Time between two updates of the list of targets and of their address ranges.
    pub update: Nanos,
    /// Fewest regions over all targets.
    pub min_nr_regions: usize,
    /// Most regions over all targets.
    pub max_nr_regions: usize,
}

impl Default for Attrs {
    /// damo's defaults: 5 ms, 100 ms, 1 s, 10 to 1000 regions.
    fn default() -> Self {
        Self {
            sample: Nanos::millis(5),
            aggr: Nanos::millis(100),
            update: Nanos::secs(1),
            min_nr_regions: 10,
            max_nr_regions: 1000,
        }
    }
}

/// Attributes that contradict themselves. The rules are the kernel's (`damon_set_attrs()`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttrsError {
    /// Looking would never happen.
    #[error("the sampling interval is 0: give it a length, like 5ms")]
    ZeroSample,
    /// An aggregation without a look in it.
    #[error(
        "the sampling interval ({sample}) is longer than the aggregation interval ({aggr}): \
         make --aggr at least as long as --sample"
    )]
    SampleOverAggr {
        /// The sampling interval.
        sample: Nanos,
        /// The aggregation interval.
        aggr: Nanos,
    },
    /// The three-regions rule needs three.
    #[error("at least {given} regions is too few: --min-regions must be 3 or more")]
    TooFewRegions {
        /// What was asked for.
        given: usize,
    },
    /// The bounds are the wrong way round.
    #[error(
        "the least number of regions ({min}) is above the most ({max}): raise --max-regions or lower --min-regions"
    )]
    MinOverMax {
        /// The lower bound.
        min: usize,
        /// The upper bound.
        max: usize,
    },
}

impl Attrs {
    /// Whether these can be monitored with.
    ///
    /// # Errors
    /// The first contradiction found.
    pub const fn check(&self) -> Result<(), AttrsError> {
        if self.sample.0 == 0 {
            return Err(AttrsError::ZeroSample);
        }
        if self.sample.0 > self.aggr.0 {
            return Err(AttrsError::SampleOverAggr {
                sample: self.sample,
                aggr: self.aggr,
            });
        }
        if self.min_nr_regions < 3 {
            return Err(AttrsError::TooFewRegions {
                given: self.min_nr_regions,
            });
        }
        if self.min_nr_regions > self.max_nr_regions {
            return Err(AttrsError::MinOverMax {
                min: self.min_nr_regions,
                max: self.max_nr_regions,
            });
        }
        Ok(())
    }

    /// Looks in one aggregation: the most `nr_accesses` can be. At least 1.
    #[must_use]
    pub fn max_nr_accesses(&self) -> u32 {
        u32::try_from(self.samples_in(self.aggr)).unwrap_or(u32::MAX)
    }

    /// How many sampling intervals `span` holds; at least 1. All schedules are counted in these.
    #[must_use]
    pub fn samples_in(&self, span: Nanos) -> u64 {
        (span.0 / self.sample.0.max(1)).max(1)
    }

    /// How many aggregation intervals `span` holds, the unit of ages; rounded down.
    #[must_use]
    pub fn aggrs_in(&self, span: Nanos) -> u32 {
        u32::try_from(span.0 / self.aggr.0.max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_sound() {
        assert_eq!(Attrs::default().check(), Ok(()));
        assert_eq!(Attrs::default().max_nr_accesses(), 20);
    }

    #[test]
    fn each_contradiction_is_named() {
        let attrs = Attrs::default();
        let refused = [
            (
                Attrs {
                    sample: Nanos::ZERO,
                    ..attrs
                },
                "the sampling interval is 0",
            ),
            (
                Attrs {
                    aggr: Nanos::millis(1),
                    ..attrs
                },
                "is longer than the aggregation interval (1.00 ms)",
            ),
            (
                Attrs {
                    min_nr_regions: 2,
                    ..attrs
                },
                "at least 2 regions is too few",
            ),
            (
                Attrs {
                    max_nr_regions: 9,
                    ..attrs
                },
                "the least number of regions (10) is above the most (9)",
            ),
        ];
        for (attrs, says) in refused {
            let error = attrs.check().expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

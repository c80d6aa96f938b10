//! Monitoring attributes: intervals and bounds on the number of regions.

use thermo_units::Nanos;

/// Monitoring attributes of a context (`monitoring_attrs` in DAMON's control files).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attrs {
    /// Sampling interval: time between two access checks of a region.
    pub sample: Nanos,
    /// Aggregation interval: time over which accesses are counted. Regions are merged, aged and split at its
    /// end.
    pub aggr: Nanos,
    /// Update interval: time between two updates of the targets and their address ranges.
    pub update: Nanos,
    /// Minimum number of regions over all targets.
    pub min_nr_regions: usize,
    /// Maximum number of regions over all targets.
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

/// Contradictory attributes. The rules are the kernel's (`damon_set_attrs()`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttrsError {
    /// The sampling interval is 0.
    #[error("the sampling interval is 0: give it a length, like 5ms")]
    ZeroSample,
    /// An aggregation would have no access check.
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
    /// The minimum number of regions is below 3. DAMON covers an address space with three ranges.
    #[error("the minimum number of regions is {given}: --min-regions must be 3 or more")]
    TooFewRegions {
        /// The given minimum.
        given: usize,
    },
    /// The minimum number of regions is above the maximum.
    #[error(
        "the minimum number of regions ({min}) is above the maximum ({max}): raise --max-regions or lower \
         --min-regions"
    )]
    MinOverMax {
        /// The minimum.
        min: usize,
        /// The maximum.
        max: usize,
    },
}

impl Attrs {
    /// Checks the attributes for contradictions.
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

    /// Access checks in one aggregation, which is the maximum of `nr_accesses`. At least 1.
    #[must_use]
    pub fn max_nr_accesses(&self) -> u32 {
        u32::try_from(self.samples_in(self.aggr)).unwrap_or(u32::MAX)
    }

    /// Number of sampling intervals in `span`, at least 1. All schedules are counted in sampling intervals.
    #[must_use]
    pub fn samples_in(&self, span: Nanos) -> u64 {
        (span.0 / self.sample.0.max(1)).max(1)
    }

    /// Number of aggregation intervals in `span`, rounded down. Ages have this unit.
    #[must_use]
    pub fn aggrs_in(&self, span: Nanos) -> u32 {
        u32::try_from(span.0 / self.aggr.0.max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_attrs_are_valid() {
        assert_eq!(Attrs::default().check(), Ok(()));
        assert_eq!(Attrs::default().max_nr_accesses(), 20);
    }

    #[test]
    fn attrs_check_names_each_contradiction() {
        let attrs = Attrs::default();
        let invalid = [
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
                "the minimum number of regions is 2: --min-regions must be 3 or more",
            ),
            (
                Attrs {
                    max_nr_regions: 9,
                    ..attrs
                },
                "the minimum number of regions (10) is above the maximum (9)",
            ),
        ];
        for (attrs, expected) in invalid {
            let error = attrs.check().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

//! Memory tiering: hot memory on a fast node, cold memory on a slow one.
//!
//! Two schemes with opposite goals, as in the kernel's self-tuned tiering (SeongJae Park, Linux 6.16): one
//! promotes while less of the fast node is used than wanted, the hottest memory first; the other demotes
//! while less of the node is free than wanted, the coldest first. The goals overlap by [`OVERLAP_BP`], so
//! that with a full node both work, and accessed memory of the slow node takes the place of idle memory of
//! the fast one. Memory that is accessed is never demoted.

use thermo_engine::Action;
use thermo_engine::scheme::{
    AccessPattern, Age, Bounds, Destination, Goal, GoalTuner, Quota, Rate, Scheme, SystemMetric, Weights,
};
use thermo_units::{Bytes, Nanos, Permille};

/// The share of the fast node by which the two goals overlap, in ten-thousandths.
pub const OVERLAP_BP: u64 = 50;

/// Windows of the bandwidth in a second. A goal is checked once a window, so that it is exceeded by what one
/// window moves at most.
const WINDOWS_PER_SEC: u64 = 10;

/// Share of access checks that found memory to promote accessed: with scans, two of the last seven passes. A
/// single access, like that of a backup, does not pay for a move.
const MIN_RATE: Permille = Permille(200);

/// The parameters of tiering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// The node for hot memory.
    pub fast: u32,
    /// The node for cold memory.
    pub slow: u32,
    /// Share of the fast node that shall be used.
    pub fast_used: Permille,
    /// Idle time from which memory may be demoted.
    pub demote_age: Nanos,
    /// The most bytes that move in a second, in each direction.
    pub bandwidth: Bytes,
}

impl Default for Tier {
    fn default() -> Self {
        Self {
            fast: 0,
            slow: 1,
            fast_used: Permille(950),
            demote_age: Nanos::secs(10),
            bandwidth: Bytes::mib(200),
        }
    }
}

/// Why parameters of tiering are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    /// Both tiers are the same node.
    #[error("node {nid} is both the fast and the slow node: give two nodes, like --fast 0 --slow 1")]
    SameNode {
        /// The node.
        nid: u32,
    },
    /// Nothing, or more than there is, shall be used.
    #[error("fast_used is {given}: give the share of the fast node to fill, from 1 % to 99 %")]
    FastUsed {
        /// The given share.
        given: Permille,
    },
    /// A bandwidth that moves nothing.
    #[error(
        "the bandwidth is {given}/s: give at least 20 MiB/s, of which each tenth of a second moves a huge page"
    )]
    Bandwidth {
        /// The given bandwidth.
        given: Bytes,
    },
}

impl Tier {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first invalid parameter.
    pub fn check(&self) -> Result<(), TierError> {
        if self.fast == self.slow {
            return Err(TierError::SameNode { nid: self.fast });
        }
        if !(10..=990).contains(&self.fast_used.0) {
            return Err(TierError::FastUsed {
                given: self.fast_used,
            });
        }
        if self.bandwidth < Bytes::mib(2 * WINDOWS_PER_SEC) {
            return Err(TierError::Bandwidth {
                given: self.bandwidth,
            });
        }
        Ok(())
    }

    /// The schemes: the first promotes, the second demotes.
    #[must_use]
    pub fn schemes(&self) -> [Scheme; 2] {
        let used = u64::from(self.fast_used.0) * 10;
        let promote = Scheme {
            destinations: vec![Destination::only(self.fast)],
            pattern: AccessPattern {
                nr_accesses: Bounds {
                    min: Rate::Permille(MIN_RATE),
                    max: Rate::Permille(Permille(1000)),
                },
                ..AccessPattern::default()
            },
            quota: self.quota(SystemMetric::NodeMemUsedBp { nid: self.fast }, used),
            ..Scheme::new(Action::MigrateHot)
        };
        let free = 10_000_u64.saturating_sub(used) + OVERLAP_BP;
        let none = Rate::Permille(Permille(0));
        let demote = Scheme {
            destinations: vec![Destination::only(self.slow)],
            pattern: AccessPattern {
                nr_accesses: Bounds { min: none, max: none },
                age: Bounds {
                    min: Age::Time(self.demote_age),
                    max: Age::Time(Nanos::MAX),
                },
                ..AccessPattern::default()
            },
            quota: self.quota(SystemMetric::NodeMemFreeBp { nid: self.fast }, free),
            ..Scheme::new(Action::MigrateCold)
        };
        [promote, demote]
    }

    fn quota(&self, metric: SystemMetric, target: u64) -> Quota {
        Quota {
            sz: Bytes(self.bandwidth.0 / WINDOWS_PER_SEC),
            reset_interval: Nanos(1_000_000_000 / WINDOWS_PER_SEC),
            weights: Weights {
                sz: 0,
                nr_accesses: 1,
                age: 1,
            },
            goals: vec![Goal::Metric { metric, target }],
            tuner: GoalTuner::Temporal,
            ..Quota::default()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_engine::{Attrs, scheme};

    #[test]
    fn goals_of_the_two_schemes_overlap() {
        let schemes = Tier::default().schemes();
        assert_eq!(scheme::check(&schemes, &Attrs::default()), Ok(()));
        let targets: Vec<u64> = schemes
            .iter()
            .map(|scheme| scheme.quota.goals[0].target())
            .collect();
        // Promotes below 95 % used; demotes above 94.5 % used.
        assert_eq!(targets, [9_500, 550]);
        assert_eq!(schemes[0].quota.sz, Bytes::mib(20));
        assert_eq!(schemes.map(|scheme| scheme.destinations[0].nid), [0, 1]);
    }

    #[test]
    fn wrong_parameters_are_refused() {
        let error = |tier: Tier| tier.check().map_err(|error| error.to_string());
        let tier = Tier::default();
        assert_eq!(error(tier), Ok(()));
        for (tier, expected) in [
            (Tier { slow: 0, ..tier }, "node 0 is both"),
            (
                Tier {
                    fast_used: Permille(1000),
                    ..tier
                },
                "from 1 % to 99 %",
            ),
            (
                Tier {
                    fast_used: Permille(0),
                    ..tier
                },
                "from 1 % to 99 %",
            ),
            (
                Tier {
                    bandwidth: Bytes::mib(1),
                    ..tier
                },
                "at least 20 MiB/s",
            ),
        ] {
            let message = error(tier).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}

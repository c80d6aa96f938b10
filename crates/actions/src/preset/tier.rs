//! Memory tiering: hot memory on a fast node, cold memory on a slow one.
//!
//! Schemes with opposite goals, as in the kernel's self-tuned tiering (SeongJae Park, Linux 6.16). Each works
//! up to, or down to, its own share of the fast node, relative to the share that shall be used:
//!
//! | scheme | memory | works while used is |
//! | --- | --- | --- |
//! | promote hot | in at least [`HOT_RATE`] of the checks | below the share |
//! | demote warm | in [`MIN_RATE`] to [`WARM_RATE`] of the checks | above the share less 0.5 % |
//! | promote | in at least [`MIN_RATE`] of the checks | below the share less 1 % |
//! | demote idle | not accessed for some time | above the share less 1.5 % |
//!
//! Two neighbours in this table overlap by [`OVERLAP_BP`], so that both work when the node is full up to
//! there: accessed memory takes the place of idle memory, and hot memory that of warm memory. Without hot
//! memory on the slow node, nothing brings the node above the third share, so warm memory stays. The rates of
//! hot and warm memory differ three times, and the exchange takes a tenth of the bandwidth: single pages that
//! are accessed at random look hot or warm by chance.

use thermo_engine::Action;
use thermo_engine::scheme::{
    AccessPattern, Age, Bounds, Destination, Goal, GoalTuner, Quota, Rate, Scheme, SystemMetric, Weights,
};
use thermo_units::{Bytes, Nanos, Permille};

/// The share of the fast node by which two opposite goals overlap, in ten-thousandths.
pub const OVERLAP_BP: u64 = 50;

/// Windows of the bandwidth in a second. A goal is checked once a window, so that it is exceeded by what one
/// window moves at most.
const WINDOWS_PER_SEC: u64 = 10;

/// Share of access checks that found memory to promote accessed: with scans, two of the last seven passes. A
/// single access, like that of a backup, does not pay for a move.
const MIN_RATE: Permille = Permille(200);

/// Hot: with scans, at least six of the last seven passes.
const HOT_RATE: Permille = Permille(850);

/// Warm, up to here: with scans, two of the last seven passes.
const WARM_RATE: Permille = Permille(350);

/// The share of the fast node that only the exchange of warm for hot memory uses, in ten-thousandths.
const EXCHANGE_BP: u64 = 100;

/// The part of the bandwidth for this exchange: one of so many.
const EXCHANGE_PART: u64 = 10;

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

    /// The schemes: promote, demote idle memory, promote hot memory, demote warm memory.
    #[must_use]
    pub fn schemes(&self) -> [Scheme; 4] {
        let used = u64::from(self.fast_used.0) * 10;
        // A target of 0 would be no goal.
        let below = used.saturating_sub(EXCHANGE_BP).max(1);
        let (none, all) = (Permille(0), Permille(1000));
        let any_age = AccessPattern::default().age;
        let idle = Bounds {
            min: Age::Time(self.demote_age),
            max: Age::Time(Nanos::MAX),
        };
        // The two schemes of a direction share the bandwidth.
        let window = self.bandwidth.0 / WINDOWS_PER_SEC;
        let exchange = Bytes(window / EXCHANGE_PART);
        let rest = Bytes(window - exchange.0);
        [
            self.promote((MIN_RATE, all), below, rest),
            self.demote((none, none), idle, below.saturating_sub(OVERLAP_BP), rest),
            self.promote((HOT_RATE, all), used, exchange),
            self.demote(
                (MIN_RATE, WARM_RATE),
                any_age,
                used.saturating_sub(OVERLAP_BP),
                exchange,
            ),
        ]
    }

    /// Memory with this share of accessed checks moves to the fast node until `used` of it is used, at
    /// most `sz` a window.
    fn promote(&self, rates: (Permille, Permille), used: u64, sz: Bytes) -> Scheme {
        Scheme {
            destinations: vec![Destination::only(self.fast)],
            pattern: pattern(rates, AccessPattern::default().age),
            quota: quota(SystemMetric::NodeMemUsedBp { nid: self.fast }, used, sz),
            ..Scheme::new(Action::MigrateHot)
        }
    }

    /// Memory with this share of accessed checks moves to the slow node while more than `used` of the fast
    /// one is used, at most `sz` a window.
    fn demote(&self, rates: (Permille, Permille), age: Bounds<Age>, used: u64, sz: Bytes) -> Scheme {
        let free = 10_000_u64.saturating_sub(used);
        Scheme {
            destinations: vec![Destination::only(self.slow)],
            pattern: pattern(rates, age),
            quota: quota(SystemMetric::NodeMemFreeBp { nid: self.fast }, free, sz),
            ..Scheme::new(Action::MigrateCold)
        }
    }
}

fn quota(metric: SystemMetric, target: u64, sz: Bytes) -> Quota {
    Quota {
        sz,
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

fn pattern((min, max): (Permille, Permille), age: Bounds<Age>) -> AccessPattern {
    AccessPattern {
        nr_accesses: Bounds {
            min: Rate::Permille(min),
            max: Rate::Permille(max),
        },
        age,
        ..AccessPattern::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_engine::{Attrs, scheme};

    #[test]
    fn goals_of_opposite_schemes_overlap() {
        let schemes = Tier::default().schemes();
        assert_eq!(scheme::check(&schemes, &Attrs::default()), Ok(()));
        let targets = schemes.each_ref().map(|scheme| scheme.quota.goals[0].target());
        // Promotes below 94 % used, demotes idle memory above 93.5 %; promotes hot memory below 95 %, demotes
        // warm memory above 94.5 %.
        assert_eq!(targets, [9_400, 650, 9_500, 550]);
        let sizes = schemes.each_ref().map(|scheme| scheme.quota.sz);
        assert_eq!(sizes, [18, 18, 2, 2].map(Bytes::mib), "200 MiB a second each way");
        assert_eq!(schemes.map(|scheme| scheme.destinations[0].nid), [0, 1, 0, 1]);
        // The smallest share that is accepted.
        let least = Tier {
            fast_used: Permille(10),
            ..Tier::default()
        };
        let targets = least.schemes().map(|scheme| scheme.quota.goals[0].target());
        assert_eq!(targets, [1, 10_000, 100, 9_950]);
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

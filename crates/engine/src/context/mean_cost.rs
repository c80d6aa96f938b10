//! What something costs of late.

use thermo_units::Nanos;

/// Costs are the mean of about so long, and of four of them at least.
const OVER: Nanos = Nanos::secs(4);

/// What aggregations cost. Single ones vary, and where heat moves those cost more that come just after it did. A
/// plan should not follow each, so it goes by the mean of some seconds.
#[derive(Debug, Clone, Copy)]
pub(in crate::context) struct MeanCost(Option<Nanos>);

impl MeanCost {
    /// Before one was measured.
    pub(in crate::context) const NONE: Self = Self(None);

    /// Takes in what one of `interval` has cost; returns the mean.
    pub(in crate::context) fn take_in(&mut self, cost: Nanos, interval: Nanos) -> Nanos {
        let weight = u128::from(interval.0.min(OVER.0 / 4));
        let (new, all) = (u128::from(cost.0), u128::from(OVER.0));
        let mean = |old: Nanos| (u128::from(old.0) * (all - weight) + new * weight) / all;
        let cost = self
            .0
            .map_or(cost, |old| Nanos(u64::try_from(mean(old)).unwrap_or(u64::MAX)));
        self.0 = Some(cost);
        cost
    }
}

//! Conversion of access counts and ages when the monitoring attributes change.

use super::target::Target;
use crate::attrs::Attrs;
use thermo_units::Nanos;

/// Converts counts and ages of all regions from the units of `old` to those of `new`
/// (`damon_update_monitoring_results()`): the share of access checks and the duration stay the same. A new
/// aggregation begins.
pub(crate) fn rescale(targets: &mut [Target], old: &Attrs, new: &Attrs) {
    let (old_max, new_max) = (u64::from(old.max_nr_accesses()), u64::from(new.max_nr_accesses()));
    let count =
        |nr: u32| u32::try_from(u64::from(nr) * 10_000 / old_max * new_max / 10_000).unwrap_or(u32::MAX);
    for region in targets.iter_mut().flat_map(|t| &mut t.regions) {
        let duration: Nanos = old.aggr * u64::from(region.age);
        region.age = new.aggrs_in(duration);
        region.last_nr_accesses = count(region.last_nr_accesses);
        region.nr_accesses = 0;
        region.nr_unknown = 0;
        region.nr_accesses_bp = u64::from(region.last_nr_accesses) * 10_000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;
    use thermo_units::AddrRange;

    #[test]
    fn rescale_keeps_access_share_and_duration() {
        let old = Attrs::default();
        let new = Attrs {
            sample: Nanos::millis(10),
            aggr: Nanos::millis(1000),
            ..old
        };
        let region = Region {
            last_nr_accesses: 10,
            nr_accesses: 4,
            age: 35,
            ..Region::new(AddrRange::new(0, 4096))
        };
        let mut targets = [Target::with_regions(vec![region])];
        rescale(&mut targets, &old, &new);
        let region = &targets[0].regions[0];
        // 10 of 20 checks are 50 of 100; 35 times 100 ms are 3 times 1 s, rounded down.
        assert_eq!(
            (region.last_nr_accesses, region.nr_accesses, region.age),
            (50, 0, 3)
        );
        assert_eq!(region.nr_accesses_bp, 500_000);
    }
}

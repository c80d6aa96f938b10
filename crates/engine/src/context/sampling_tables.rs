//! Tables of idle ages and re-accesses, derived from sampled regions. Their `method` marks them as estimates.

use super::state::Context;
use crate::access_tables::{AccessTables, NR_AGES, PageKind, UnknownReason, age_bucket};
use crate::budget::Method;
use crate::region::Region;
use thermo_units::{Bytes, Nanos};

impl Context {
    /// Bytes of re-accessed regions by idle age, for each target in order. Call before the aggregation
    /// updates ages.
    pub(super) fn reaccessed(&self) -> Vec<[Bytes; NR_AGES]> {
        let of_target = |regions: &[Region]| {
            let mut reaccessed = [Bytes::ZERO; NR_AGES];
            let is_reaccessed = |region: &&Region| region.nr_accesses > 0 && region.last_nr_accesses == 0;
            for region in regions.iter().filter(is_reaccessed) {
                reaccessed[age_bucket(self.attrs.aggr * u64::from(region.age))] += region.len();
            }
            reaccessed
        };
        self.targets
            .iter()
            .map(|target| of_target(&target.regions))
            .collect()
    }

    /// Derives the tables of each target from its regions. Resident memory is assumed to be spread evenly
    /// over the regions.
    pub(super) fn derive_tables(&mut self, reaccessed: &[[Bytes; NR_AGES]], now: Nanos) {
        let aggr = self.attrs.aggr;
        let as_of = self.aggr_start.unwrap_or(now);
        for (target, reaccessed) in self.targets.iter_mut().zip(reaccessed) {
            let mut tables = AccessTables {
                pass: aggr,
                nr_passes: 1,
                as_of,
                ..AccessTables::new(Method::Sampling)
            };
            for region in &target.regions {
                let kind = PageKind::new(target.states.backing_at(region.range.start), false);
                let age = match region.nr_accesses {
                    0 => aggr * u64::from(region.age),
                    _ => Nanos::ZERO,
                };
                match region.unknown {
                    true => tables.unknown[UnknownReason::Uncleared.index()] += region.len(),
                    false => tables.idle[kind.index()][age_bucket(age)] += region.len(),
                }
            }
            let covered = tables.resident();
            if let Some(resident) = target.resident {
                tables.fit_to(resident);
            }
            tables.name_hugetlb(target.hugetlb);
            let scale = (tables.resident().0 as f64 / covered.0.max(1) as f64).min(1.0);
            tables.reaccessed = reaccessed.map(|bytes| Bytes((bytes.0 as f64 * scale) as u64));
            target.tables = Some(tables);
        }
    }
}

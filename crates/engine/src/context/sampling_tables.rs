//! Tables of idle ages and re-accesses from sampled regions: as uncertain as these, and they say so.

use super::state::Context;
use crate::access_tables::{AccessTables, NR_AGES, PageKind, UnknownReason, age_bucket};
use crate::budget::Method;
use crate::region::Region;
use thermo_units::{Bytes, Nanos};

impl Context {
    /// Bytes of regions that were found accessed again, by how long they had been idle; for each target in turn. Before
    /// ages are counted anew.
    pub(super) fn reaccessed(&self) -> Vec<[Bytes; NR_AGES]> {
        let of_target = |regions: &[Region]| {
            let mut reaccessed = [Bytes::ZERO; NR_AGES];
            let again = |region: &&Region| region.nr_accesses > 0 && region.last_nr_accesses == 0;
            for region in regions.iter().filter(again) {
                reaccessed[age_bucket(self.attrs.aggr * u64::from(region.age))] += region.len();
            }
            reaccessed
        };
        self.targets
            .iter()
            .map(|target| of_target(&target.regions))
            .collect()
    }

    /// Derives the tables of each target from its regions. What is resident is a part of what they cover, and taken to be
    /// spread evenly.
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
            let part = tables.resident().0 as f64 / covered.0.max(1) as f64;
            tables.reaccessed = reaccessed.map(|bytes| Bytes((bytes.0 as f64 * part.min(1.0)) as u64));
            target.tables = Some(tables);
        }
    }
}

//! The machine of a replay: the engine's [`Operations`], which only note what leaves.

use std::collections::BTreeMap;

use thermo_engine::access_tables::Backing;
use thermo_engine::ops::{Applied, Outcome, Probe, Request};
use thermo_engine::scheme::SystemMetric;
use thermo_engine::{Action, Operations, OpsError, Region, TargetId, TargetLayout};
use thermo_units::{Bytes, Nanos};

use crate::idle_memory::IdleMemory;
use crate::region_memory::RegionMemory;
use crate::target::{ByBacking, PageFilters, TargetMemory, TargetView, scanned_tables};

/// How a target is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// By idle age of pages, from the access tables.
    Ages,
    /// By recorded regions.
    Regions,
}

/// The machine in the replay of one scheme file.
#[derive(Debug)]
pub struct ReplayedMachine {
    targets: BTreeMap<TargetId, (Detail, Box<dyn TargetMemory>)>,
    /// True if a scheme tests addresses or sizes of regions, which ages do not have.
    needs_regions: bool,
    pageout_cost_per_mib: Nanos,
    /// Free memory of the machine in thousandths, as last recorded.
    pub free: Option<u64>,
}

impl ReplayedMachine {
    pub fn new(needs_regions: bool, pageout_cost_per_mib: Nanos) -> Self {
        Self {
            targets: BTreeMap::new(),
            needs_regions,
            pageout_cost_per_mib,
            free: None,
        }
    }

    /// Follows the recording to the next snapshot. Returns the bytes that had left and were accessed. Memory
    /// of a target that ended is gone.
    pub fn follow(&mut self, views: &[TargetView<'_>]) -> u64 {
        self.targets
            .retain(|id, _| views.iter().any(|view| view.target.id == id.0));
        let mut refaults = 0;
        for view in views {
            let detail = match scanned_tables(view.target) {
                Some(_) if !self.needs_regions => Detail::Ages,
                _ => Detail::Regions,
            };
            let entry = self.targets.entry(TargetId(view.target.id));
            let memory = entry.or_insert_with(|| (detail, memory(detail)));
            if memory.0 != detail {
                // The monitoring method changed: what left before is not known by the other detail.
                *memory = (detail, self::memory(detail));
            }
            refaults += memory.1.update(view);
        }
        refaults
    }

    /// The resident memory of each target of `views`.
    pub fn regions(&mut self, views: &[TargetView<'_>]) -> Vec<(TargetId, Vec<Region>)> {
        let mut regions = Vec::new();
        for view in views {
            let id = TargetId(view.target.id);
            if let Some((_, memory)) = self.targets.get_mut(&id) {
                regions.push((id, memory.regions(view)));
            }
        }
        regions
    }

    /// Bytes that have left.
    pub fn out(&self) -> ByBacking {
        let mut sum = [0; 3];
        for (_, memory) in self.targets.values() {
            sum.iter_mut()
                .zip(memory.out())
                .for_each(|(sum, bytes)| *sum += bytes);
        }
        sum
    }

    /// The coarsest detail of the current targets.
    pub fn detail(&self) -> Option<Detail> {
        self.targets.values().map(|(detail, _)| *detail).max()
    }

    fn page_out(&mut self, request: &Request<'_>) -> Outcome {
        let filters = PageFilters(request.filters);
        let mut outcome = Outcome::default();
        for part in request.ranges {
            let memory = self.targets.get_mut(&part.target);
            let bytes = memory.map_or(Bytes::ZERO, |(_, memory)| memory.page_out(part.range, &filters));
            outcome.results.push(Applied {
                passed_filters: bytes,
                applied: bytes,
                changed: Some(bytes),
                ..Applied::default()
            });
        }
        let left: Bytes = outcome.results.iter().map(|applied| applied.applied).sum();
        outcome.spent = cost(left, self.pageout_cost_per_mib);
        outcome
    }
}

fn memory(detail: Detail) -> Box<dyn TargetMemory> {
    match detail {
        Detail::Ages => Box::<IdleMemory>::default(),
        Detail::Regions => Box::<RegionMemory>::default(),
    }
}

fn cost(bytes: Bytes, per_mib: Nanos) -> Nanos {
    let cost = u128::from(bytes.0) * u128::from(per_mib.0) / u128::from(Bytes::mib(1).0);
    Nanos(u64::try_from(cost).unwrap_or(u64::MAX))
}

/// True if the savings of `backing` depend on compression. Clean pages of files are dropped.
pub const fn is_compressed(backing: Backing) -> bool {
    !matches!(backing, Backing::File)
}

impl Operations for ReplayedMachine {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        Ok(Vec::new())
    }

    fn prepare_access_checks(&mut self, _probes: &[Probe]) {}

    fn check_accesses(&mut self, _probes: &mut [Probe]) {}

    fn any_target_left(&mut self) -> bool {
        !self.targets.is_empty()
    }

    /// Pages out; every other action only counts.
    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        let mut outcome = if request.action == Action::Pageout {
            self.page_out(request)
        } else {
            let counted = request.ranges.iter().map(|part| Applied {
                passed_filters: part.range.len(),
                applied: part.range.len(),
                ..Applied::default()
            });
            Outcome {
                results: counted.collect(),
                ..Outcome::default()
            }
        };
        let filters = PageFilters(request.filters);
        outcome.notes = filters
            .unanswered()
            .map(|name| format!("filter {name} is not in the recording; all memory passes it"))
            .collect();
        Ok(outcome)
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        match metric {
            // Failed, not unsupported: a scheme that cannot be judged counts as active.
            SystemMetric::FreeMemRate => self.free.ok_or_else(|| {
                OpsError::Failed(
                    "the recording has no totals of the machine, so the scheme counts as active (recordings of \
                     --system have them)"
                        .to_owned(),
                )
            }),
            _ => Err(OpsError::Unsupported {
                what: "this metric".to_owned(),
                why: "it is not in a recording".to_owned(),
            }),
        }
    }
}

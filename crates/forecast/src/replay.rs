//! Reads the records of a recording and replays every scheme file over them.

use std::collections::BTreeMap;

use thermo_engine::access_tables::WORKING_SET_WINDOW;
use thermo_engine::scheme::{self, Scheme, SchemeError};
use thermo_engine::{Action, Attrs};
use thermo_recording::model::{Mappings, Metadata, Record, SchemeApplied, Snapshot, Totals};
use thermo_report::tables::has_data;
use thermo_report::{Accumulator, Basis};
use thermo_units::{AddrRange, Bytes, Nanos, Permille};

use crate::Assumptions;
use crate::forecast::Forecast;
use crate::policy::Policy;
use crate::target::{Known, TargetView, backing_of};

/// A scheme file, by the name that the forecast prints.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemeFile {
    /// Path of the file.
    pub name: String,
    /// All its schemes.
    pub schemes: Vec<Scheme>,
}

/// Why there is no forecast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForecastError {
    /// The schemes contradict themselves.
    #[error("{file}: {error}")]
    Scheme {
        /// The scheme file.
        file: String,
        /// The contradiction.
        error: SchemeError,
    },
}

/// Replays scheme files over a recording.
#[derive(Debug)]
pub struct Replay {
    pub(crate) policies: Vec<Policy>,
    pub(crate) assumptions: Assumptions,
    pub(crate) facts: Facts,
    known: BTreeMap<u32, Known>,
    free: Option<u64>,
}

/// What the recording says apart from the schemes.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) basis: Basis,
    /// The aggregation interval.
    pub(crate) aggr: Nanos,
    /// Resident bytes.
    pub(crate) resident: Mean,
    /// Bytes accessed within a minute, from the first minute on.
    working_set: Mean,
    /// Bytes of unknown age.
    pub(crate) unknown: Mean,
    /// Bytes that schemes paged out while the recording was made, by index of the scheme.
    paged_out: BTreeMap<u32, u64>,
    /// Most bytes of the targets in swap.
    pub(crate) swap: u64,
}

/// A mean over snapshots.
#[derive(Debug, Default)]
pub(crate) struct Mean {
    sum: u128,
    count: u64,
}

impl Mean {
    fn add(&mut self, bytes: Bytes) {
        self.sum += u128::from(bytes.0);
        self.count += 1;
    }

    /// `None` if there was nothing to add.
    pub(crate) fn mean(&self) -> Option<u64> {
        let mean = self.sum.checked_div(u128::from(self.count))?;
        u64::try_from(mean).ok()
    }
}

impl Facts {
    /// Bytes that schemes paged out while the recording was made.
    pub(crate) fn paged_out(&self) -> u64 {
        self.paged_out.values().copied().fold(0, u64::saturating_add)
    }

    /// Mean working set; `None` if it is not known.
    pub(crate) fn working_set(&self) -> Option<u64> {
        self.working_set.mean()
    }

    fn add_sizes(&mut self, snapshot: &Snapshot) {
        let tables = snapshot
            .targets
            .iter()
            .filter_map(|target| target.tables.as_deref());
        let sum = tables
            .copied()
            .filter(|tables| tables.nr_passes > 0)
            .reduce(|mut sum, tables| {
                sum.add(&tables);
                sum
            });
        let Some(sum) = sum else { return };
        self.resident.add(sum.resident());
        self.unknown.add(sum.unknown());
        // Before, all memory would count as accessed within a minute.
        if self.basis.span() >= WORKING_SET_WINDOW {
            self.working_set.add(sum.working_set());
        }
    }

    fn warn_of_gaps(&mut self, views: &[TargetView<'_>]) {
        let is_unsized = |view: &TargetView<'_>| {
            view.target.tables.is_none() && view.known.mappings.is_none() && view.known.rss.is_none()
        };
        if views.iter().any(is_unsized) {
            self.basis.warn(
                "neither mappings nor resident size are known: memory that leaves may include gaps between mappings.",
            );
        }
    }

    fn add_scheme(&mut self, applied: &SchemeApplied) {
        if applied.action == Action::Pageout.name() {
            // Totals since the scheme began. A dry run applies nothing.
            self.paged_out.insert(applied.index, applied.sz_applied);
        }
    }
}

impl Replay {
    /// A replay of `files` over the recording described by `metadata`.
    ///
    /// # Errors
    /// The schemes of a file contradict themselves.
    pub fn new(
        metadata: &Metadata,
        files: Vec<SchemeFile>,
        assumptions: Assumptions,
    ) -> Result<Self, ForecastError> {
        let (settings, default) = (metadata.settings, Attrs::default());
        let attrs = Attrs {
            sample: settings.sample_ns.map_or(default.sample, |ns| Nanos(ns.max(1))),
            aggr: settings.aggr_ns.map_or(default.aggr, |ns| Nanos(ns.max(1))),
            ..default
        };
        let mut policies = Vec::new();
        for SchemeFile { name: file, schemes } in files {
            if let Err(error) = scheme::check(&schemes, &attrs) {
                return Err(ForecastError::Scheme { file, error });
            }
            policies.push(Policy::new(file, schemes, assumptions.pageout_cost_per_mib));
        }
        let facts = Facts {
            aggr: attrs.aggr,
            ..Facts::default()
        };
        Ok(Self {
            policies,
            assumptions,
            facts,
            known: BTreeMap::new(),
            free: None,
        })
    }

    fn add_snapshot(&mut self, snapshot: &Snapshot) {
        self.facts.aggr = Nanos(snapshot.aggr_ns.max(1));
        self.facts.add_sizes(snapshot);
        let nothing = Known::default();
        let live = snapshot.targets.iter().filter(|target| has_data(target));
        let view = |target| TargetView {
            snapshot,
            target,
            known: self.known.get(&target.id).unwrap_or(&nothing),
        };
        let views: Vec<TargetView<'_>> = live.map(view).collect();
        self.facts.warn_of_gaps(&views);
        for policy in &mut self.policies {
            policy.add(snapshot, &views, self.free);
        }
    }

    fn add_totals(&mut self, totals: &Totals) {
        // Totals of a control group have no free memory of the machine.
        let free = totals.rows.iter().find(|(name, _)| name == "free");
        let sum: u128 = totals.rows.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
        if let Some((_, free)) = free.filter(|_| totals.scope == "machine" && sum > 0) {
            self.free = u64::try_from(u128::from(*free) * 1000 / sum).ok();
        }
    }

    fn add_mappings(&mut self, mappings: &Mappings) {
        let mut known: Vec<_> = mappings
            .mappings
            .iter()
            .map(|mapping| (AddrRange::new(mapping.start, mapping.end), backing_of(mapping)))
            .collect();
        // Neighbours of one backing are one range: fewer to search.
        known.dedup_by(|next, last| {
            let continues = last.0.end == next.0.start && last.1 == next.1;
            if continues {
                last.0.end = next.0.end;
            }
            continues
        });
        self.known.entry(mappings.target).or_default().mappings = Some(known);
    }
}

impl Accumulator for Replay {
    type Report = Forecast;

    fn add(&mut self, record: &Record) {
        if let Some(snapshot) = self.facts.basis.add(record) {
            self.add_snapshot(snapshot);
        }
        match record {
            Record::Mappings(mappings) => self.add_mappings(mappings),
            Record::Footprint(footprint) => {
                let known = self.known.entry(footprint.target).or_default();
                (known.rss, known.swap) = (Some(footprint.rss), footprint.swap);
                let swap = self.known.values().map(|known| known.swap);
                self.facts.swap = self.facts.swap.max(swap.fold(0, u64::saturating_add));
            }
            Record::Scheme(applied) => self.facts.add_scheme(applied),
            Record::Totals(totals) => self.add_totals(totals),
            Record::Snapshot(_) | Record::Cost(_) | Record::Note(_) => {}
        }
    }

    fn finish(self) -> Forecast {
        Forecast::new(self)
    }
}

/// Shares of compressed memory: the lowest, the most likely and the highest.
pub(crate) fn compressed_shares(compressed: Option<Permille>) -> [f64; 3] {
    match compressed {
        Some(share) => [f64::from(share.0) / 1000.0; 3],
        // Not known. Memory of servers on zram takes a quarter to three quarters; random and already
        // compressed data takes all of its size.
        None => [0.25, 0.5, 0.75],
    }
}

//! Thins records: a snapshot every ten seconds instead of every second, and totals that stay true.
//!
//! What a snapshot has of a moment (resident bytes by idle age, regions) is dropped with it. What it has of
//! the time since the one before (re-accesses) is summed into the next one that is kept. Sizes, cost and
//! applications of schemes come with the snapshot: their last values, and sums of skipped bytes.

use std::collections::BTreeMap;

use thermo_engine::sink::TargetRegions;
use thermo_units::{Bytes, Nanos};

use super::few_regions;
use super::limits::WriteLimits;
use crate::model::{AccessTables, Cost, Footprint, Record, Region, SchemeApplied, Snapshot, Target, Totals};

/// What was dropped since the last snapshot that was kept.
#[derive(Debug, Default)]
pub(super) struct Thinning {
    limits: WriteLimits,
    /// Begin of the first dropped snapshot.
    start_ns: Option<u64>,
    /// The last dropped snapshot, without its targets.
    last: Snapshot,
    targets: BTreeMap<u32, Dropped>,
    /// Number of the time slot of the last snapshot, and of the last one with regions.
    slot: Option<u64>,
    regions_slot: Option<u64>,
    footprints: BTreeMap<u32, Footprint>,
    schemes: BTreeMap<u32, SchemeApplied>,
    cost: Option<Cost>,
    totals: BTreeMap<String, Totals>,
}

/// A target of dropped snapshots.
#[derive(Debug)]
struct Dropped {
    /// As last seen, without regions.
    target: Target,
    is_gone: bool,
}

impl Dropped {
    /// The target after its end: it has no memory any more, only what it accessed again. `None` without that.
    fn ended(self) -> Option<Target> {
        let tables = self.target.tables?;
        let has_any = tables.reaccessed.iter().any(|bytes| *bytes > Bytes::ZERO);
        has_any.then(|| Target {
            tables: Some(Box::new(only_reaccessed(&tables))),
            ..self.target
        })
    }
}

/// Takes a target without regions, and a function that makes its regions.
type PutTarget<'a> = dyn FnMut(Target, &dyn Fn() -> Vec<Region>) + 'a;

/// A snapshot as it comes: from an event, or as a record.
pub(super) trait Source {
    /// The times and the scale, without targets.
    fn head(&self) -> Snapshot;
    /// Calls `put` for each target.
    fn each_target(&self, put: &mut PutTarget<'_>);
}

impl Source for Snapshot {
    fn head(&self) -> Snapshot {
        Snapshot {
            targets: Vec::new(),
            ..*self
        }
    }

    fn each_target(&self, put: &mut PutTarget<'_>) {
        for target in &self.targets {
            let head = Target {
                regions: Vec::new(),
                tables: target.tables.clone(),
                ..*target
            };
            put(head, &|| target.regions.clone());
        }
    }
}

/// The aggregation of an event.
pub(super) struct Aggregation<'a> {
    pub(super) head: Snapshot,
    pub(super) targets: &'a [TargetRegions<'a>],
}

impl Source for Aggregation<'_> {
    fn head(&self) -> Snapshot {
        self.head.clone()
    }

    fn each_target(&self, put: &mut PutTarget<'_>) {
        for target in self.targets {
            let head = Target::from(&TargetRegions {
                regions: &[],
                ..target.clone()
            });
            put(head, &|| target.regions.iter().map(Region::from).collect());
        }
    }
}

impl Thinning {
    pub(super) fn new(limits: WriteLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Takes a snapshot. Returns what is to be written if one is due: slots of time are those of the wall
    /// clock (`offset_ns` after the snapshot's), so the snapshots of all policies fall into the same slots.
    pub(super) fn snapshot(&mut self, source: &impl Source, offset_ns: i64) -> Vec<Record> {
        let head = source.head();
        let unix = head.time_ns.saturating_add_signed(offset_ns);
        let slot_of = |length: Nanos| unix / length.0.max(1);
        let slot = slot_of(self.limits.every);
        // The first slot ends at the next border, as all do.
        if *self.slot.get_or_insert(slot) == slot {
            self.drop_snapshot(head, source);
            return Vec::new();
        }
        self.slot = Some(slot);
        let regions_slot = slot_of(self.limits.regions_every);
        let with_regions = self.regions_slot.replace(regions_slot) != Some(regions_slot);
        let mut kept = Snapshot {
            start_ns: self.start_ns.take().unwrap_or(head.start_ns).min(head.start_ns),
            ..head
        };
        source.each_target(&mut |mut target, regions| {
            self.add_sums(&mut target);
            if with_regions || target.tables.is_none() {
                target.regions = regions();
                few_regions::limit(&mut target.regions, self.limits.max_regions, kept.max_nr_accesses);
            }
            kept.targets.push(target);
        });
        let gone = std::mem::take(&mut self.targets).into_values();
        kept.targets.extend(gone.filter_map(Dropped::ended));
        self.with_latest(kept)
    }

    /// The rest, when no snapshot follows.
    pub(super) fn finish(&mut self) -> Vec<Record> {
        let Some(start_ns) = self.start_ns.take() else {
            return Vec::new();
        };
        let mut kept = Snapshot {
            start_ns,
            ..self.last.clone()
        };
        let dropped = std::mem::take(&mut self.targets).into_values();
        kept.targets
            .extend(dropped.filter_map(|dropped| match dropped.is_gone {
                true => dropped.ended(),
                false => Some(dropped.target),
            }));
        self.with_latest(kept)
    }

    /// The target has ended: what it accessed again is kept.
    pub(super) fn target_gone(&mut self, id: u32) {
        self.footprints.remove(&id);
        if let Some(dropped) = self.targets.get_mut(&id) {
            dropped.is_gone = true;
        }
    }

    /// Takes a record of which only the latest is kept. Returns false if it is another kind of record.
    pub(super) fn latest(&mut self, record: &Record) -> bool {
        match record {
            Record::Footprint(footprint) => drop(self.footprints.insert(footprint.target, *footprint)),
            Record::Cost(cost) => self.cost = Some(*cost),
            Record::Totals(totals) => drop(self.totals.insert(totals.scope.clone(), totals.clone())),
            Record::Scheme(applied) => self.scheme(applied),
            Record::Snapshot(_) | Record::Mappings(_) | Record::Note(_) => return false,
        }
        true
    }

    /// Whether snapshots were dropped since the last one that was kept.
    pub(super) const fn has_dropped(&self) -> bool {
        self.start_ns.is_some()
    }

    /// The next snapshot has regions: a new segment begins.
    pub(super) const fn restart_regions(&mut self) {
        self.regions_slot = None;
    }

    fn drop_snapshot(&mut self, head: Snapshot, source: &impl Source) {
        self.start_ns.get_or_insert(head.start_ns);
        self.last = head;
        source.each_target(&mut |mut target, _| {
            self.add_sums(&mut target);
            let is_gone = false;
            self.targets.insert(target.id, Dropped { target, is_gone });
        });
    }

    /// Adds the re-accesses of dropped snapshots to `target`.
    fn add_sums(&mut self, target: &mut Target) {
        let dropped = self.targets.remove(&target.id);
        let before = dropped.and_then(|dropped| dropped.target.tables);
        if let (Some(tables), Some(before)) = (target.tables.as_deref_mut(), before) {
            for (sum, bytes) in tables.reaccessed.iter_mut().zip(before.reaccessed) {
                sum.0 = sum.0.saturating_add(bytes.0);
            }
        }
    }

    fn scheme(&mut self, applied: &SchemeApplied) {
        let mut sum = applied.clone();
        if let Some(before) = self.schemes.remove(&applied.index) {
            for (reason, bytes) in before.skipped {
                match sum.skipped.iter_mut().find(|(name, _)| *name == reason) {
                    Some((_, sum)) => *sum = sum.saturating_add(bytes),
                    None => sum.skipped.push((reason, bytes)),
                }
            }
        }
        self.schemes.insert(applied.index, sum);
    }

    /// `kept`, and the latest of everything else before it.
    fn with_latest(&mut self, kept: Snapshot) -> Vec<Record> {
        let footprints = std::mem::take(&mut self.footprints).into_values();
        let mut records: Vec<Record> = footprints.map(Record::Footprint).collect();
        let schemes = std::mem::take(&mut self.schemes).into_values();
        records.extend(schemes.map(Record::Scheme));
        records.extend(self.cost.take().map(Record::Cost));
        records.extend(std::mem::take(&mut self.totals).into_values().map(Record::Totals));
        if !kept.targets.is_empty() {
            records.push(Record::Snapshot(kept));
        }
        records
    }
}

fn only_reaccessed(tables: &AccessTables) -> AccessTables {
    AccessTables {
        reaccessed: tables.reaccessed,
        pass: tables.pass,
        nr_passes: tables.nr_passes,
        as_of: tables.as_of,
        ..AccessTables::new(tables.method)
    }
}

//! The access tables of a snapshot: as recorded, or derived from regions if the recording has no tables.
//!
//! A derived table is an estimate. A region with accesses counts as accessed throughout; a region without
//! accesses counts as idle for its age, or as unknown if the recording has no age. Regions also span memory
//! that is not resident, so idle bytes are scaled down to the resident size minus the accessed bytes. All
//! totals of all reports come from this module.

use thermo_engine::access_tables::{AccessTables, NR_AGES, UnknownReason, age_bucket};
use thermo_engine::budget::Method;
use thermo_recording::model::{Snapshot, Target};
use thermo_units::{Bytes, Nanos};

use crate::Basis;
use crate::layout::Layout;

/// Maximum bytes that the regions of a target count: 52 bits of physical addresses. Damaged recordings can
/// have more, and sums of such sizes overflow.
const MAX_BYTES: u64 = 1 << 52;
/// Differences of less than one part in this many (2 %) are not named.
const NOTABLE: u64 = 50;

/// The access tables of all live targets in one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotTables {
    /// One entry for each live target.
    pub targets: Vec<TargetTables>,
    /// True if idle bytes may include gaps between mappings: neither mappings nor resident size are known.
    pub may_include_gaps: bool,
}

/// The access tables of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetTables {
    /// Target id.
    pub id: u32,
    /// Process id; `None` for physical memory, or if the recording does not say.
    pub pid: Option<u32>,
    /// True if the tables were derived from regions: kinds of pages and re-accesses are not known.
    pub derived: bool,
    /// The tables.
    pub tables: AccessTables,
}

/// True if memory of `target` was accessed again. Snapshots of a history have it of ended targets as well,
/// which have no memory any more.
fn has_reaccesses(target: &Target) -> bool {
    let any = |tables: &AccessTables| tables.reaccessed_from(0) > Bytes::ZERO;
    target.tables.as_deref().is_some_and(any)
}

/// True if `target` has regions or resident memory.
#[must_use]
pub fn has_data(target: &Target) -> bool {
    let has_resident = |tables: &AccessTables| tables.resident() > Bytes::ZERO;
    !target.regions.is_empty() || target.tables.as_deref().is_some_and(has_resident)
}

impl SnapshotTables {
    /// The tables of `snapshot`. Derived tables use the mappings and sizes of `layout`.
    #[must_use]
    pub fn new(snapshot: &Snapshot, layout: &Layout) -> Self {
        let mut all = Self::default();
        let counts = |target: &&Target| has_data(target) || has_reaccesses(target);
        for target in snapshot.targets.iter().filter(counts) {
            let recorded = target.tables.as_deref().copied();
            let tables = recorded.unwrap_or_else(|| derive(target, snapshot, layout));
            let is_sized = layout.has_mappings(target.id) || layout.footprint(target.id).is_some();
            all.may_include_gaps |= recorded.is_none() && !is_sized;
            all.targets.push(TargetTables {
                id: target.id,
                pid: target.pid,
                derived: recorded.is_none(),
                tables,
            });
        }
        all
    }

    /// The sum over all targets.
    #[must_use]
    pub fn sum(&self) -> AccessTables {
        let mut targets = self.targets.iter().map(|target| &target.tables);
        let first = targets.next().copied();
        let mut sum = first.unwrap_or(AccessTables::new(Method::Scan));
        targets.for_each(|tables| sum.add(tables));
        sum
    }

    /// True if all tables were recorded, so that kinds of pages and re-accesses are known.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        !self.targets.is_empty() && self.targets.iter().all(|target| !target.derived)
    }

    /// The longest scan pass, or aggregation interval with sampling; `None` before the first pass is
    /// complete.
    #[must_use]
    pub fn pass(&self) -> Option<Nanos> {
        self.scanned().map(|tables| tables.pass).max()
    }

    /// Start of the oldest data: no known age is older than this. `None` before the first pass is complete.
    #[must_use]
    pub fn as_of(&self) -> Option<Nanos> {
        self.scanned().map(|tables| tables.as_of).min()
    }

    /// The resolution of idle ages, and whether sizes were adjusted, as one to four lines.
    #[must_use]
    pub fn resolution(&self) -> String {
        let (sum, all) = (self.sum(), self.targets.len());
        let missing = all - self.scanned().count();
        let Some(pass) = self.pass() else {
            return "The first scan pass was not complete: memory not yet scanned is unknown.\n".to_owned();
        };
        let mut text = match sum.method {
            Method::Scan => format!("Scan pass: {pass}, the resolution of idle ages.\n"),
            Method::Sampling => {
                format!("Sampling, aggregation interval {pass}: idle ages are estimates from regions.\n")
            }
        };
        if sum.aliased.0 > sum.resident().0 / NOTABLE {
            text.push_str(&format!(
                "{} are in pages that a process maps more than once. Each page counts once.\n",
                sum.aliased
            ));
        }
        if sum.surplus.0 > sum.resident().0 / NOTABLE {
            text.push_str(&format!(
                "The last pass counted {} more than the kernel does, and the sizes are reduced in proportion: memory \
                 has left since.\n",
                sum.surplus
            ));
        }
        if missing > 0 {
            text.push_str(&format!(
                "First scan pass not complete for {missing} of {all} targets: the rest is unknown.\n"
            ));
        }
        text
    }

    /// The memory whose idle age is unknown, by reason, as a line for each reason with a notable share.
    #[must_use]
    pub fn unknown_text(&self) -> String {
        let sum = self.sum();
        let bytes = |reason: UnknownReason| sum.unknown[reason.index()];
        let is_notable = |reason: &UnknownReason| bytes(*reason).0 > sum.resident().0 / NOTABLE;
        let line = |reason: UnknownReason| format!("Unknown: {} {}.\n", bytes(reason), reason.text());
        UnknownReason::ALL
            .into_iter()
            .filter(is_notable)
            .map(line)
            .collect()
    }

    /// Adds warnings about these tables to `basis`.
    pub fn add_warnings(&self, basis: &mut Basis) {
        if self.may_include_gaps {
            basis.warn(
                "neither mappings nor resident size are known: idle bytes may include gaps between mappings.",
            );
        }
    }

    fn scanned(&self) -> impl Iterator<Item = &AccessTables> {
        let tables = self.targets.iter().map(|target| &target.tables);
        tables.filter(|tables| tables.nr_passes > 0)
    }
}

/// The last tables with known idle ages. When a target ends, the idle ages of its last snapshot can all be
/// unknown; then the tables of the previous snapshot are kept.
#[derive(Debug, Clone, Default)]
pub struct LastKnown {
    time_ns: u64,
    tables: SnapshotTables,
}

impl LastKnown {
    /// Adds the next snapshot.
    pub fn add(&mut self, snapshot: &Snapshot, layout: &Layout) {
        let tables = SnapshotTables::new(snapshot, layout);
        let is_known = |tables: &SnapshotTables| tables.sum().known() > Bytes::ZERO;
        if is_known(&tables) || !is_known(&self.tables) {
            (self.time_ns, self.tables) = (snapshot.time_ns, tables);
        }
    }

    /// End of the snapshot of [`Self::tables`].
    #[must_use]
    pub const fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// The tables.
    #[must_use]
    pub const fn tables(&self) -> &SnapshotTables {
        &self.tables
    }
}

/// Estimates the tables of a `target` without recorded tables from its regions.
fn derive(target: &Target, snapshot: &Snapshot, layout: &Layout) -> AccessTables {
    let mut tables = AccessTables {
        pass: Nanos(snapshot.aggr_ns),
        nr_passes: 1,
        as_of: Nanos(snapshot.start_ns),
        ..AccessTables::new(Method::Sampling)
    };
    let (mut accessed, mut idle, mut room) = (Bytes::ZERO, [Bytes::ZERO; NR_AGES], MAX_BYTES);
    for region in &target.regions {
        let bytes = Bytes(layout.mapped_bytes(target.id, region).min(room));
        room -= bytes.0;
        if region.unknown {
            tables.unknown[UnknownReason::Uncleared.index()] += bytes;
        } else if region.nr_accesses > 0 {
            accessed += bytes;
        } else if let Some(age) = region.age_ns(snapshot.aggr_ns) {
            idle[age_bucket(Nanos(age))] += bytes;
        } else {
            tables.unknown[UnknownReason::NotRecorded.index()] += bytes;
        }
    }
    let resident = layout
        .footprint(target.id)
        .map(|footprint| Bytes(footprint.rss.min(MAX_BYTES)));
    if let Some(resident) = resident {
        scale_down(&mut idle, resident.saturating_sub(accessed + tables.unknown()));
    }
    // Regions have no kinds of pages, so all bytes go to kind 0. Reports omit the kinds of derived tables.
    tables.idle[0] = idle;
    tables.idle[0][0] += accessed;
    if let Some(resident) = resident {
        tables.fit_to(resident);
    }
    tables
}

/// Scales `idle` down so that its sum is at most `max`.
fn scale_down(idle: &mut [Bytes; NR_AGES], max: Bytes) {
    let sum: Bytes = idle.iter().copied().sum();
    if sum <= max {
        return;
    }
    for bytes in idle.iter_mut() {
        let scaled = u128::from(bytes.0) * u128::from(max.0) / u128::from(sum.0);
        bytes.0 = u64::try_from(scaled).unwrap_or(bytes.0);
    }
    let rounding_loss = max - idle.iter().copied().sum();
    if let Some(largest) = idle.iter_mut().max_by_key(|bytes| bytes.0) {
        *largest += rounding_loss;
    }
}

#[cfg(test)]
mod tests {
    use thermo_recording::model::{Footprint, Mapping, Mappings, Record, Region};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn region(start: u64, end: u64, nr_accesses: u32, age: u32) -> Region {
        Region {
            start,
            end,
            nr_accesses,
            age: Some(age),
            unknown: false,
        }
    }

    fn snapshot(regions: Vec<Region>) -> Snapshot {
        Snapshot {
            aggr_ns: 100_000_000,
            max_nr_accesses: 20,
            targets: vec![Target {
                id: 1,
                pid: Some(7),
                regions,
                ..Target::default()
            }],
            ..Snapshot::default()
        }
    }

    fn layout(rss: u64) -> Layout {
        let mapping = |start, end| Mapping {
            start,
            end,
            name: String::new(),
        };
        let mut layout = Layout::default();
        layout.add(&Record::Mappings(Mappings {
            time_ns: 0,
            target: 1,
            mappings: vec![mapping(0, 100 * MIB), mapping(1 << 40, (1 << 40) + 1000 * MIB)],
        }));
        layout.add(&Record::Footprint(Footprint {
            target: 1,
            rss,
            ..Footprint::default()
        }));
        layout
    }

    #[test]
    fn derived_idle_bytes_exclude_gaps_and_nonresident_memory() {
        let snapshot = snapshot(vec![
            region(0, 50 * MIB, 1, 700),
            region(50 * MIB, 2 << 40, 0, 50),
        ]);
        let all = SnapshotTables::new(&snapshot, &layout(150 * MIB));
        let sum = all.sum();
        let mut ages = [Bytes::ZERO; NR_AGES];
        (ages[0], ages[3]) = (Bytes(50 * MIB), Bytes(100 * MIB));
        assert_eq!((sum.ages(), sum.unknown()), (ages, Bytes::ZERO));
        assert_eq!(sum.method, Method::Sampling);
        assert!(!all.may_include_gaps && !all.is_recorded());
        let without_layout = SnapshotTables::new(&snapshot, &Layout::default());
        assert!(without_layout.may_include_gaps);
    }

    #[test]
    fn idle_region_without_age_is_unknown() {
        let without_age = |region: Region| Region { age: None, ..region };
        let snapshot = snapshot(vec![
            without_age(region(0, 50 * MIB, 1, 0)),
            without_age(region(50 * MIB, 100 * MIB, 0, 0)),
        ]);
        let sum = SnapshotTables::new(&snapshot, &Layout::default()).sum();
        assert_eq!((sum.ages()[0], sum.known()), (Bytes(50 * MIB), Bytes(50 * MIB)));
        assert_eq!(sum.unknown[UnknownReason::NotRecorded.index()], Bytes(50 * MIB));
        assert_eq!(sum.unknown(), Bytes(50 * MIB));
    }

    #[test]
    fn derived_tables_sum_to_resident_size() {
        let regions = vec![
            region(0, 50 * MIB, 1, 0),
            region(50 * MIB, 70 * MIB, 0, 11),
            region(70 * MIB, 100 * MIB, 0, 99),
        ];
        for rss in [0, 1, 40 * MIB, 50 * MIB, 77 * MIB + 4096, 100 * MIB, 300 * MIB] {
            let sum = SnapshotTables::new(&snapshot(regions.clone()), &layout(rss)).sum();
            assert_eq!(sum.resident(), Bytes(rss));
        }
    }

    #[test]
    fn resolution_counts_targets_without_complete_pass() {
        let target = |id, nr_passes| TargetTables {
            id,
            pid: None,
            derived: false,
            tables: AccessTables {
                nr_passes,
                pass: Nanos::millis(130),
                ..AccessTables::new(Method::Scan)
            },
        };
        let snapshot = |targets| SnapshotTables {
            targets,
            ..SnapshotTables::default()
        };
        assert_eq!(
            snapshot(vec![target(1, 7)]).resolution(),
            "Scan pass: 130 ms, the resolution of idle ages.\n"
        );
        assert!(
            snapshot(vec![target(1, 7), target(2, 0)])
                .resolution()
                .contains("First scan pass not complete for 1 of 2 targets")
        );
        assert!(
            snapshot(vec![target(1, 0)])
                .resolution()
                .starts_with("The first scan pass was not complete")
        );
    }
}

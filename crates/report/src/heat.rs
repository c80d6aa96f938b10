//! What hot, warm, cold and unknown mean: decided here, once, for every report, summary and progress line.
//!
//! The access rate of a region is `nr_accesses / max_nr_accesses`: the share of looks that found it accessed.
//! * **hot**: at least [`HOT_RATE`] of the looks.
//! * **warm**: some, but fewer.
//! * **cold**: none in the whole aggregation.
//! * **unknown**: could not be judged (shared or unreadable); never counted as cold.
//!
//! Sizes count mapped bytes only when the mappings are known: the regions of the three-regions rule span gaps
//! that are no memory at all. Of the cold bytes, [`HeatSizes::cold_resident`] says how many can be in memory.

use serde::Serialize;
use thermo_core::{Bytes, Permille};
use thermo_record::model::{Region, Snapshot, Target};

use crate::layout::Layout;

/// From this access rate on memory is hot: one look in five, which at the default intervals means touched about every
/// 25 ms or more often. It is a convention of the reports alone; schemes say their own rates (`DAMON_LRU_SORT`, for one,
/// begins at 50 %).
pub const HOT_RATE: Permille = Permille(200);

/// How a region is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Heat {
    /// Accessed in at least [`HOT_RATE`] of the looks.
    Hot,
    /// Accessed, less often.
    Warm,
    /// Not accessed in the whole aggregation.
    Cold,
    /// Cannot be judged.
    Unknown,
}

impl Heat {
    /// The heat of `region` in a snapshot of `max_nr_accesses`.
    #[must_use]
    pub fn of(region: &Region, max_nr_accesses: u32) -> Self {
        if region.unknown {
            Self::Unknown
        } else if region.nr_accesses == 0 {
            Self::Cold
        } else if rate(region, max_nr_accesses) * 1000.0 >= f64::from(HOT_RATE.0) {
            Self::Hot
        } else {
            Self::Warm
        }
    }
}

/// The access rate of `region`, 0 to 1.
#[must_use]
pub fn rate(region: &Region, max_nr_accesses: u32) -> f64 {
    (f64::from(region.nr_accesses) / f64::from(max_nr_accesses.max(1))).min(1.0)
}

/// Memory of one heat.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Share {
    /// Bytes.
    pub bytes: u64,
    /// Their mean access rate, 0 to 1.
    pub access_rate: f64,
}

impl Share {
    /// Adds `bytes` of `access_rate`.
    pub fn add(&mut self, bytes: u64, access_rate: f64) {
        let all = self.bytes.saturating_add(bytes);
        if all > 0 {
            self.access_rate += (access_rate - self.access_rate) * (bytes as f64 / all as f64);
        }
        self.bytes = all;
    }
}

/// All memory of a snapshot by its heat.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct HeatSizes {
    /// Hot memory.
    pub hot: Share,
    /// Warm memory.
    pub warm: Share,
    /// Cold memory: mapped and not accessed, resident or not.
    pub cold: Share,
    /// Memory that cannot be judged.
    pub unknown: Share,
    /// The most of `cold` that can be in memory, from the resident sizes; `None` when a target's is not known.
    pub cold_resident: Option<u64>,
    /// True when the mappings of a process were not known, so that `cold` includes gaps between them.
    pub with_gaps: bool,
}

impl HeatSizes {
    /// The sizes of `snapshot`, with what `layout` knows of its targets.
    #[must_use]
    pub fn of(snapshot: &Snapshot, layout: &Layout) -> Self {
        let mut sizes = Self {
            cold_resident: Some(0),
            ..Self::default()
        };
        for target in snapshot
            .targets
            .iter()
            .filter(|target| !target.regions.is_empty())
        {
            sizes.add_target(target, snapshot.max_nr_accesses, layout);
        }
        sizes
    }

    /// All bytes.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.hot.bytes + self.warm.bytes + self.cold.bytes + self.unknown.bytes
    }

    /// The share of bytes that cannot be judged, 0 to 1; of those that can be in memory, where that is known.
    #[must_use]
    pub fn unknown_share(&self) -> f64 {
        let cold = self.cold_resident.unwrap_or(self.cold.bytes);
        let all = self.hot.bytes + self.warm.bytes + cold + self.unknown.bytes;
        self.unknown.bytes as f64 / all.max(1) as f64
    }

    /// One line for a progress display: `hot 106 MiB, warm 40.0 MiB, cold 432 MiB, unknown 1.50 MiB`; cold is what can be resident, where
    /// that is known.
    #[must_use]
    pub fn line(&self) -> String {
        let [hot, warm] = [self.hot, self.warm].map(|share| Bytes(share.bytes));
        let cold = Bytes(self.cold_resident.unwrap_or(self.cold.bytes));
        let unknown = Bytes(self.unknown.bytes);
        format!("hot {hot}, warm {warm}, cold {cold}, unknown {unknown}")
    }

    fn add_target(&mut self, target: &Target, max_nr_accesses: u32, layout: &Layout) {
        let (mut cold, mut rest) = (0, 0);
        for region in &target.regions {
            let bytes = layout.bytes(target.id, region);
            let heat = Heat::of(region, max_nr_accesses);
            let share = match heat {
                Heat::Hot => &mut self.hot,
                Heat::Warm => &mut self.warm,
                Heat::Cold => &mut self.cold,
                Heat::Unknown => &mut self.unknown,
            };
            share.add(bytes, rate(region, max_nr_accesses));
            *if heat == Heat::Cold { &mut cold } else { &mut rest } += bytes;
        }
        let resident = layout
            .footprint(target.id)
            .map(|footprint| footprint.rss.saturating_sub(rest).min(cold));
        self.cold_resident = self.cold_resident.zip(resident).map(|(sum, more)| sum + more);
        self.with_gaps |= target.pid.is_some() && !layout.knows(target.id);
    }
}

/// The last snapshot of which something is known: of a target that is about to end nothing can be told any more, and the
/// snapshot before says more.
#[derive(Debug, Clone, Default)]
pub struct LastKnown(Snapshot);

impl LastKnown {
    /// Takes the next snapshot.
    pub fn add(&mut self, snapshot: &Snapshot) {
        if any_known(snapshot) || !any_known(&self.0) {
            self.0.clone_from(snapshot);
        }
    }

    /// Its sizes.
    #[must_use]
    pub fn sizes(&self, layout: &Layout) -> HeatSizes {
        HeatSizes::of(&self.0, layout)
    }
}

fn any_known(snapshot: &Snapshot) -> bool {
    let mut regions = snapshot.targets.iter().flat_map(|target| &target.regions);
    regions.any(|region| !region.unknown)
}

#[cfg(test)]
mod tests {
    use thermo_record::model::{Footprint, Mapping, Mappings, Record};

    use super::*;

    fn region(start: u64, end: u64, nr_accesses: u32) -> Region {
        Region {
            start,
            end,
            nr_accesses,
            age: 0,
            unknown: false,
        }
    }

    #[test]
    fn the_borders_of_the_classes() {
        let heats = [0, 1, 3, 4, 20].map(|n| Heat::of(&region(0, 4096, n), 20));
        assert_eq!(heats, [Heat::Cold, Heat::Warm, Heat::Warm, Heat::Hot, Heat::Hot]);
        let unknown = Region {
            unknown: true,
            ..region(0, 4096, 0)
        };
        assert_eq!(Heat::of(&unknown, 20), Heat::Unknown);
    }

    #[test]
    fn cold_claims_neither_gaps_nor_what_was_never_touched() {
        const MIB: u64 = 1 << 20;
        let mut layout = Layout::default();
        let mapping = |start, end| Mapping {
            start,
            end,
            name: String::new(),
        };
        layout.add(&Record::Mappings(Mappings {
            time_ns: 0,
            target: 1,
            mappings: vec![mapping(0, 100 * MIB), mapping(1 << 40, (1 << 40) + 1000 * MIB)],
        }));
        let rss = Footprint {
            time_ns: 0,
            target: 1,
            vsz: 1100 * MIB,
            rss: 150 * MIB,
            swap: 0,
        };
        layout.add(&Record::Footprint(rss));
        let regions = vec![region(0, 50 * MIB, 20), region(50 * MIB, 2 << 40, 0)];
        let target = Target {
            id: 1,
            pid: Some(7),
            swept: None,
            tables: None,
            regions,
        };
        let snapshot = Snapshot {
            max_nr_accesses: 20,
            targets: vec![target],
            ..Snapshot::default()
        };
        let sizes = HeatSizes::of(&snapshot, &layout);
        assert_eq!(
            sizes.hot,
            Share {
                bytes: 50 * MIB,
                access_rate: 1.0
            }
        );
        assert_eq!(sizes.cold.bytes, 1050 * MIB);
        assert_eq!(sizes.cold_resident, Some(100 * MIB));
        assert!(!sizes.with_gaps);
        assert_eq!(sizes.line(), "hot 50.0 MiB, warm 0 B, cold 100 MiB, unknown 0 B");
        let blind = HeatSizes::of(&snapshot, &Layout::default());
        assert!(blind.with_gaps && blind.cold_resident.is_none());
    }
}

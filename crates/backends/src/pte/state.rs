//! State that the tracker keeps between access checks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use thermo_engine::TargetId;
use thermo_engine::ops::Probe;
use thermo_kernel::kpageflags::{Flags, PageFrames};
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_pagetable::{Entry, Folios, PageTables, WalkError};
use thermo_targets::Process;
use thermo_units::Addr;

use super::gap_cost::GapCost;
use super::lru_restore::LruRestore;
use super::other_monitors::OtherMonitors;
use super::recently_cleared::RecentlyCleared;
use super::shared_walk::SharedWalk;
use super::stats::ClearStats;
use super::target_scan::TargetScan;

/// Result of preparing a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeState {
    /// The accessed bit is clear. `idle`: whether another monitor had set the folio's idle flag, if that was
    /// checked.
    Cleared { idle: Option<bool> },
    /// The bit could not be cleared or read.
    Unknown,
}

const _: () = assert!(thermo_pagetable::MAX_OPEN_FILES < thermo_targets::OTHER_FILES - 60);

/// Tracker `pte`. See the module documentation.
#[derive(Debug)]
pub struct PteTracker {
    pub(super) tables: PageTables,
    /// Last check for memory hot-plug.
    pub(super) memory_checked: Instant,
    pub(super) root: PathBuf,
    pub(super) frames: Option<PageFrames>,
    /// Whether other monitors are visible only in the idle flag of folios.
    pub(super) has_idle_flag: bool,
    pub(super) other_monitors: OtherMonitors,
    /// One for each prepared probe.
    pub(super) probe_states: Vec<ProbeState>,
    pub(super) recently_cleared: RecentlyCleared,
    /// Scan state of each target.
    pub(super) scans: BTreeMap<TargetId, TargetScan>,
    /// The pagemap of the target that was scanned last.
    pub(super) pagemap: Option<(TargetId, Pagemap)>,
    /// Clears bits of shared and locked memory with `clear_refs`; `None` unless enabled.
    pub(super) shared_walk: Option<SharedWalk>,
    pub(super) lru_restore: LruRestore,
    /// Initial estimate for a new target.
    pub(super) first_gap_cost: GapCost,
    pub(super) stats: ClearStats,
    pub(super) addrs: Vec<Addr>,
    pub(super) entries: Vec<Entry>,
    /// Pagemap entries of a range whose accessed bits are still set.
    pub(super) pages: Vec<Page>,
    /// Flags of the frame behind each prepared probe, where they are needed.
    pub(super) flags: Vec<Option<Flags>>,
}

impl PteTracker {
    /// Reads the entries that map `self.addrs`.
    pub(super) fn read_entries(&mut self, process: &Process, folios: Folios) -> Result<(), WalkError> {
        self.tables
            .entries(process.pid, &self.addrs, folios, &mut self.entries)
    }

    /// Reads the entries that map the pages of `probes`.
    pub(super) fn read_entries_of_probes(
        &mut self,
        process: &Process,
        probes: &[Probe],
        folios: Folios,
    ) -> Result<(), WalkError> {
        self.addrs.clear();
        self.addrs.extend(probes.iter().map(|probe| probe.addr));
        self.read_entries(process, folios)
    }

    /// Whether idle flags of folios are needed to detect other monitors.
    pub(super) const fn uses_idle_flag(&self) -> bool {
        self.has_idle_flag && self.other_monitors.exist()
    }
}

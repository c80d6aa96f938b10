//! What the tracker keeps from access check to access check.

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

use super::cleared::Cleared;
use super::gap_cost::GapCost;
use super::lru_restore::LruRestore;
use super::others::Others;
use super::shared::Shared;
use super::stats::ClearStats;
use super::target_scan::TargetScan;

/// What became of a probe when it was prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// It is off, and the folio was marked idle by somebody else or not, where that was asked.
    Off { idle: Option<bool> },
    /// It could not be taken off, or not be read.
    Unknown,
}

/// The tracker. See the text of `mod.rs`.
#[derive(Debug)]
pub struct PteTracker {
    pub(super) tables: PageTables,
    /// When it was asked last whether memory was added.
    pub(super) asked: Instant,
    pub(super) root: PathBuf,
    pub(super) frames: Option<PageFrames>,
    /// Whether others' work shows in folios that are marked idle, and nowhere else.
    pub(super) has_idle_flag: bool,
    pub(super) others: Others,
    /// One for each probe last prepared.
    pub(super) marks: Vec<Mark>,
    pub(super) cleared: Cleared,
    /// What scans keep of each target.
    pub(super) scans: BTreeMap<TargetId, TargetScan>,
    /// Of the target that was scanned last.
    pub(super) pagemap: Option<(TargetId, Pagemap)>,
    /// What is done about memory whose marks cannot be taken off otherwise; none without consent.
    pub(super) shared: Option<Shared>,
    /// What sweeps take from the kernel's lists and give back.
    pub(super) lists: LruRestore,
    /// What a target begins with.
    pub(super) first_gap_cost: GapCost,
    pub(super) stats: ClearStats,
    pub(super) addrs: Vec<Addr>,
    pub(super) entries: Vec<Entry>,
    /// The pages of a run whose marks stayed.
    pub(super) pages: Vec<Page>,
    /// The flags of the frame behind each probe being prepared, where they tell something.
    pub(super) flags: Vec<Option<Flags>>,
}

impl PteTracker {
    /// Reads the entries that map the pages at `addrs`.
    pub(super) fn read_entries(&mut self, process: &Process, folios: Folios) -> Result<(), WalkError> {
        self.tables
            .entries(process.pid, &self.addrs, folios, &mut self.entries)
    }

    /// The same of the pages that `probes` are of.
    pub(super) fn read_entries_of(
        &mut self,
        process: &Process,
        probes: &[Probe],
        folios: Folios,
    ) -> Result<(), WalkError> {
        self.addrs.clear();
        self.addrs.extend(probes.iter().map(|probe| probe.addr));
        self.read_entries(process, folios)
    }

    /// Whether the idle flags of frames tell what others cleared.
    pub(super) const fn asks_idle_flag(&self) -> bool {
        self.has_idle_flag && self.others.are_present()
    }
}

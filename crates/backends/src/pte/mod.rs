//! Tracker `pte`: reads accessed bits from page tables with BPF, and clears them with `MADV_COLD`.
//!
//! **Prepare** reads the entries that map the probes. A set bit is cleared together with all pages that share
//! the entry or the folio, so that no huge page is split. A bit that is not set needs no call. Then the
//! entries are read again. If a bit is still or again set, the page is accessed all the time, or the kernel
//! skipped the page without an error. The kernel skips pages that are mapped more than once and pages on no
//! LRU list; these pages are *unknown*.
//!
//! **Check** reads the entries again. An absent page is idle. A page that became present since counts as
//! accessed, because the page fault sets the accessed bit.
//!
//! **Other monitors.** In-kernel DAMON and the idle-page bitmap also clear accessed bits. They record a bit
//! that was set in the folio's *young* flag. `MADV_COLD` clears this flag too, on all pages that it does not
//! skip. So a page was accessed since it was cleared if its accessed bit is set or its folio is young. The
//! flag is per folio: if a large folio is mapped page by page, all its pages count as accessed. Folios are
//! checked only while other monitors exist (`other_monitors.rs`), and by scans only in parts
//! (`folio_young.rs`).
//!
//! User space cannot read the young flag. Where BPF cannot read it either (`FolioError`), only the *idle*
//! flag (KPF_IDLE) remains, which these monitors set when they clear a bit. There, a page whose folio became
//! idle between prepare and check is unknown, because another monitor cleared its bit. If the folio was idle
//! before, this cannot be detected. KPF_REFERENCED does not help: system calls set it.

mod bridge;
mod exclusive_cache;
mod folio_young;
mod gap_cost;
mod lru_restore;
mod madvise_fallback;
mod madvise_unit;
mod memory_pressure;
mod other_monitors;
mod page_bits;
mod prepare;
mod read_back;
mod recently_cleared;
mod scan;
mod shared_walk;
mod spot_check;
mod state;
mod stats;
mod stripe;
mod table_part;
mod target_scan;
mod uncleared_cache;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thermo_engine::TargetId;
use thermo_engine::ops::{CheckResult, Probe};
use thermo_engine::scan::{Preparation, ScanChunk};
use thermo_kernel::kpageflags::PageFrames;
use thermo_pagetable::{BpfError, Entry, FolioError, Folios, Leaf, PageTables};
use thermo_targets::{Inspector, PageInspector, PageView, Process, Processes};
use thermo_units::{Addr, AddrRange, Nanos};

use self::gap_cost::GapCost;
use self::lru_restore::LruRestore;
use self::other_monitors::OtherMonitors;
pub use self::other_monitors::other_monitors_exist;
use self::recently_cleared::RecentlyCleared;
use self::shared_walk::SharedWalk;
use self::state::ProbeState;
pub use self::state::PteTracker;
pub use self::stats::ClearStats;
use self::target_scan::TargetScan;
use crate::tracker::Tracker;

/// Interval between checks for memory hot-plug.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_secs(60);

impl PteTracker {
    /// # Errors
    /// Why page tables cannot be read on this machine, and what would help.
    pub fn new() -> Result<Self, BpfError> {
        let root = PathBuf::from("/");
        let monitors = ["sys/kernel/mm/damon", "sys/kernel/mm/page_idle"];
        let tables = PageTables::open()?;
        let has_young_flag = tables.young_support().is_ok();
        Ok(Self {
            frames: PageFrames::open(&root).ok(),
            has_idle_flag: !has_young_flag && monitors.iter().any(|monitor| root.join(monitor).exists()),
            tables,
            memory_checked: Instant::now(),
            root,
            other_monitors: OtherMonitors::default(),
            probe_states: Vec::new(),
            recently_cleared: RecentlyCleared::default(),
            scans: BTreeMap::new(),
            pagemap: None,
            shared_walk: None,
            lru_restore: LruRestore::default(),
            first_gap_cost: GapCost::default(),
            stats: ClearStats::default(),
            addrs: Vec::new(),
            entries: Vec::new(),
            pages: Vec::new(),
            flags: Vec::new(),
        })
    }

    /// The reader of page tables.
    pub fn tables(&mut self) -> &mut PageTables {
        &mut self.tables
    }

    /// Whether the tracker reads the folio's young flag, so that it sees accessed bits that in-kernel DAMON
    /// or the idle-page bitmap cleared.
    ///
    /// # Errors
    /// Why it cannot.
    pub const fn young_support(&self) -> Result<(), &FolioError> {
        self.tables.young_support()
    }

    /// Folios whose young flag is read. Without other monitors the flag may be years old, so it is not read.
    fn folios_to_check(&self) -> Folios {
        if self.other_monitors.exist() {
            Folios::NotAccessed
        } else {
            Folios::None
        }
    }

    /// Bridges gaps of up to `pages` present pages instead of learning the limit. For measurements.
    pub fn fix_gap(&mut self, pages: u64) {
        self.scans.clear();
        self.first_gap_cost = GapCost::fixed(pages);
    }

    /// Totals of clearing accessed bits since the tracker was created.
    #[must_use]
    pub const fn clear_stats(&self) -> ClearStats {
        self.stats
    }

    /// Largest gap that is bridged in a target, in present pages; `None` before its first scan.
    #[must_use]
    pub fn gap(&self, id: TargetId) -> Option<u64> {
        self.scans.get(&id).map(|scan| scan.gap_cost.break_even())
    }

    /// Forgets the scan state of a target that is sampled now: most of its pages will keep old accessed bits.
    fn forget_scans(&mut self, id: TargetId) {
        if let Some(scan) = self.scans.get_mut(&id) {
            scan.forget();
        }
        if let Some(shared) = &mut self.shared_walk {
            shared.forget(id);
        }
    }

    /// Checks once a minute whether memory was added, and whether other monitors exist.
    fn update_host_state(&mut self) {
        if self.young_support().is_ok() || self.has_idle_flag {
            self.other_monitors.refresh(&self.root);
        }
        if self.memory_checked.elapsed() >= MEMORY_CHECK_INTERVAL {
            self.tables.refresh_memory_end();
            self.memory_checked = Instant::now();
        }
    }

    fn has_idle_flag_set(&self, leaf: Leaf) -> bool {
        self.frames
            .as_ref()
            .and_then(|frames| frames.flags(leaf.pfn).ok())
            .is_some_and(|flags| flags.is_idle())
    }

    fn check_one(&mut self, process: &Process, first: usize, probes: &mut [Probe]) {
        let read = self.read_entries_of_probes(process, probes, self.folios_to_check());
        if read.is_err() || !process.is_alive() {
            return;
        }
        let uses_idle_flag = self.uses_idle_flag();
        for (n, probe) in probes.iter_mut().enumerate() {
            let Some(ProbeState::Cleared { idle: was_idle }) = self.probe_states.get(first + n) else {
                continue;
            };
            probe.result = match self.entries[n] {
                Entry::Leaf(leaf) if leaf.was_accessed() => CheckResult::Accessed,
                // Another monitor cleared the bit since.
                Entry::Leaf(leaf)
                    if uses_idle_flag && *was_idle != Some(true) && self.has_idle_flag_set(leaf) =>
                {
                    CheckResult::Unknown
                }
                Entry::Leaf(_) | Entry::Absent(_) => CheckResult::Idle,
                Entry::Table | Entry::Unreadable => CheckResult::Unknown,
            };
        }
    }
}

impl Tracker for PteTracker {
    fn prepare(&mut self, processes: &Processes, probes: &[Probe]) {
        self.update_host_state();
        // Updates the state of memory pressure before accessed bits are cleared.
        self.lru_restore.update(&self.root);
        self.probe_states.clear();
        self.pagemap = None;
        for group in probes.chunk_by(same_target) {
            self.forget_scans(target_of(group));
            match processes.get(&target_of(group)) {
                Some(process) => self.prepare_one(process, group),
                None => self
                    .probe_states
                    .resize(self.probe_states.len() + group.len(), ProbeState::Unknown),
            }
        }
    }

    fn check(&mut self, processes: &Processes, probes: &mut [Probe]) {
        let mut first = 0;
        for group in probes.chunk_by_mut(same_target) {
            group
                .iter_mut()
                .for_each(|probe| probe.result = CheckResult::Unknown);
            if let Some(process) = processes.get(&target_of(group)) {
                self.check_one(process, first, group);
            }
            first += group.len();
        }
    }

    fn can_scan(&self) -> bool {
        true
    }

    fn scans_jointly(&self) -> bool {
        self.shared_walk.is_some()
    }

    fn reads_young_flags(&self) -> bool {
        self.young_support().is_ok()
    }

    fn prepare_walk(&mut self, processes: &Processes, first: bool) -> Preparation {
        if first {
            self.update_host_state();
            self.keep_only(processes);
        }
        let folios = self.folios_to_check();
        match &mut self.shared_walk {
            Some(shared) => shared.prepare(&mut self.tables, &self.root, processes, folios, first),
            None => Preparation::Ready,
        }
    }

    fn begin_pass(&mut self, process: &Process) {
        self.update_host_state();
        if self.pagemap.as_ref().is_some_and(|(id, _)| *id == process.id) {
            self.pagemap = None;
        }
        let first_gap_cost = &self.first_gap_cost;
        let scan = self.scans.entry(process.id);
        let scan = scan.or_insert_with(|| TargetScan::new(process.id, first_gap_cost.clone()));
        scan.begin_pass(self.other_monitors.exist());
    }

    fn scan(&mut self, process: &Process, range: AddrRange, chunk: &mut ScanChunk) -> Addr {
        self.scan_pages(process, range, chunk)
    }

    fn keep_only(&mut self, processes: &Processes) {
        self.scans.retain(|id, _| processes.contains_key(id));
    }

    fn enable_shared_walks(&mut self, max_time: Nanos) -> bool {
        self.shared_walk = Some(SharedWalk::new(max_time));
        true
    }

    fn keep_active_pages(&mut self) {
        self.lru_restore.keep_active = true;
    }

    fn assume_other_monitors(&mut self, exist: bool) {
        self.other_monitors.assume(exist);
    }

    fn inspector(&mut self) -> Inspector<'_> {
        Some(self)
    }
}

impl PageInspector for PteTracker {
    fn inspect(&mut self, process: &Process, addrs: &[Addr], young: bool, views: &mut Vec<PageView>) -> bool {
        let folios = if young {
            self.folios_to_check()
        } else {
            Folios::None
        };
        views.clear();
        let read = self.tables.entries(process.pid, addrs, folios, &mut self.entries);
        if read.is_ok() {
            views.extend(self.entries.iter().map(view));
        }
        read.is_ok()
    }

    fn accessed_since_cleared(&mut self, process: &Process, range: AddrRange) -> Option<Vec<AddrRange>> {
        self.addrs.clear();
        self.addrs.extend(self.recently_cleared.within(process.id, range));
        self.read_entries(process, self.folios_to_check()).ok()?;
        let accessed = self
            .addrs
            .iter()
            .zip(&self.entries)
            .filter_map(|(addr, entry)| match entry {
                Entry::Leaf(leaf) if leaf.was_accessed() => {
                    let base = addr.0 & !(leaf.len().0 - 1);
                    Some(AddrRange::new(base, base + leaf.len().0))
                }
                _ => None,
            });
        let mut accessed: Vec<AddrRange> = accessed.collect();
        self.accessed_since_scan(process, range, &mut accessed).ok()?;
        accessed.sort_unstable();
        accessed.dedup();
        Some(accessed)
    }
}

const fn view(entry: &Entry) -> PageView {
    match entry {
        Entry::Leaf(leaf) => PageView::Page {
            size: leaf.len(),
            accessed: leaf.was_accessed(),
        },
        Entry::Absent(level) => PageView::Absent { all: *level > 0 },
        Entry::Table | Entry::Unreadable => PageView::Unknown,
    }
}

fn same_target(a: &Probe, b: &Probe) -> bool {
    a.target == b.target
}

fn target_of(group: &[Probe]) -> TargetId {
    // `chunk_by` gives no empty groups.
    group.first().map_or(TargetId(u32::MAX), |probe| probe.target)
}

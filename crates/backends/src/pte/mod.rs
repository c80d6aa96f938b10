//! The tracker that reads accessed marks from page tables (through BPF) and takes them off by `MADV_COLD`.
//!
//! **Prepare** reads the entries that map the probes. A mark that is set is taken off together with all that
//! shares its leaf or folio, so that no huge page is split by looking; one that is not set needs no call. Then
//! the entries are read back: where the mark is still (or again) set, either the page is touched all the time or
//! the kernel left it alone without saying so, which it does with pages that are mapped more than once or on no
//! LRU list; the latter are *unknown*.
//!
//! **Check** reads the entries again. A page that is not there is idle; one that came since is accessed, because
//! the fault that brought it set its mark.
//!
//! **Others who take marks off** and keep account of it (in-kernel DAMON, the idle-page bitmap) note in the folio what
//! they found: *young* if the mark was set. `MADV_COLD` takes that mark off as well, from every page it does not pass
//! over. So "touched since we cleared it" is: the mark of the entry, or that of the folio. The latter is no more
//! exact than a folio: of a large one mapped page by page, all pages count as touched. Both are asked only while others
//! exist (`others.rs`), and by scans of a part (`folio_young.rs`).
//!
//! The folio's mark is not shown to user space, and where it cannot be read (`NoFolios`) only a trace of it is left:
//! *idle* (KPF_IDLE), which the same two set when they take a mark off. So there, a page that became idle in this
//! sense between our two looks is unknown: somebody else has its mark. (If it was idle before already, that cannot
//! be told.)
//! KPF_REFERENCED is no help: it tells of system calls.

mod bridge;
mod cleared;
mod exclusive_cache;
mod folio_young;
mod gap_cost;
mod leaf;
mod lru_restore;
mod madvise_fallback;
mod others;
mod part;
mod prepare;
mod read_back;
mod scan;
mod shared;
mod spot_check;
mod state;
mod stats;
mod stripe;
mod table;
mod target_scan;
mod uncleared_cache;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thermo_engine::TargetId;
use thermo_engine::ops::{Probe, Seen};
use thermo_engine::scan::{Preparation, ScanChunk};
use thermo_kernel::kpageflags::PageFrames;
use thermo_pagetable::{BpfError, Entry, Folios, Leaf, NoFolios, PageTables};
use thermo_targets::{Inspector, PageInspector, PageView, Process, Processes};
use thermo_units::{Addr, AddrRange, Nanos};

use self::cleared::Cleared;
use self::gap_cost::GapCost;
use self::lru_restore::LruRestore;
use self::others::Others;
pub use self::others::others_clear_accessed_bits;
use self::shared::Shared;
use self::state::Mark;
pub use self::state::PteTracker;
pub use self::stats::ClearStats;
use self::target_scan::TargetScan;
use crate::tracker::Tracker;

/// How often it is asked whether memory was added to the machine.
const NEW_MEMORY: Duration = Duration::from_secs(60);

impl PteTracker {
    /// Loads the BPF program.
    ///
    /// # Errors
    /// The reason why page tables cannot be read on this machine, and the way out.
    pub fn new() -> Result<Self, BpfError> {
        let root = PathBuf::from("/");
        let idle_users = ["sys/kernel/mm/damon", "sys/kernel/mm/page_idle"];
        let tables = PageTables::open()?;
        let sees_young = tables.sees_young().is_ok();
        Ok(Self {
            frames: PageFrames::open(&root).ok(),
            has_idle_flag: !sees_young && idle_users.iter().any(|user| root.join(user).exists()),
            tables,
            asked: Instant::now(),
            root,
            others: Others::default(),
            marks: Vec::new(),
            cleared: Cleared::default(),
            scans: BTreeMap::new(),
            pagemap: None,
            shared: None,
            lists: LruRestore::default(),
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

    /// Whether marks that in-kernel DAMON and the idle-page bitmap took off are seen in the folio all the same.
    ///
    /// # Errors
    /// The reason why not.
    pub const fn sees_young(&self) -> Result<(), &NoFolios> {
        self.tables.sees_young()
    }

    /// Of which pages passes clear the young flag of the folio by and by: what it says where nobody does may be years old.
    fn folios_scanned(&self) -> Folios {
        if self.others.are_present() {
            Folios::OfUnmarked
        } else {
            Folios::Unasked
        }
    }

    /// Bridges gaps of up to `pages` present pages, whatever they cost: for measurements. Otherwise that is learned.
    pub fn fix_gap(&mut self, pages: u64) {
        self.scans.clear();
        self.first_gap_cost = GapCost::fixed(pages);
    }

    /// What clearing accessed bits has cost since the tracker was made.
    #[must_use]
    pub const fn clear_stats(&self) -> ClearStats {
        self.stats
    }

    /// The largest gap that is bridged in a target, in present pages; none before its first scan.
    #[must_use]
    pub fn gap(&self, id: TargetId) -> Option<u64> {
        self.scans.get(&id).map(|scan| scan.gap_cost.break_even())
    }

    /// Forgets what scans know of a target that is sampled: from now on most pages keep accessed bits that are old.
    fn leave_to_samples(&mut self, id: TargetId) {
        if let Some(scan) = self.scans.get_mut(&id) {
            scan.leave_to_samples();
        }
        if let Some(shared) = &mut self.shared {
            shared.forget(id);
        }
    }

    /// Now and then looks whether memory was added to the machine, and who else clears accessed bits.
    fn follow_machine(&mut self) {
        if self.sees_young().is_ok() || self.has_idle_flag {
            self.others.look(&self.root);
        }
        if self.asked.elapsed() >= NEW_MEMORY {
            self.tables.notice_new_memory();
            self.asked = Instant::now();
        }
    }

    fn is_marked_idle(&self, leaf: Leaf) -> bool {
        self.frames
            .as_ref()
            .and_then(|frames| frames.flags(leaf.pfn).ok())
            .is_some_and(|flags| flags.is_idle())
    }

    fn check_one(&mut self, process: &Process, first: usize, probes: &mut [Probe]) {
        let read = self.read_entries_of(process, probes, self.folios_scanned());
        if read.is_err() || !process.is_alive() {
            return;
        }
        let asks_idle = self.asks_idle_flag();
        for (n, probe) in probes.iter_mut().enumerate() {
            let Some(Mark::Off { idle: was_idle }) = self.marks.get(first + n) else {
                continue;
            };
            probe.seen = match self.entries[n] {
                Entry::Leaf(leaf) if leaf.is_touched() => Seen::Accessed,
                // Somebody else cleared its bit since.
                Entry::Leaf(leaf) if asks_idle && *was_idle != Some(true) && self.is_marked_idle(leaf) => {
                    Seen::Unknown
                }
                Entry::Leaf(_) | Entry::Absent(_) => Seen::Idle,
                Entry::Table | Entry::Unreadable => Seen::Unknown,
            };
        }
    }
}

impl Tracker for PteTracker {
    fn prepare(&mut self, processes: &Processes, probes: &[Probe]) {
        self.follow_machine();
        // So that it is known when rounds begin.
        self.lists.follow(&self.root);
        self.marks.clear();
        self.pagemap = None;
        for group in probes.chunk_by(same_target) {
            self.leave_to_samples(target_of(group));
            match processes.get(&target_of(group)) {
                Some(process) => self.prepare_one(process, group),
                None => self.marks.resize(self.marks.len() + group.len(), Mark::Unknown),
            }
        }
    }

    fn check(&mut self, processes: &Processes, probes: &mut [Probe]) {
        let mut first = 0;
        for group in probes.chunk_by_mut(same_target) {
            group.iter_mut().for_each(|probe| probe.seen = Seen::Unknown);
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
        self.shared.is_some()
    }

    fn sees_marks_taken(&self) -> bool {
        self.sees_young().is_ok()
    }

    fn prepare_walk(&mut self, processes: &Processes, first: bool) -> Preparation {
        if first {
            self.follow_machine();
            self.keep_only(processes);
        }
        let folios = self.folios_scanned();
        match &mut self.shared {
            Some(shared) => shared.prepare(&mut self.tables, &self.root, processes, folios, first),
            None => Preparation::Ready,
        }
    }

    fn begin_pass(&mut self, process: &Process) {
        self.follow_machine();
        if self.pagemap.as_ref().is_some_and(|(id, _)| *id == process.id) {
            self.pagemap = None;
        }
        let first_gap_cost = &self.first_gap_cost;
        let scan = self.scans.entry(process.id);
        let scan = scan.or_insert_with(|| TargetScan::new(process.id, first_gap_cost.clone()));
        scan.begin_pass(self.others.are_present());
    }

    fn scan(&mut self, process: &Process, range: AddrRange, chunk: &mut ScanChunk) -> Addr {
        self.scan_pages(process, range, chunk)
    }

    fn keep_only(&mut self, processes: &Processes) {
        self.scans.retain(|id, _| processes.contains_key(id));
    }

    fn walk_shared(&mut self, longest: Nanos) -> bool {
        self.shared = Some(Shared::new(longest));
        true
    }

    fn keep_active(&mut self) {
        self.lists.are_sorted = true;
    }

    fn fix_others(&mut self, are_present: bool) {
        self.others.fix(are_present);
    }

    fn inspector(&mut self) -> Inspector<'_> {
        Some(self)
    }
}

impl PageInspector for PteTracker {
    fn inspect(&mut self, process: &Process, addrs: &[Addr], young: bool, views: &mut Vec<PageView>) -> bool {
        let folios = if young {
            self.folios_scanned()
        } else {
            Folios::Unasked
        };
        views.clear();
        let read = self.tables.entries(process.pid, addrs, folios, &mut self.entries);
        if read.is_ok() {
            views.extend(self.entries.iter().map(view));
        }
        read.is_ok()
    }

    fn touched_since_cleared(&mut self, process: &Process, range: AddrRange) -> Option<Vec<AddrRange>> {
        self.addrs.clear();
        self.addrs.extend(self.cleared.within(process.id, range));
        self.read_entries(process, self.folios_scanned()).ok()?;
        let touched = self
            .addrs
            .iter()
            .zip(&self.entries)
            .filter_map(|(addr, entry)| match entry {
                Entry::Leaf(leaf) if leaf.is_touched() => {
                    let base = addr.0 & !(leaf.len().0 - 1);
                    Some(AddrRange::new(base, base + leaf.len().0))
                }
                _ => None,
            });
        let mut touched: Vec<AddrRange> = touched.collect();
        self.touched_since_swept(process, range, &mut touched).ok()?;
        touched.sort_unstable();
        touched.dedup();
        Some(touched)
    }
}

const fn view(entry: &Entry) -> PageView {
    match entry {
        Entry::Leaf(leaf) => PageView::Page {
            size: leaf.len(),
            accessed: leaf.is_touched(),
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

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
//! exact than a folio: of a large one mapped page by page, all pages count as touched. Sweeps ask for it when it
//! matters: see `taken.rs` in this folder.
//!
//! The folio's mark is not shown to user space, and where it cannot be read (`NoFolios`) only a trace of it is left:
//! *idle* (KPF_IDLE), which the same two set when they take a mark off. So there, a page that became idle in this
//! sense between our two looks is unknown: somebody else has its mark. (If it was idle before already, that cannot
//! be told.) Only a sample of the probes is asked until somebody else was met: see `rival.rs` in this folder.
//! KPF_REFERENCED is no help: it tells of system calls.

mod batch;
mod bridge;
mod cleared;
mod gap_cost;
mod leaf;
mod left_alone;
mod lists;
mod own;
mod part;
mod prepare;
mod present;
mod refused;
mod rival;
mod shared;
mod spots;
mod stats;
mod sweep;
mod table;
mod taken;
mod witness;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thermo_bpf::{BpfError, Entry, Folios, Leaf, NoFolios, PageTables, WalkError};
use thermo_core::ops::{Probe, Seen};
use thermo_core::sweep::Preparation;
use thermo_core::{Addr, AddrRange, Nanos, TargetId};
use thermo_sys::kpageflags::{Flags, PageFrames};
use thermo_sys::pagemap::{Page, Pagemap};

pub(crate) use self::batch::{advise, call_len, whole_ranges};
use self::cleared::Cleared;
use self::gap_cost::GapCost;
use self::left_alone::LeftAlone;
use self::lists::Lists;
use self::own::Own;
use self::refused::Mappings;
use self::rival::Rival;
use self::shared::Shared;
use self::spots::Spots;
pub use self::stats::ClearStats;
use self::sweep::SweptChunks;
use self::taken::Taken;
use self::witness::Witnesses;
use crate::process::{Process, Processes};
use crate::tracker::Tracker;

/// What became of a probe when it was prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// It is off, and the folio was marked idle by somebody else or not, where that was asked.
    Off { idle: Option<bool> },
    /// It could not be taken off, or not be read.
    Unknown,
}

/// How often it is asked whether memory was added to the machine.
const NEW_MEMORY: Duration = Duration::from_secs(60);

/// The tracker. See the module's text.
#[derive(Debug)]
pub struct PteTracker {
    tables: PageTables,
    /// When it was asked last whether memory was added.
    asked: Instant,
    root: PathBuf,
    frames: Option<PageFrames>,
    /// Whether others' work shows in folios that are marked idle, and nowhere else.
    has_idle_flag: bool,
    rival: Rival,
    /// What sweeps ask of folios.
    taken: Taken,
    /// One for each probe last prepared.
    marks: Vec<Mark>,
    cleared: Cleared,
    /// Where sweeps took marks off, of memory that is touched all the time of a part, while sweeps go on.
    swept: SweptChunks,
    /// Pages that sweeps need not advise each time.
    left_alone: LeftAlone,
    /// Pages that sweeps need not ask about each time.
    own: Own,
    /// Of which pages sweeps need not take the marks off each time.
    spots: Spots,
    /// Of the target that was looked at last since a round began.
    pagemap: Option<(TargetId, Pagemap)>,
    /// Around what sweeps have to go.
    mappings: Mappings,
    /// What is done about memory whose marks cannot be taken off otherwise; none without consent.
    shared: Option<Shared>,
    /// What sweeps take from the kernel's lists and give back.
    lists: Lists,
    /// What shows that others take marks off.
    witnesses: Witnesses,
    /// Up to which gap ranges to clear are joined, by target, and what a target begins with.
    gap_costs: BTreeMap<TargetId, GapCost>,
    first_gap_cost: GapCost,
    /// How much is read before it is cleared, by target.
    stripes: BTreeMap<TargetId, u64>,
    stats: ClearStats,
    addrs: Vec<Addr>,
    entries: Vec<Entry>,
    /// The pages of a run whose marks stayed.
    pages: Vec<Page>,
    /// The flags of the frame behind each probe being prepared, where they tell something.
    flags: Vec<Option<Flags>>,
}

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
            rival: Rival::default(),
            taken: Taken::new(sees_young),
            marks: Vec::new(),
            cleared: Cleared::default(),
            swept: SweptChunks::default(),
            left_alone: LeftAlone::default(),
            own: Own::default(),
            spots: Spots::default(),
            pagemap: None,
            mappings: None,
            shared: None,
            lists: Lists::default(),
            witnesses: Witnesses::default(),
            gap_costs: BTreeMap::new(),
            first_gap_cost: GapCost::default(),
            stripes: BTreeMap::new(),
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

    /// Of which pages sweeps take the young mark off the folio: what it says of others may be years old.
    pub(crate) const fn folios_swept(&self) -> Folios {
        self.taken.asks()
    }

    /// Consents to walks that take the marks off pages which are mapped more than once and off locked mappings,
    /// each of at most `longest`; see `shared.rs` in this folder. Sweeps only.
    pub fn walk_shared(&mut self, longest: Nanos) {
        self.shared = Some(Shared::new(longest));
    }

    /// Has sweeps leave active pages active, for schemes that sort the kernel's lists; see `lists.rs` in this folder.
    pub const fn keep_active(&mut self) {
        self.lists.are_sorted = true;
    }

    /// Bridges gaps of up to `pages` present pages, whatever they cost: for measurements. Otherwise that is learned.
    pub fn fix_gap(&mut self, pages: u64) {
        self.gap_costs.clear();
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
        self.gap_costs.get(&id).map(GapCost::break_even)
    }

    /// Does the next part of what comes before a round of sweeps, as [`Operations::prepare_round`].
    ///
    /// [`Operations::prepare_round`]: thermo_core::Operations::prepare_round
    pub fn prepare_round(&mut self, processes: &Processes, first: bool) -> Preparation {
        if first {
            self.follow_memory();
            (self.pagemap, self.mappings) = (None, None);
            self.taken.begin_round(&mut self.tables, &self.root, processes);
            self.left_alone.begin_round();
            self.own.begin_round();
            self.spots.begin_round();
            self.witnesses.begin_round();
            self.swept.retain(|(id, _), ()| processes.contains_key(id));
            self.gap_costs.retain(|id, _| processes.contains_key(id));
            self.stripes.retain(|id, _| processes.contains_key(id));
        }
        let folios = self.taken.asks();
        match &mut self.shared {
            Some(shared) => shared.prepare(&mut self.tables, &self.root, processes, folios, first),
            None => Preparation::Ready,
        }
    }

    /// Forgets what sweeps know of a target of which samples are looked at: from now on most pages keep marks that are old.
    fn leave_to_samples(&mut self, id: TargetId) {
        table::forget(&mut self.swept, id);
        self.spots.forget(id);
        self.own.forget(id);
        self.witnesses.let_go_of(id);
        if let Some(shared) = &mut self.shared {
            shared.forget(id);
        }
    }

    /// Now and then looks whether memory was added to the machine.
    fn follow_memory(&mut self) {
        if self.asked.elapsed() >= NEW_MEMORY {
            self.tables.notice_new_memory();
            self.asked = Instant::now();
        }
    }

    /// Says that we do something to memory of targets ourselves, which may take marks off.
    pub(crate) fn will_act(&mut self) {
        self.witnesses.let_go();
    }

    /// The pages of `range` that we know to have been touched since we took their marks off lately: each as the
    /// whole leaf that maps it, ascending. Pages we did not look at are not among them.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn touched_since_cleared(
        &mut self,
        process: &Process,
        range: AddrRange,
    ) -> Result<Vec<AddrRange>, WalkError> {
        self.addrs.clear();
        self.addrs.extend(self.cleared.within(process.id, range));
        self.read_entries(process, Folios::OfUnmarked)?;
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
        self.touched_since_swept(process, range, &mut touched)?;
        touched.sort_unstable();
        touched.dedup();
        Ok(touched)
    }

    /// Reads the entries that map the pages at `addrs`.
    fn read_entries(&mut self, process: &Process, folios: Folios) -> Result<(), WalkError> {
        self.tables
            .entries(process.pid, &self.addrs, folios, &mut self.entries)
    }

    /// The same of the pages that `probes` are of.
    fn read_entries_of(
        &mut self,
        process: &Process,
        probes: &[Probe],
        folios: Folios,
    ) -> Result<(), WalkError> {
        self.addrs.clear();
        self.addrs.extend(probes.iter().map(|probe| probe.addr));
        self.read_entries(process, folios)
    }

    fn is_marked_idle(&self, leaf: Leaf) -> bool {
        self.frames
            .as_ref()
            .and_then(|frames| frames.flags(leaf.pfn).ok())
            .is_some_and(|flags| flags.is_idle())
    }

    fn check_one(&mut self, process: &Process, first: usize, probes: &mut [Probe]) {
        let read = self.read_entries_of(process, probes, Folios::OfUnmarked);
        if read.is_err() || !process.is_alive() {
            return;
        }
        for (n, probe) in probes.iter_mut().enumerate() {
            let Some(Mark::Off { .. }) = self.marks.get(first + n) else {
                continue;
            };
            probe.seen = match self.entries[n] {
                Entry::Leaf(leaf) if leaf.is_touched() => Seen::Accessed,
                Entry::Leaf(_) | Entry::Absent(_) => Seen::Idle,
                Entry::Table | Entry::Unreadable => Seen::Unknown,
            };
        }
        if !self.has_idle_flag {
            return;
        }
        let asked_all = self.rival.asks_all();
        if self.doubt(first, probes) {
            self.rival.met();
            if !asked_all {
                self.doubt(first, probes);
            }
        }
    }

    /// Makes unknown what is idle, is asked, and has somebody else's flag. Returns whether there was any.
    fn doubt(&self, first: usize, probes: &mut [Probe]) -> bool {
        let all = probes.len();
        let marks = self.marks.get(first..).unwrap_or_default();
        let mut met = false;
        for (n, (probe, mark)) in probes.iter_mut().zip(marks).enumerate() {
            // Whose flag was not asked for before is doubted too, once there is reason to ask.
            let was_idle = *mark == Mark::Off { idle: Some(true) };
            if let Some(Entry::Leaf(leaf)) = self.entries.get(n)
                && probe.seen == Seen::Idle
                && !was_idle
                && self.rival.asks(n, all)
                && self.is_marked_idle(*leaf)
            {
                probe.seen = Seen::Unknown;
                met = true;
            }
        }
        met
    }
}

impl Tracker for PteTracker {
    fn name(&self) -> &'static str {
        "pte"
    }

    fn prepare(&mut self, processes: &Processes, probes: &[Probe]) {
        self.follow_memory();
        // So that it is known when rounds begin.
        self.lists.follow(&self.root);
        self.marks.clear();
        self.rival.begin();
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

    fn can_sweep(&self) -> bool {
        true
    }

    fn sees_marks_taken(&self) -> bool {
        self.sees_young().is_ok()
    }

    fn news(&mut self, processes: &Processes) -> Vec<String> {
        // Our own walks take all marks off.
        if self.shared.is_some() {
            return Vec::new();
        }
        let Self {
            witnesses,
            tables,
            root,
            frames,
            ..
        } = self;
        Vec::from_iter(witnesses.look(tables, root, processes, frames.as_ref()))
    }

    fn as_pte(&mut self) -> Option<&mut PteTracker> {
        Some(self)
    }
}

fn same_target(a: &Probe, b: &Probe) -> bool {
    a.target == b.target
}

fn target_of(group: &[Probe]) -> TargetId {
    // `chunk_by` gives no empty groups.
    group.first().map_or(TargetId(u32::MAX), |probe| probe.target)
}

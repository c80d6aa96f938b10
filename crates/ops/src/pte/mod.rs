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
//! **Others who take marks off** (in-kernel DAMON, MGLRU's ageing, kswapd) note in the folio what they found:
//! *young* if the mark was set. That flag is not shown to user space; what is, is *idle* (KPF_IDLE), which DAMON
//! and the idle-page bitmap set when they take a mark off. So a page that became idle in this sense between our
//! two looks is unknown: somebody else has its mark. (If it was idle before already, that cannot be told.) Only a
//! sample of the probes is asked until somebody else was met: see `rival.rs` in this folder.
//! KPF_REFERENCED is no help: it tells of system calls.

mod active;
mod batch;
mod cleared;
mod leaf;
mod present;
mod rival;
mod shared;
mod sweep;
mod witness;

use std::os::fd::AsFd as _;
use std::path::PathBuf;

use thermo_bpf::{BpfError, Entry, Leaf, PageTables, WalkError};
use thermo_core::ops::{Probe, Seen};
use thermo_core::sweep::Preparation;
use thermo_core::{Addr, AddrRange, Nanos, TargetId};
use thermo_sys::kpageflags::{Flags, PageFrames};
use thermo_sys::pagemap::{Page, Pagemap};

use self::active::Active;
pub(crate) use self::batch::{advise, call_len, whole_ranges};
use self::cleared::Cleared;
use self::rival::Rival;
use self::shared::Shared;
use self::sweep::SweptChunks;
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

/// The tracker. See the module's text.
#[derive(Debug)]
pub struct PteTracker {
    tables: PageTables,
    root: PathBuf,
    frames: Option<PageFrames>,
    /// Whether this kernel can mark folios idle.
    has_idle_flag: bool,
    rival: Rival,
    /// One for each probe last prepared.
    marks: Vec<Mark>,
    cleared: Cleared,
    /// Where every mark was taken off by a sweep, while sweeps go on.
    swept: SweptChunks,
    /// What is done about memory whose marks cannot be taken off otherwise; none without consent.
    shared: Option<Shared>,
    /// What was active before a sweep and shall be again; none where nobody sorts the kernel's lists.
    active: Option<Active>,
    /// What shows that others take marks off.
    witnesses: Witnesses,
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
        Ok(Self {
            tables: PageTables::open()?,
            frames: PageFrames::open(&root).ok(),
            has_idle_flag: idle_users.iter().any(|user| root.join(user).exists()),
            root,
            rival: Rival::default(),
            marks: Vec::new(),
            cleared: Cleared::default(),
            swept: SweptChunks::default(),
            shared: None,
            active: None,
            witnesses: Witnesses::default(),
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

    /// Consents to walks that take the marks off pages which are mapped more than once and off locked mappings,
    /// each of at most `longest`; see `shared.rs` in this folder. Sweeps only.
    pub fn walk_shared(&mut self, longest: Nanos) {
        self.shared = Some(Shared::new(longest));
    }

    /// Has sweeps leave active pages active, for schemes that sort the kernel's lists; see `active.rs` in this folder.
    pub fn keep_active(&mut self) {
        self.active = Some(Active::default());
    }

    /// Does the next part of what comes before a round of sweeps, as [`Operations::prepare_round`].
    ///
    /// [`Operations::prepare_round`]: thermo_core::Operations::prepare_round
    pub fn prepare_round(&mut self, processes: &Processes, first: bool) -> Preparation {
        match &mut self.shared {
            Some(shared) => shared.prepare(&mut self.tables, &self.root, processes, first),
            None => Preparation::Ready,
        }
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
        self.tables.entries(process.pid, &self.addrs, &mut self.entries)?;
        let touched = self
            .addrs
            .iter()
            .zip(&self.entries)
            .filter_map(|(addr, entry)| match entry {
                Entry::Leaf(leaf) if leaf.accessed => {
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

    fn is_marked_idle(&self, leaf: Leaf) -> bool {
        let frames = self.frames.as_ref().filter(|_| self.has_idle_flag);
        frames
            .and_then(|frames| frames.flags(leaf.pfn).ok())
            .is_some_and(|flags| flags.is_idle())
    }

    /// True when `MADV_COLD` passes over this page without saying so.
    fn is_left_alone(&self, pagemap: Option<&Pagemap>, addr: Addr, leaf: Leaf) -> bool {
        let exclusive = pagemap
            .and_then(|map| map.page(addr).ok())
            .is_some_and(|page| page.is_exclusive());
        let on_no_list = self
            .frames
            .as_ref()
            .and_then(|frames| frames.flags(leaf.pfn).ok())
            .is_some_and(|flags| !flags.is_lru() || flags.is_zero_page());
        !exclusive || on_no_list
    }

    /// Prepares the probes of one process and pushes a mark for each.
    fn prepare_one(&mut self, process: &Process, probes: &[Probe]) {
        let first = self.marks.len();
        self.marks.resize(first + probes.len(), Mark::Unknown);
        self.addrs.clear();
        self.addrs.extend(probes.iter().map(|probe| probe.addr));
        if self
            .tables
            .entries(process.pid, &self.addrs, &mut self.entries)
            .is_err()
        {
            return;
        }
        self.read_flags();
        let (ranges, owners) = self.pieces_that_are_marked();
        let mut refused = vec![false; ranges.len()];
        let alive = batch::clear(process.pidfd.as_fd(), &ranges, &mut |n| refused[n] = true);
        if alive
            && self
                .tables
                .entries(process.pid, &self.addrs, &mut self.entries)
                .is_ok()
        {
            self.read_back(process, first, &owners, &refused);
        }
    }

    /// Looks up the frames of the entries just read: those that will be cleared, for the folio they belong to,
    /// and where frames can be marked idle a sample of the others.
    fn read_flags(&mut self) {
        let Self {
            flags,
            frames,
            entries,
            has_idle_flag,
            rival,
            ..
        } = self;
        let is_asked = |nth| *has_idle_flag && rival.asks(nth, entries.len());
        let of = |(nth, entry): (usize, &Entry)| match (entry, &*frames) {
            // A huge page is one piece, whatever its folio.
            (Entry::Leaf(leaf), Some(frames)) if (leaf.accessed && leaf.level == 0) || is_asked(nth) => {
                frames.flags(leaf.pfn).ok()
            }
            _ => None,
        };
        flags.clear();
        flags.extend(entries.iter().enumerate().map(of));
    }

    /// Decides, from what was just read, for which pieces of memory a call is needed. Returns them, and for each
    /// probe which of them is its.
    fn pieces_that_are_marked(&self) -> (Vec<AddrRange>, Vec<Option<usize>>) {
        let mut ranges: Vec<AddrRange> = Vec::new();
        let owner = |((addr, entry), flags): ((&Addr, &Entry), &Option<Flags>)| {
            let Entry::Leaf(leaf) = entry else { return None };
            if !leaf.accessed {
                return None;
            }
            let piece = leaf::piece(*addr, *leaf, flags.unwrap_or_default(), self.frames.as_ref())?;
            // Probes come in order: those that share a piece are neighbours.
            if ranges.last() != Some(&piece) {
                ranges.push(piece);
            }
            Some(ranges.len() - 1)
        };
        let owners = self
            .addrs
            .iter()
            .zip(&self.entries)
            .zip(&self.flags)
            .map(owner)
            .collect();
        (ranges, owners)
    }

    fn read_back(&mut self, process: &Process, first: usize, owners: &[Option<usize>], refused: &[bool]) {
        let pagemap = std::cell::OnceCell::new();
        let pagemap = || {
            let opened = pagemap.get_or_init(|| Pagemap::open(&self.root, process.pid).ok());
            opened.as_ref()
        };
        for (n, (entry, owner)) in self.entries.iter().zip(owners).enumerate() {
            let addr = self.addrs[n];
            let was_refused = owner.is_some_and(|owner| refused[owner]);
            self.marks[first + n] = match entry {
                Entry::Absent(_) => Mark::Off { idle: Some(false) },
                Entry::Leaf(leaf) if leaf.level > 1 || was_refused => Mark::Unknown,
                Entry::Leaf(leaf) if leaf.accessed && self.is_left_alone(pagemap(), addr, *leaf) => {
                    self.witnesses.add(process.id, addr, *leaf);
                    Mark::Unknown
                }
                Entry::Leaf(leaf) => {
                    self.cleared
                        .insert(process.id, Addr(addr.0 & !(leaf.len().0 - 1)));
                    Mark::Off {
                        idle: self.flags[n].map(Flags::is_idle),
                    }
                }
                Entry::Table | Entry::Unreadable => Mark::Unknown,
            };
        }
        // A number that was given to another process in the meantime: what was read is not the target's.
        if !process.is_alive() {
            self.marks[first..].fill(Mark::Unknown);
        }
    }

    fn check_one(&mut self, process: &Process, first: usize, probes: &mut [Probe]) {
        self.addrs.clear();
        self.addrs.extend(probes.iter().map(|probe| probe.addr));
        if self
            .tables
            .entries(process.pid, &self.addrs, &mut self.entries)
            .is_err()
            || !process.is_alive()
        {
            return;
        }
        for (n, probe) in probes.iter_mut().enumerate() {
            let Some(Mark::Off { .. }) = self.marks.get(first + n) else {
                continue;
            };
            probe.seen = match self.entries[n] {
                Entry::Leaf(leaf) if leaf.accessed => Seen::Accessed,
                Entry::Leaf(_) | Entry::Absent(_) => Seen::Idle,
                Entry::Table | Entry::Unreadable => Seen::Unknown,
            };
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
        self.marks.clear();
        self.rival.begin();
        // Samples are looked at again: from now on most pages keep marks that are old.
        self.swept.clear();
        for group in probes.chunk_by(same_target) {
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

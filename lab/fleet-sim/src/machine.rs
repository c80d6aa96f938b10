//! The simulated target behind the engine's operations: scans read and clear accessed bits, and `pageout`
//! takes pages out of memory.

use thermo_engine::access_tables::Backing;
use thermo_engine::ops::{Applied, CheckResult, Outcome, Probe, Request, Skip, TargetRange};
use thermo_engine::scan::ScanChunk;
use thermo_engine::scheme::SystemMetric;
use thermo_engine::{Action, Operations, OpsError, TargetId, TargetLayout};
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};

use crate::memory::{Bitmap, Memory, PAGES};

/// Where the pages of a target are mapped: at the start of a chunk of the engine.
const START: u64 = 1 << 30;
/// All pages.
const RANGE: AddrRange = AddrRange::new(START, START + PAGES as u64 * PAGE_SIZE);

/// A machine with one target.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) memory: Memory,
    /// False if the machine has no swap: only pages of files can leave.
    pub(crate) has_swap: bool,
    /// Decide, but do not act.
    pub(crate) is_dry_run: bool,
    /// CPU time of a pass.
    pub(crate) pass_cost: Nanos,
    /// CPU time spent on scans so far.
    pub(crate) spent: Nanos,
    /// Dry run: pages that would have been paged out since this was last taken.
    pub(crate) nr_would_page_out: u64,
}

impl Machine {
    /// Pages out one page, or counts why not.
    fn page_out(&mut self, page: usize, applied: &mut Applied) {
        const PAGE: Bytes = Bytes(PAGE_SIZE);
        let is = |bitmap: &Bitmap| Memory::is_set(bitmap, page);
        let reason = if !is(&self.memory.present) {
            Some(Skip::NotPresent)
        } else if is(&self.memory.shared) {
            Some(Skip::Shared)
        } else if is(&self.memory.accessed) {
            Some(Skip::Young)
        } else if !self.has_swap && !is(&self.memory.file) {
            Some(Skip::SwapFloor)
        } else if self.is_dry_run {
            self.nr_would_page_out += 1;
            Some(Skip::DryRun)
        } else {
            None
        };
        applied.passed_filters += PAGE;
        if let Some(reason) = reason {
            return applied.skip(reason, PAGE);
        }
        self.memory.page_out(page);
        applied.applied += PAGE;
        applied.changed = applied.changed.map(|changed| changed + PAGE);
    }
}

/// The pages of `range`.
fn pages(range: AddrRange) -> std::ops::Range<usize> {
    let nth = |addr: Addr| (addr.0.saturating_sub(START) / PAGE_SIZE).min(PAGES as u64) as usize;
    nth(range.start)..nth(range.end)
}

/// The mappings, each with its backing: runs of file pages, and of others.
fn backings(memory: &Memory) -> Vec<(AddrRange, Backing)> {
    let mut backings: Vec<(AddrRange, Backing)> = Vec::new();
    for page in 0..PAGES {
        let start = START + page as u64 * PAGE_SIZE;
        let backing = match Memory::is_set(&memory.file, page) {
            true => Backing::File,
            false => Backing::Anon,
        };
        match backings.last_mut().filter(|(_, last)| *last == backing) {
            Some((range, _)) => range.end.0 += PAGE_SIZE,
            None => backings.push((AddrRange::new(start, start + PAGE_SIZE), backing)),
        }
    }
    backings
}

impl Operations for Machine {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let layout = TargetLayout::new(TargetId(0), None, vec![RANGE]);
        Ok(vec![TargetLayout {
            backings: backings(&self.memory).into(),
            ..layout
        }])
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        for page in probes
            .iter()
            .flat_map(|probe| pages(AddrRange::new(probe.addr.0, probe.addr.0 + PAGE_SIZE)))
        {
            self.memory.accessed[page / 64] &= !(1 << (page % 64));
        }
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        for probe in probes {
            let mut pages = pages(AddrRange::new(probe.addr.0, probe.addr.0 + PAGE_SIZE));
            probe.result = match pages.any(|page| Memory::is_set(&self.memory.accessed, page)) {
                true => CheckResult::Accessed,
                false => CheckResult::Idle,
            };
        }
    }

    fn can_scan(&self) -> bool {
        true
    }

    fn scan(&mut self, run: &TargetRange, chunk: &mut ScanChunk) -> Addr {
        let memory = &mut self.memory;
        let words = pages(run.range);
        self.spent += Nanos(self.pass_cost.0 * words.len() as u64 / PAGES as u64);
        for word in words.start / 64..words.end.div_ceil(64) {
            let addr = |bit: u64| Addr(START + (word as u64 * 64 + bit) * PAGE_SIZE);
            let (present, shared) = (memory.present[word], memory.shared[word]);
            chunk.set_pages(addr(0), present & !shared, memory.accessed[word] & !shared);
            let unknown = (0..64).filter(|bit| (present & shared) >> bit & 1 == 1);
            unknown.for_each(|bit| chunk.set_unknown(addr(bit)));
            memory.accessed[word] &= shared;
        }
        run.range.end
    }

    fn any_target_left(&mut self) -> bool {
        true
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        if request.action != Action::Pageout {
            return Err(OpsError::Unsupported {
                what: request.action.name().into(),
                why: "a simulated fleet only pages out".into(),
            });
        }
        let mut results = Vec::with_capacity(request.ranges.len());
        for run in request.ranges {
            let mut applied = Applied {
                changed: Some(Bytes::ZERO),
                ..Applied::default()
            };
            pages(run.range).for_each(|page| self.page_out(page, &mut applied));
            results.push(applied);
        }
        Ok(Outcome {
            results,
            ..Outcome::default()
        })
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        Err(OpsError::Unsupported {
            what: format!("{metric:?}"),
            why: "a simulated fleet has no metrics".into(),
        })
    }
}

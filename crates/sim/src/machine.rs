//! A machine whose processes consist of pages, with the operations of a tracker and an actor.

use std::collections::BTreeMap;

use thermo_engine::ops::{Applied, CheckResult, NodeCount, Outcome, Probe, Request, Skip, TargetRange};
use thermo_engine::scan::ScanChunk;
use thermo_engine::scheme::{Destination, OpsFilter, OpsFilterKind, SystemMetric, node_of};
use thermo_engine::{Action, Operations, OpsError, TargetId, TargetLayout};
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};

use crate::SimulatedMachine;
use crate::page::{Page, PageLocation};

/// A machine with processes.
#[derive(Debug, Default)]
pub struct Machine {
    processes: BTreeMap<TargetId, Process>,
    next_id: u32,
    /// Values of [`Operations::metric`]; missing metrics are unsupported.
    pub metrics: BTreeMap<SystemMetric, u64>,
    /// The memory nodes, with the bytes of each; empty: one node without a limit, so that nothing can
    /// migrate.
    pub nodes: BTreeMap<u32, Bytes>,
    /// CPU time of an action per page, which time quotas limit.
    pub cost_per_page: Nanos,
    /// Whether pages can be scanned.
    pub scans: bool,
    /// Whether resident sizes are known.
    pub knows_resident: bool,
    /// CPU time of a probe.
    pub cost_of_probing: Nanos,
    /// CPU time of scanning a page.
    pub cost_of_scanning: Nanos,
    /// CPU time spent on monitoring so far, which a budget limits.
    pub spent_monitoring: Nanos,
}

#[derive(Debug, Default)]
struct Process {
    /// Mapped memory by start address.
    mappings: BTreeMap<Addr, Vec<Page>>,
}

impl Process {
    /// The mapped pages of `range`, ascending.
    fn pages_in(&mut self, range: AddrRange) -> impl Iterator<Item = (Addr, &mut Page)> {
        self.mappings.iter_mut().flat_map(move |(start, pages)| {
            let nth = |addr: Addr| {
                usize::try_from(addr.0.saturating_sub(start.0).div_ceil(PAGE_SIZE)).unwrap_or(usize::MAX)
            };
            let (first, end) = (nth(range.start).min(pages.len()), nth(range.end).min(pages.len()));
            let addrs = (start.0 + first as u64 * PAGE_SIZE..).step_by(4096).map(Addr);
            addrs.zip(&mut pages[first..end.max(first)])
        })
    }
}

impl Machine {
    /// A machine without processes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a process with these mappings (page-aligned, disjoint); all pages are absent.
    pub fn spawn(&mut self, mappings: &[AddrRange]) -> TargetId {
        let id = TargetId(self.next_id);
        self.next_id += 1;
        self.processes.insert(id, Process::default());
        for mapping in mappings {
            self.map(id, *mapping);
        }
        id
    }

    /// Maps more memory into a process.
    pub fn map(&mut self, id: TargetId, range: AddrRange) {
        let pages = vec![Page::default(); usize::try_from(range.len().0 / PAGE_SIZE).unwrap_or(0)];
        if let Some(process) = self.processes.get_mut(&id) {
            process.mappings.insert(range.start, pages);
        }
    }

    /// Unmaps the mapping that starts at `start`.
    pub fn unmap(&mut self, id: TargetId, start: Addr) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.mappings.remove(&start);
        }
    }

    /// Ends a process.
    pub fn kill(&mut self, id: TargetId) {
        self.processes.remove(&id);
    }

    /// Lets the process touch every mapped page of `range`.
    pub fn touch(&mut self, id: TargetId, range: AddrRange) {
        self.change(id, range, Page::touch);
    }

    /// Applies `change` to every mapped page of `range`.
    pub fn change(&mut self, id: TargetId, range: AddrRange, mut change: impl FnMut(&mut Page)) {
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        for (_, page) in process.pages_in(range) {
            change(page);
        }
    }

    /// The number of mapped pages of `range` for which `wanted` is true.
    #[must_use]
    pub fn count(&self, id: TargetId, range: AddrRange, mut wanted: impl FnMut(&Page) -> bool) -> u64 {
        let Some(process) = self.processes.get(&id) else {
            return 0;
        };
        let pages = process
            .mappings
            .iter()
            .flat_map(|(start, pages)| (start.0..).step_by(4096).zip(pages));
        pages
            .filter(|(addr, page)| range.contains(Addr(*addr)) && wanted(page))
            .count() as u64
    }

    /// Present memory on node `nid`.
    #[must_use]
    pub fn used_on(&self, nid: u32) -> Bytes {
        let mappings = self
            .processes
            .values()
            .flat_map(|process| process.mappings.values());
        let on_node = |page: &&Page| page.location == PageLocation::Present && page.node == nid;
        Bytes(mappings.flatten().filter(on_node).count() as u64 * PAGE_SIZE)
    }

    fn check_nodes(&self, destinations: &[Destination]) -> Result<(), OpsError> {
        let missing = destinations
            .iter()
            .find(|node| !self.nodes.contains_key(&node.nid));
        let Some(missing) = missing else { return Ok(()) };
        Err(OpsError::Unsupported {
            what: format!("migration to node {}", missing.nid),
            why: format!(
                "the simulated machine has {} memory nodes, and not this one",
                self.nodes.len()
            ),
        })
    }

    /// Moves the pages of `run` to their nodes while these have free memory.
    fn migrate(&mut self, run: &TargetRange, filters: &[OpsFilter], destinations: &[Destination]) -> Applied {
        const PAGE: Bytes = Bytes(PAGE_SIZE);
        let mut applied = Applied {
            changed: Some(Bytes::ZERO),
            ..Applied::default()
        };
        let mut free: BTreeMap<u32, Bytes> = self
            .nodes
            .iter()
            .map(|(nid, total)| (*nid, total.saturating_sub(self.used_on(*nid))))
            .collect();
        let Some(process) = self.processes.get_mut(&run.target) else {
            applied.skip(Skip::TargetGone, run.range.len());
            return applied;
        };
        let mut mapped = Bytes::ZERO;
        for (addr, page) in process.pages_in(run.range) {
            mapped += PAGE;
            let why = match node_of(destinations, addr, PAGE_SIZE) {
                _ if page.location != PageLocation::Present => Some(Skip::NotPresent),
                _ if !passes(page, filters) => Some(Skip::Filtered),
                _ if page.shared => Some(Skip::Shared),
                Some(node) if node == page.node => Some(Skip::OnNode),
                Some(node) => match free.get_mut(&node) {
                    Some(free) if *free >= PAGE => {
                        *free -= PAGE;
                        page.node = node;
                        None
                    }
                    _ => Some(Skip::NodeFull),
                },
                None => Some(Skip::Refused),
            };
            match why {
                Some(why) => applied.skip(why, PAGE),
                None => {
                    applied.passed_filters += PAGE;
                    applied.applied += PAGE;
                    applied.changed = applied.changed.map(|changed| changed + PAGE);
                }
            }
        }
        applied.skip(Skip::NotPresent, run.range.len() - mapped);
        applied
    }

    fn page(&mut self, id: TargetId, addr: Addr) -> Option<&mut Page> {
        let (start, pages) = self
            .processes
            .get_mut(&id)?
            .mappings
            .range_mut(..=addr)
            .next_back()?;
        pages.get_mut(usize::try_from((addr - *start).0 / PAGE_SIZE).ok()?)
    }

    fn apply_to(&mut self, run: &TargetRange, action: Action, filters: &[OpsFilter]) -> Applied {
        let mut applied = Applied {
            changed: Some(Bytes::ZERO),
            ..Applied::default()
        };
        if !self.processes.contains_key(&run.target) {
            applied.skip(Skip::TargetGone, run.range.len());
            return applied;
        }
        let mut mapped = Bytes::ZERO;
        self.change(run.target, run.range, |page| {
            mapped += Bytes(PAGE_SIZE);
            act(page, action, filters, &mut applied);
        });
        applied.skip(Skip::NotPresent, run.range.len() - mapped);
        applied
    }
}

/// Applies `action` to one page and counts the result.
fn act(page: &mut Page, action: Action, filters: &[OpsFilter], applied: &mut Applied) {
    const PAGE: Bytes = Bytes(PAGE_SIZE);
    let wants_swapped = action == Action::Willneed;
    if page.location == PageLocation::Absent || (page.location == PageLocation::Swapped) != wants_swapped {
        return applied.skip(Skip::NotPresent, PAGE);
    }
    if !passes(page, filters) {
        return applied.skip(Skip::Filtered, PAGE);
    }
    applied.passed_filters += PAGE;
    if page.shared {
        return applied.skip(Skip::Shared, PAGE);
    }
    if action == Action::Pageout && page.accessed {
        return applied.skip(Skip::Young, PAGE);
    }
    let before = *page;
    match action {
        Action::Pageout => page.location = PageLocation::Swapped,
        Action::Willneed => page.location = PageLocation::Present,
        Action::Cold | Action::LruDeprio => (page.accessed, page.active) = (false, false),
        Action::LruPrio => page.active = true,
        _ => return,
    }
    applied.applied += PAGE;
    if *page != before {
        applied.changed = applied.changed.map(|changed| changed + PAGE);
    }
}

/// Whether a page passes the filters. The first filter that applies to the page decides. If none applies, the
/// page is rejected when the last filter allows, and passes otherwise.
fn passes(page: &Page, filters: &[OpsFilter]) -> bool {
    let holds = |kind: &OpsFilterKind| match kind {
        OpsFilterKind::Anon => true,
        OpsFilterKind::Young => page.accessed,
        OpsFilterKind::Active => page.active,
        OpsFilterKind::Memcg(_) | OpsFilterKind::HugepageSize { .. } | OpsFilterKind::Unmapped => false,
    };
    match filters
        .iter()
        .find(|filter| holds(&filter.kind) == filter.matching)
    {
        Some(filter) => filter.allow,
        None => !filters.last().is_some_and(|last| last.allow),
    }
}

impl SimulatedMachine for Machine {
    fn spent_monitoring(&self) -> Nanos {
        self.spent_monitoring
    }
}

impl Operations for Machine {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        let layout = |(id, process): (&TargetId, &Process)| {
            let ranges = process.mappings.iter().map(|(start, pages)| AddrRange {
                start: *start,
                end: Addr(start.0 + pages.len() as u64 * PAGE_SIZE),
            });
            let resident = || {
                let pages = process.mappings.values().flatten();
                let count = pages
                    .filter(|page| page.location == PageLocation::Present)
                    .count();
                Bytes(count as u64 * PAGE_SIZE)
            };
            TargetLayout {
                resident: self.knows_resident.then(resident),
                ..TargetLayout::new(*id, None, ranges.collect())
            }
        };
        Ok(self.processes.iter().map(layout).collect())
    }

    fn prepare_access_checks(&mut self, probes: &[Probe]) {
        self.spent_monitoring += self.cost_of_probing * probes.len() as u64;
        for probe in probes {
            if let Some(page) = self.page(probe.target, probe.addr).filter(|page| !page.shared) {
                page.accessed = false;
            }
        }
    }

    fn check_accesses(&mut self, probes: &mut [Probe]) {
        for probe in probes {
            probe.result = match self.page(probe.target, probe.addr) {
                Some(page) if page.shared => CheckResult::Unknown,
                Some(page) if page.accessed => CheckResult::Accessed,
                _ => CheckResult::Idle,
            };
        }
    }

    fn can_scan(&self) -> bool {
        self.scans
    }

    fn scan(&mut self, run: &TargetRange, chunk: &mut ScanChunk) -> Addr {
        let Some(process) = self.processes.get_mut(&run.target) else {
            return run.range.end;
        };
        let mut scanned = 0;
        for (addr, page) in process.pages_in(run.range) {
            match page {
                Page {
                    location: PageLocation::Absent | PageLocation::Swapped,
                    ..
                } => continue,
                Page { shared: true, .. } => chunk.set_unknown(addr),
                page => chunk.set(addr, std::mem::take(&mut page.accessed)),
            }
            scanned += 1;
        }
        self.spent_monitoring += self.cost_of_scanning * scanned;
        run.range.end
    }

    fn any_target_left(&mut self) -> bool {
        !self.processes.is_empty()
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        let Request {
            action,
            ranges: runs,
            filters,
            destinations,
        } = *request;
        if action.migrates() {
            self.check_nodes(destinations)?;
        }
        let runs: Vec<Applied> = runs
            .iter()
            .map(|run| match action.migrates() {
                true => self.migrate(run, filters, destinations),
                false => self.apply_to(run, action, filters),
            })
            .collect();
        let pages: u64 = runs.iter().map(|run| run.applied.0 / PAGE_SIZE).sum();
        Ok(Outcome {
            results: runs,
            spent: self.cost_per_page * pages,
            notes: Vec::new(),
        })
    }

    fn pending(&mut self, action: Action, destinations: &[Destination], run: &TargetRange) -> Vec<AddrRange> {
        if !action.migrates() {
            return vec![run.range];
        }
        let mut pending = Vec::new();
        let Some(process) = self.processes.get_mut(&run.target) else {
            return pending;
        };
        for (addr, page) in process.pages_in(run.range) {
            let node = node_of(destinations, addr, PAGE_SIZE);
            if page.location == PageLocation::Present && node.is_some_and(|node| node != page.node) {
                AddrRange::new(addr.0, addr.0 + PAGE_SIZE).coalesce_into(&mut pending);
            }
        }
        pending
    }

    fn count_on_node(&mut self, nid: u32, pages: &[(TargetId, Addr)]) -> Result<NodeCount, OpsError> {
        self.check_nodes(&[Destination::only(nid)])?;
        let mut count = NodeCount::default();
        for (id, addr) in pages {
            let page = self.page(*id, *addr);
            if let Some(page) = page.filter(|page| page.location == PageLocation::Present) {
                count.resident += 1;
                count.on_node += u64::from(page.node == nid);
            }
        }
        Ok(count)
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        let node = match metric {
            SystemMetric::NodeMemUsedBp { nid } | SystemMetric::NodeMemFreeBp { nid } => Some(*nid),
            _ => None,
        };
        if let Some((nid, total)) = node.and_then(|nid| Some((nid, *self.nodes.get(&nid)?))) {
            let used = self.used_on(nid).0 * 10_000 / total.0.max(1);
            let is_used = matches!(metric, SystemMetric::NodeMemUsedBp { .. });
            return Ok(if is_used {
                used
            } else {
                10_000_u64.saturating_sub(used)
            });
        }
        self.metrics
            .get(metric)
            .copied()
            .ok_or_else(|| OpsError::Unsupported {
                what: format!("{metric:?}"),
                why: "the simulated machine has no value for it".into(),
            })
    }
}

//! A test bench for schemes: scheme states, targets, and a machine that logs all requests.

use std::collections::BTreeMap;

use thermo_engine::ops::{Applied, NodeCount, Outcome, Probe, Request, Skip, TargetRange};
use thermo_engine::scheme::{
    ApplyInput, ApplyTrigger, Destination, Goal, Scheme, SchemeState, SystemMetric, TargetMut, apply_schemes,
    check_watermarks,
};
use thermo_engine::sink::TriedRegion;
use thermo_engine::{Action, Attrs, Event, Operations, OpsError, Region, TargetId, TargetLayout};
use thermo_units::{Addr, AddrRange, Bytes, Nanos, PAGE_SIZE};

/// Target, first page and end page.
pub type PageRange = (u32, u64, u64);

/// A request to the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    pub action: Action,
    pub ranges: Vec<PageRange>,
    pub filtered: bool,
}

/// Applies each action to half of each range, and logs requests.
#[derive(Debug, Default)]
pub struct LoggingMachine {
    pub requests: Vec<LoggedRequest>,
    pub metrics: BTreeMap<SystemMetric, u64>,
    pub cost_per_page: Nanos,
    pub refuses: bool,
    /// Huge pages that are already in the wanted state.
    pub done: Vec<AddrRange>,
    pub notes: Vec<String>,
    /// Memory on node 0. The rest is on node 1.
    pub on_node_0: Vec<AddrRange>,
    /// The target on which actions are held back.
    pub held: Option<TargetId>,
}

impl Operations for LoggingMachine {
    fn update(&mut self) -> Result<Vec<TargetLayout>, OpsError> {
        Ok(Vec::new())
    }

    fn prepare_access_checks(&mut self, _: &[Probe]) {}

    fn check_accesses(&mut self, _: &mut [Probe]) {}

    fn is_held(&self, target: TargetId) -> bool {
        self.held == Some(target)
    }

    fn any_target_left(&mut self) -> bool {
        true
    }

    fn pending(&mut self, action: Action, _: &[Destination], run: &TargetRange) -> Vec<AddrRange> {
        let unit = action.unit().0;
        let mut pending: Vec<AddrRange> = Vec::new();
        for start in (run.range.start.0..run.range.end.0).step_by(unit as usize) {
            let unit = AddrRange::new(start, start + unit);
            assert_eq!((start % unit.len().0, unit.end <= run.range.end), (0, true));
            if !self.done.iter().any(|done| done.overlaps(&unit)) {
                unit.coalesce_into(&mut pending);
            }
        }
        pending
    }

    fn count_on_node(&mut self, nid: u32, pages: &[(TargetId, Addr)]) -> Result<NodeCount, OpsError> {
        if nid > 1 {
            return Err(OpsError::Unsupported {
                what: format!("node {nid}"),
                why: "the machine has nodes 0 and 1".into(),
            });
        }
        let is_on_0 = |addr: Addr| self.on_node_0.iter().any(|range| range.contains(addr));
        let on_node = pages.iter().filter(|(_, addr)| is_on_0(*addr) == (nid == 0));
        Ok(NodeCount {
            resident: pages.len() as u64,
            on_node: on_node.count() as u64,
        })
    }

    fn apply(&mut self, request: &Request<'_>) -> Result<Outcome, OpsError> {
        let ranges: Vec<PageRange> = request
            .ranges
            .iter()
            .map(|run| page_range(run.target, run.range))
            .collect();
        let filtered = !request.filters.is_empty();
        self.requests.push(LoggedRequest {
            action: request.action,
            ranges,
            filtered,
        });
        if self.refuses {
            return Err(OpsError::Unsupported {
                what: "this".into(),
                why: "the test disables it".into(),
            });
        }
        let half = |len: Bytes| {
            let half = Bytes(len.0 / 2);
            let mut applied = Applied {
                passed_filters: len,
                applied: half,
                ..Applied::default()
            };
            applied.changed = Some(half);
            applied.skip(Skip::Young, len - half);
            applied
        };
        let pages: u64 = request
            .ranges
            .iter()
            .map(|run| run.range.len().0 / PAGE_SIZE)
            .sum();
        let runs = request.ranges.iter().map(|run| half(run.range.len())).collect();
        Ok(Outcome {
            results: runs,
            spent: Nanos(self.cost_per_page.0 * pages),
            notes: self.notes.clone(),
        })
    }

    fn metric(&mut self, metric: &SystemMetric) -> Result<u64, OpsError> {
        let missing = || OpsError::Unsupported {
            what: format!("{metric:?}"),
            why: "the test disables it".into(),
        };
        self.metrics.get(metric).copied().ok_or_else(missing)
    }
}

pub fn page_range(target: TargetId, range: AddrRange) -> PageRange {
    (target.0, range.start.0 / PAGE_SIZE, range.end.0 / PAGE_SIZE)
}

/// A region of the pages `start..end`. 20 access checks and 100 ms in an aggregation.
pub fn region(start: u64, end: u64, nr_accesses: u32, age: u32) -> Region {
    let range = AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE);
    Region {
        nr_accesses_bp: u64::from(nr_accesses) * 10_000,
        age,
        ..Region::new(range)
    }
}

/// Schemes, targets, a machine, and the events that the sink got.
#[derive(Default)]
pub struct Bench {
    pub states: Vec<SchemeState>,
    pub targets: Vec<(TargetId, Vec<Region>)>,
    pub machine: LoggingMachine,
    pub warnings: Vec<String>,
    pub activity: Vec<(usize, bool, u64)>,
    pub tried: Vec<Vec<TriedRegion>>,
    pub skipped: Vec<(Skip, Bytes)>,
    passed: u64,
}

impl Bench {
    pub fn new(scheme: Scheme, targets: &[&[Region]]) -> Self {
        let targets = (0..)
            .map(TargetId)
            .zip(targets.iter().map(|regions| regions.to_vec()))
            .collect();
        Self {
            states: vec![SchemeState::new(scheme)],
            targets,
            ..Self::default()
        }
    }

    /// Applies all schemes that are due one aggregation later, at `now`. Returns the requests.
    pub fn apply_at(&mut self, now: Nanos) -> Vec<LoggedRequest> {
        let attrs = Attrs::default();
        self.passed += 20;
        let input = ApplyInput {
            now,
            passed_sample_intervals: self.passed,
            attrs: &attrs,
            trigger: ApplyTrigger::ApplyInterval,
        };
        let mut targets: Vec<TargetMut<'_>> = self
            .targets
            .iter_mut()
            .map(|(id, regions)| TargetMut { id: *id, regions })
            .collect();
        let (warnings, tried_log, skip_log) = (&mut self.warnings, &mut self.tried, &mut self.skipped);
        let mut sink = |event: &Event<'_>| match event {
            Event::Warning { text, .. } => warnings.push((*text).to_owned()),
            Event::SchemeApplied { tried, skipped, .. } => {
                tried_log.push(tried.to_vec());
                *skip_log = skipped.to_vec();
            }
            other => panic!("unexpected event {other:?}"),
        };
        apply_schemes(
            &mut self.states,
            &mut targets,
            &input,
            &mut self.machine,
            &mut sink,
        );
        std::mem::take(&mut self.machine.requests)
    }

    /// Commits the scheme with this value of its `user_input` goals.
    pub fn set_user_input(&mut self, value: u64) {
        let mut scheme = self.states[0].scheme().clone();
        for goal in &mut scheme.quota.goals {
            if let Goal::UserInput { current, .. } = goal {
                *current = value;
            }
        }
        self.states[0].commit(scheme, &Attrs::default(), self.passed);
    }

    /// Applies as [`Self::apply_at`]. Returns the ranges of the only request; empty without a request.
    pub fn ranges_at(&mut self, now: Nanos) -> Vec<PageRange> {
        let requests = self.apply_at(now);
        assert!(requests.len() <= 1, "one request for each scheme: {requests:?}");
        requests.into_iter().flat_map(|request| request.ranges).collect()
    }

    /// Checks the watermarks with `free` thousandths of memory free.
    pub fn check_watermarks_at(&mut self, now: Nanos, free: u64) -> Option<Nanos> {
        self.machine.metrics.insert(SystemMetric::FreeMemRate, free);
        let (warnings, activity) = (&mut self.warnings, &mut self.activity);
        let mut sink = |event: &Event<'_>| match event {
            Event::Warning { text, .. } => warnings.push((*text).to_owned()),
            Event::SchemeActive {
                scheme,
                active,
                metric,
                ..
            } => activity.push((*scheme, *active, *metric)),
            other => panic!("unexpected event {other:?}"),
        };
        check_watermarks(&mut self.states, now, &mut self.machine, &mut sink)
    }

    /// First page and age of all regions.
    pub fn ages(&self) -> Vec<(u64, u32)> {
        let regions = self.targets.iter().flat_map(|(_, regions)| regions);
        regions
            .map(|region| (region.range.start.0 / PAGE_SIZE, region.age))
            .collect()
    }
}

//! The replay of one scheme file: at each snapshot the engine applies the schemes to the replayed machine.

use thermo_engine::scheme::{
    Age, ApplyInput, ApplyTrigger, CoreFilterKind, Scheme, SchemeState, TargetMut, apply_schemes,
    check_watermarks,
};
use thermo_engine::{Action, Attrs, Event, Region, Sink, TargetId};
use thermo_recording::model::Snapshot;
use thermo_units::{Bytes, Nanos, PAGE_SIZE};

use crate::machine::{Detail, ReplayedMachine, is_compressed};
use crate::target::{BACKINGS, TargetView};
use crate::timeline::{Left, Timeline};

/// One scheme file being replayed.
#[derive(Debug)]
pub struct Policy {
    pub name: String,
    pub states: Vec<SchemeState>,
    machine: ReplayedMachine,
    /// Sampling intervals since the start: the engine's schedule of apply intervals.
    passed: u64,
    /// The regions of the last snapshot. A scheme stopped by its quota continues with them.
    regions: Vec<(TargetId, Vec<Region>)>,
    attrs: Attrs,
    now: Option<Nanos>,
    pub timeline: Timeline,
    pub warnings: Warnings,
    /// Time for which watermarks deactivated each scheme.
    pub inactive: Vec<Nanos>,
    /// The coarsest detail of all snapshots.
    pub detail: Option<Detail>,
}

/// The engine's warnings, each once.
#[derive(Debug, Default)]
pub struct Warnings(pub Vec<String>);

impl Sink for Warnings {
    fn on(&mut self, event: &Event<'_>) {
        if let Event::Warning { text, .. } = event {
            self.0.push((*text).to_owned());
        }
    }
}

impl Policy {
    pub fn new(name: String, schemes: Vec<Scheme>, pageout_cost_per_mib: Nanos) -> Self {
        let needs_regions = schemes.iter().any(tests_regions);
        Self {
            name,
            inactive: vec![Nanos::ZERO; schemes.len()],
            states: schemes.into_iter().map(SchemeState::new).collect(),
            machine: ReplayedMachine::new(needs_regions, pageout_cost_per_mib),
            passed: 0,
            regions: Vec::new(),
            attrs: Attrs::default(),
            now: None,
            timeline: Timeline::default(),
            warnings: Warnings::default(),
            detail: None,
        }
    }

    /// Replays the next snapshot. `free`: free memory of the machine in thousandths, if recorded.
    pub fn add(&mut self, snapshot: &Snapshot, views: &[TargetView<'_>], free: Option<u64>) {
        let now = Nanos(snapshot.time_ns);
        self.machine.free = free;
        self.apply_in_windows_before(now);
        let refaults = self.machine.follow(views);
        self.detail = self.detail.max(self.machine.detail());
        self.attrs = attrs(snapshot);
        self.passed += u64::from(snapshot.max_nr_accesses.max(1));
        check_watermarks(&mut self.states, now, &mut self.machine, &mut self.warnings);
        self.count_inactive(now);
        self.regions = self.machine.regions(views);
        self.apply(ApplyTrigger::ApplyInterval, now);
        self.timeline.add(now, refaults, self.left());
        self.now = Some(now);
    }

    /// Applies schemes that a quota stopped, at each start of a window before `now`, as the live engine does
    /// between two snapshots.
    fn apply_in_windows_before(&mut self, now: Nanos) {
        while let Some(start) = self.next_window().filter(|start| *start < now) {
            check_watermarks(&mut self.states, start, &mut self.machine, &mut self.warnings);
            let tried = self.bytes_tried();
            self.apply(ApplyTrigger::QuotaWindow, start);
            if self.bytes_tried() == tried {
                // Nothing is left to try until the next snapshot.
                break;
            }
        }
    }

    fn next_window(&self) -> Option<Nanos> {
        self.states
            .iter()
            .filter_map(SchemeState::next_window_start)
            .min()
    }

    fn bytes_tried(&self) -> Bytes {
        self.states.iter().map(|state| state.stats().sz_tried).sum()
    }

    fn apply(&mut self, trigger: ApplyTrigger, now: Nanos) {
        let regions = self.regions.iter_mut();
        let mut targets: Vec<TargetMut<'_>> = regions
            .map(|(id, regions)| TargetMut { id: *id, regions })
            .collect();
        let input = ApplyInput {
            trigger,
            now,
            passed_sample_intervals: self.passed,
            attrs: &self.attrs,
        };
        apply_schemes(
            &mut self.states,
            &mut targets,
            &input,
            &mut self.machine,
            &mut self.warnings,
        );
    }

    fn count_inactive(&mut self, now: Nanos) {
        let elapsed = now.saturating_sub(self.now.unwrap_or(now));
        for (state, inactive) in self.states.iter().zip(&mut self.inactive) {
            if !state.is_active() {
                *inactive = inactive.saturating_add(elapsed);
            }
        }
    }

    /// True if a scheme tests addresses or sizes of regions.
    pub fn needs_regions(&self) -> bool {
        self.states.iter().any(|state| tests_regions(state.scheme()))
    }

    fn left(&self) -> Left {
        let mut left = Left::default();
        for (backing, bytes) in BACKINGS.into_iter().zip(self.machine.out()) {
            left.bytes += bytes;
            left.compressed += if is_compressed(backing) { bytes } else { 0 };
        }
        left
    }

    /// The longest minimum age of a scheme that pages out, and the index of that scheme: before it has
    /// passed, no memory of the recording is known to be old enough.
    pub fn warm_up(&self, aggr: Nanos) -> Option<(Nanos, usize)> {
        let schemes = self.states.iter().map(SchemeState::scheme).enumerate();
        let pageout = schemes.filter(|(_, scheme)| scheme.action == Action::Pageout);
        pageout
            .map(|(index, scheme)| (min_age(scheme, aggr), index))
            .max()
    }
}

/// True if `scheme` tests something that idle ages do not have: addresses, or the size of regions.
fn tests_regions(scheme: &Scheme) -> bool {
    let is_addr = |kind: &CoreFilterKind| matches!(kind, CoreFilterKind::Addr(_));
    let tests_size = scheme.pattern.sz.min > Bytes(PAGE_SIZE) || scheme.pattern.sz.max < Bytes::MAX;
    tests_size || scheme.filters.core.iter().any(|filter| is_addr(&filter.kind))
}

fn min_age(scheme: &Scheme, aggr: Nanos) -> Nanos {
    match scheme.pattern.age.min {
        Age::Time(age) => age,
        Age::Aggrs(aggrs) => aggr * u64::from(aggrs),
    }
}

/// The attributes with which `snapshot` was taken.
fn attrs(snapshot: &Snapshot) -> Attrs {
    let aggr = Nanos(snapshot.aggr_ns.max(1));
    Attrs {
        sample: Nanos((aggr.0 / u64::from(snapshot.max_nr_accesses.max(1))).max(1)),
        aggr,
        ..Attrs::default()
    }
}

//! Applying schemes: select memory, split regions, send requests to the operations, update statistics.

use std::collections::BTreeMap;

use super::candidate::{ApplyInput, ApplyTrigger, Candidate, TargetMut};
use super::eligible::share_on_node;
use super::feedback::Score;
use super::goal::Goal;
use super::migration::Selection;
use super::select::select;
use super::split::split_at;
use super::state::{SchemeState, WarningTopic};
use crate::action::Action;
use crate::ops::{Applied, Operations, OpsError, Outcome, Request, Skip, TargetRange};
use crate::scheme::OpsFilter;
use crate::sink::{Event, Sink, TriedRegion};
use crate::target_id::TargetId;
use thermo_units::{Bytes, Nanos};

/// Applies, in order, every scheme that `input.trigger` selects.
///
/// The sink gets one [`Event::SchemeApplied`] for each applied scheme, also if nothing matched, and one
/// warning for each kind of failure.
pub fn apply_schemes(
    states: &mut [SchemeState],
    targets: &mut [TargetMut<'_>],
    input: &ApplyInput<'_>,
    ops: &mut dyn Operations,
    sink: &mut dyn Sink,
) {
    for (index, state) in states.iter_mut().enumerate() {
        if !state.begin_if_due(input) {
            continue;
        }
        let mut application = state.begin(index, targets, input, ops, sink);
        for batch in state.batches(&mut application) {
            let result = ops.apply(&Request {
                action: state.scheme.action,
                ranges: &batch.ranges,
                filters: &batch.filters,
                destinations: &state.scheme.destinations,
            });
            state.record(&mut application, &batch, result, sink);
        }
        state.end(application, targets, sink);
    }
}

/// One application of a scheme.
struct Application {
    /// Index of the scheme.
    scheme: usize,
    now: Nanos,
    selected: Vec<Candidate>,
    /// The quota ended before all memory to migrate was selected.
    is_cut: bool,
    /// One result for each selected candidate; `None`: not requested yet, or the request failed.
    results: Vec<Option<Applied>>,
}

/// Selected memory that goes to the operations in one request.
struct Batch {
    /// The indices of the candidates.
    indices: Vec<usize>,
    ranges: Vec<TargetRange>,
    filters: Vec<OpsFilter>,
}

impl SchemeState {
    /// Returns whether the scheme is due. At the end of an apply interval, counts a snapshot if so.
    fn begin_if_due(&mut self, input: &ApplyInput<'_>) -> bool {
        match input.trigger {
            ApplyTrigger::ApplyInterval => {
                let is_due = self.advance_if_due(input.attrs, input.passed_sample_intervals);
                self.stats.nr_snapshots += u64::from(is_due);
                is_due
            }
            ApplyTrigger::QuotaWindow => self.next_window_start().is_some_and(|start| start <= input.now),
        }
    }

    /// Begins the next quota window if the current one has ended.
    fn renew_window(
        &mut self,
        index: usize,
        targets: &[TargetMut<'_>],
        input: &ApplyInput<'_>,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) {
        if !self.scheme.quota.is_set() || !self.window.has_ended(input.now, &self.scheme.quota) {
            return;
        }
        let mut warnings = Vec::new();
        let mut totals = std::mem::take(&mut self.window.goals);
        let score: Score = totals.score(
            &self.scheme.quota.goals,
            &mut |goal| self.value_of(goal, targets, input, ops),
            &mut |goal, error| warnings.push((goal, format!("goal {goal} is ignored: {error}"))),
        );
        self.window.goals = totals;
        for (goal, text) in warnings {
            self.warn_once(WarningTopic::Goal(goal), index, &text, input.now, sink);
        }
        let unit = self.scheme.action.unit();
        if self.window.renew(input.now, &self.scheme.quota, unit, score) {
            self.stats.qt_exceeds += 1;
        }
        self.stats.effective_sz = self.window.reported_limit();
    }

    /// The current value of a goal; `None` if there is none this time.
    fn value_of(
        &self,
        goal: &Goal,
        targets: &[TargetMut<'_>],
        input: &ApplyInput<'_>,
        ops: &mut dyn Operations,
    ) -> Result<Option<u64>, OpsError> {
        match goal {
            Goal::UserInput { current, .. } => Ok(Some(*current)),
            Goal::Metric { metric, .. } => ops.metric(metric).map(Some),
            Goal::NodeEligibleMem { nid, .. } => self.in_force().map_or(Ok(None), |scheme| {
                share_on_node(&scheme, targets, input, *nid, ops)
            }),
        }
    }

    /// Selects memory within the quota, and splits regions at its ends.
    fn begin(
        &mut self,
        index: usize,
        targets: &mut [TargetMut<'_>],
        input: &ApplyInput<'_>,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Application {
        self.renew_window(index, targets, input, ops, sink);
        let budget = self.window.remaining(&self.scheme.quota);
        let is_used_up = budget.is_some_and(|budget| budget < self.scheme.action.unit());
        let selected = match self.in_force().filter(|_| !is_used_up) {
            Some(scheme) => select(&scheme, targets, input, budget, self.window.position, ops),
            None => Selection {
                selected: Vec::new(),
                is_cut: false,
            },
        };
        let Selection { selected, is_cut } = selected;
        split_at_selection(targets, &selected);
        Application {
            scheme: index,
            now: input.now,
            results: vec![None; selected.len()],
            selected,
            is_cut,
        }
    }

    /// Up to two batches: candidates that a core filter allowed, and those that the ops filters decide about.
    /// Candidates that are only counted have their result at once.
    fn batches(&mut self, application: &mut Application) -> Vec<Batch> {
        let filters = &self.scheme.filters.ops;
        let selected = &application.selected;
        let (unfiltered, filtered): (Vec<usize>, Vec<usize>) =
            (0..selected.len()).partition(|at| filters.is_empty() || selected[*at].allowed);
        let mut batches = Vec::new();
        for (indices, filters) in [(unfiltered, &[][..]), (filtered, &filters[..])] {
            let ranges: Vec<TargetRange> = indices.iter().map(|at| selected[*at].target_range).collect();
            if self.scheme.quota.is_set() {
                self.window.charge(bytes(&ranges));
            }
            if self.scheme.action == Action::Stat && filters.is_empty() {
                for (at, target_range) in indices.iter().zip(&ranges) {
                    application.results[*at] = Some(Applied {
                        passed_filters: target_range.range.len(),
                        ..Applied::default()
                    });
                }
            } else if !indices.is_empty() {
                batches.push(Batch {
                    indices,
                    ranges,
                    filters: filters.to_vec(),
                });
            }
        }
        batches
    }

    /// Records what the operations made of `batch`.
    fn record(
        &mut self,
        application: &mut Application,
        batch: &Batch,
        result: Result<Outcome, OpsError>,
        sink: &mut dyn Sink,
    ) {
        let (index, now) = (application.scheme, application.now);
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => return self.warn_once(WarningTopic::Apply, index, &error.to_string(), now, sink),
        };
        self.stats.spent += outcome.spent;
        if self.scheme.quota.is_set() {
            self.window.record_cost(bytes(&batch.ranges), outcome.spent);
        }
        let mut results = outcome.results;
        results.resize(batch.ranges.len(), Applied::default());
        for (at, mut applied) in batch.indices.iter().zip(results) {
            if self.scheme.action == Action::Stat {
                (applied.applied, applied.changed) = (Bytes::ZERO, None);
            }
            application.results[*at] = Some(applied);
        }
        for note in outcome.notes {
            self.warn_once(WarningTopic::Note(note.clone()), index, &note, now, sink);
        }
    }

    /// Updates the quota's position, the ages of regions and the statistics, and tells the sink.
    fn end(&mut self, application: Application, targets: &mut [TargetMut<'_>], sink: &mut dyn Sink) {
        let Application {
            scheme,
            now,
            selected,
            results,
            is_cut,
        } = application;
        self.save_position(&selected, is_cut);
        self.reset_ages(targets, &selected, &results);
        let by_target = by_target(&selected, &results);
        let (tried, skipped) = self.update_stats(&selected, results);
        sink.on(&Event::SchemeApplied {
            now,
            scheme,
            tried: &tried,
            skipped: &skipped,
            by_target: &by_target,
            stats: &self.stats,
        });
    }

    /// Saves where the next window continues: behind the last tried range, if the quota is used up.
    fn save_position(&mut self, selected: &[Candidate], is_cut: bool) {
        if let Some(last) = selected.last() {
            let used_up = self
                .window
                .is_used_up(&self.scheme.quota, self.scheme.action.unit());
            self.window.position =
                (used_up || is_cut).then_some((last.target_range.target, last.target_range.range.end));
        }
    }

    /// Sets the age of all regions that were acted on to 0: the action may change how they are accessed.
    /// [`Action::Stat`] changes nothing, so ages stay.
    fn reset_ages(&self, targets: &mut [TargetMut<'_>], selected: &[Candidate], results: &[Option<Applied>]) {
        if self.scheme.action == Action::Stat {
            return;
        }
        for (candidate, _) in selected
            .iter()
            .zip(results)
            .filter(|(_, result)| result.is_some())
        {
            let range = candidate.target_range.range;
            let regions = &mut *targets[candidate.target_index].regions;
            let first = regions.partition_point(|region| region.range.start < range.start);
            let inside = regions[first..]
                .iter_mut()
                .take_while(|region| region.range.end <= range.end);
            inside.for_each(|region| region.age = 0);
        }
    }

    /// Adds the results to the statistics. Returns the tried regions and the skipped bytes for the sink.
    fn update_stats(
        &mut self,
        selected: &[Candidate],
        results: Vec<Option<Applied>>,
    ) -> (Vec<TriedRegion>, Vec<(Skip, Bytes)>) {
        let mut skipped = Applied::default();
        let mut tried = Vec::with_capacity(selected.len());
        let has_ops_filters = !self.scheme.filters.ops.is_empty();
        for (candidate, result) in selected.iter().zip(results) {
            let mut result = result.unwrap_or_default();
            // As for virtual addresses in the kernel: no filter, nothing that passed one.
            if !has_ops_filters {
                result.passed_filters = Bytes::ZERO;
            }
            let stats = &mut self.stats;
            stats.nr_tried += 1;
            stats.sz_tried += candidate.target_range.range.len();
            stats.nr_applied += u64::from(result.applied > Bytes::ZERO);
            stats.sz_applied += result.applied;
            stats.sz_ops_filter_passed += result.passed_filters;
            stats.sz_changed += result.changed.unwrap_or_default();
            for (reason, sz) in &result.skipped {
                skipped.skip(*reason, *sz);
            }
            tried.push(TriedRegion {
                target_range: candidate.target_range,
                nr_accesses: candidate.nr_accesses,
                age: candidate.age,
                passed_filters: result.passed_filters,
            });
        }
        (tried, skipped.skipped)
    }
}

/// The sum of the results of each target.
fn by_target(selected: &[Candidate], results: &[Option<Applied>]) -> Vec<(TargetId, Applied)> {
    let mut sums: BTreeMap<TargetId, Applied> = BTreeMap::new();
    for (candidate, result) in selected.iter().zip(results) {
        let sum = sums.entry(candidate.target_range.target).or_default();
        if let Some(result) = result {
            sum.add(result);
        }
    }
    sums.into_iter().collect()
}

fn bytes(ranges: &[TargetRange]) -> Bytes {
    ranges.iter().map(|target_range| target_range.range.len()).sum()
}

/// Splits regions at the ends of each selected range.
fn split_at_selection(targets: &mut [TargetMut<'_>], selected: &[Candidate]) {
    let mut points = vec![Vec::new(); targets.len()];
    for candidate in selected {
        let range = candidate.target_range.range;
        points[candidate.target_index].extend([range.start, range.end]);
    }
    for (target, points) in targets.iter_mut().zip(points) {
        split_at(target.regions, points);
    }
}

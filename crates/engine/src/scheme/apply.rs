//! Applying schemes: choose, cut, ask the operations once, account.

use super::candidate::{ApplyInput, Candidate, TargetMut, Turn};
use super::cut::cut_at;
use super::feedback::Score;
use super::select::select;
use super::state::{SchemeState, Topic};
use crate::action::Action;
use crate::ops::{Applied, Operations, OpsError, Request, Skip, TargetRange};
use crate::scheme::OpsFilter;
use crate::sink::{Event, Sink, TriedRegion};
use thermo_units::{Bytes, Nanos};

/// Applies every scheme that has its turn by `input`, in their order.
///
/// Each is reported to the sink as [`Event::SchemeApplied`], also when nothing matched; what cannot be done, as a
/// warning, once.
pub fn apply(
    states: &mut [SchemeState],
    targets: &mut [TargetMut<'_>],
    input: &ApplyInput<'_>,
    ops: &mut dyn Operations,
    sink: &mut dyn Sink,
) {
    for (index, state) in states.iter_mut().enumerate() {
        let has_turn = match input.turn {
            Turn::Due => state.begin_snapshot(input),
            Turn::NextWindow => state.next_window_start().is_some_and(|start| start <= input.now),
        };
        if has_turn {
            state.apply(index, targets, input, ops, sink);
        }
    }
}

impl SchemeState {
    /// True, and one snapshot more, if it is due.
    fn begin_snapshot(&mut self, input: &ApplyInput<'_>) -> bool {
        let is_due = self.take_turn(input.attrs, input.passed);
        self.stats.nr_snapshots += u64::from(is_due);
        is_due
    }

    /// Begins the next quota window if it is time to.
    fn renew_window(
        &mut self,
        index: usize,
        input: &ApplyInput<'_>,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) {
        if !self.scheme.quota.is_set() || !self.window.is_over(input.now, &self.scheme.quota) {
            return;
        }
        let mut complaints = Vec::new();
        let score: Score = self.window.goals.score(
            &self.scheme.quota.goals,
            &mut |metric| ops.metric(metric),
            &mut |goal, error| complaints.push((goal, format!("goal {goal} is left out: {error}"))),
        );
        for (goal, text) in complaints {
            self.warn(Topic::Goal(goal), index, &text, input.now, sink);
        }
        let unit = self.scheme.action.unit();
        if self.window.renew(input.now, &self.scheme.quota, unit, score) {
            self.stats.qt_exceeds += 1;
        }
        self.stats.effective_sz = self.window.shown_limit();
    }

    /// Applies the scheme to what it takes now.
    fn apply(
        &mut self,
        index: usize,
        targets: &mut [TargetMut<'_>],
        input: &ApplyInput<'_>,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) {
        self.renew_window(index, input, ops, sink);
        let room = self.window.room(&self.scheme.quota);
        let chosen = if room.is_some_and(|room| room < self.scheme.action.unit()) {
            Vec::new()
        } else {
            select(&self.scheme, targets, input, room, self.window.position, ops)
        };
        cut_out(targets, &chosen);
        let results = self.carry_out(&chosen, index, input.now, ops, sink);
        self.note_position(&chosen);
        self.restart_ages(targets, &chosen, &results);
        let (tried, skipped) = self.account(&chosen, results);
        let (now, stats) = (input.now, &self.stats);
        sink.on(&Event::SchemeApplied {
            now,
            scheme: index,
            tried: &tried,
            skipped: &skipped,
            stats,
        });
    }

    /// Asks the operations: once for everything, or once for what was allowed by name and once for what the
    /// ops filters have a say in. One result a candidate; `None`: it could not be asked for.
    fn carry_out(
        &mut self,
        chosen: &[Candidate],
        index: usize,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Vec<Option<Applied>> {
        let filters = std::mem::take(&mut self.scheme.filters.ops);
        let (free, filtered): (Vec<usize>, Vec<usize>) =
            (0..chosen.len()).partition(|at| filters.is_empty() || chosen[*at].allowed);
        let mut results = vec![None; chosen.len()];
        for (places, filters) in [(free, &[][..]), (filtered, &filters[..])] {
            if places.is_empty() {
                continue;
            }
            let runs: Vec<TargetRange> = places.iter().map(|at| chosen[*at].run).collect();
            match self.ask(&runs, filters, ops) {
                Ok((applied, notes)) => {
                    let applied = places.iter().zip(applied);
                    applied.for_each(|(at, applied)| results[*at] = Some(applied));
                    for note in notes {
                        self.warn(Topic::Note(note.clone()), index, &note, now, sink);
                    }
                }
                Err(error) => self.warn(Topic::Apply, index, &error.to_string(), now, sink),
            }
        }
        self.scheme.filters.ops = filters;
        results
    }

    /// One request: what became of each run, and what there is to say of it.
    fn ask(
        &mut self,
        runs: &[TargetRange],
        filters: &[OpsFilter],
        ops: &mut dyn Operations,
    ) -> Result<(Vec<Applied>, Vec<String>), OpsError> {
        let action = self.scheme.action;
        let sz: Bytes = runs.iter().map(|run| run.range.len()).sum();
        let limited = self.scheme.quota.is_set();
        if limited {
            self.window.charge(sz);
        }
        let mut notes = Vec::new();
        let mut applied = if action == Action::Stat && filters.is_empty() {
            let passed = |run: &TargetRange| Applied {
                passed_filters: run.range.len(),
                ..Applied::default()
            };
            runs.iter().map(passed).collect()
        } else {
            let outcome = ops.apply(&Request {
                action,
                runs,
                filters,
            })?;
            self.stats.spent += outcome.spent;
            if limited {
                self.window.measure(sz, outcome.spent);
            }
            notes = outcome.notes;
            outcome.runs
        };
        applied.resize(runs.len(), Applied::default());
        if action == Action::Stat {
            applied
                .iter_mut()
                .for_each(|applied| (applied.applied, applied.changed) = (Bytes::ZERO, None));
        }
        Ok((applied, notes))
    }

    /// Where the next window goes on: behind what was tried last, if the quota ended this one.
    fn note_position(&mut self, chosen: &[Candidate]) {
        if let Some(last) = chosen.last() {
            let full = self.window.is_full(&self.scheme.quota, self.scheme.action.unit());
            self.window.position = full.then_some((last.run.target, last.run.range.end));
        }
    }

    /// What was done to memory makes its past meaningless; looking at it does not.
    fn restart_ages(&self, targets: &mut [TargetMut<'_>], chosen: &[Candidate], results: &[Option<Applied>]) {
        if self.scheme.action == Action::Stat {
            return;
        }
        for (candidate, _) in chosen.iter().zip(results).filter(|(_, result)| result.is_some()) {
            let (regions, range) = (&mut *targets[candidate.target].regions, candidate.run.range);
            let first = regions.partition_point(|region| region.range.start < range.start);
            let inside = regions[first..]
                .iter_mut()
                .take_while(|region| region.range.end <= range.end);
            inside.for_each(|region| region.age = 0);
        }
    }

    /// Adds to the statistics; returns what the sink is told.
    fn account(
        &mut self,
        chosen: &[Candidate],
        results: Vec<Option<Applied>>,
    ) -> (Vec<TriedRegion>, Vec<(Skip, Bytes)>) {
        let mut skipped = Applied::default();
        let mut tried = Vec::with_capacity(chosen.len());
        for (candidate, result) in chosen.iter().zip(results) {
            let result = result.unwrap_or_default();
            let stats = &mut self.stats;
            stats.nr_tried += 1;
            stats.sz_tried += candidate.run.range.len();
            stats.nr_applied += u64::from(result.applied > Bytes::ZERO);
            stats.sz_applied += result.applied;
            stats.sz_ops_filter_passed += result.passed_filters;
            stats.sz_changed += result.changed.unwrap_or_default();
            result
                .skipped
                .iter()
                .for_each(|(why, sz)| skipped.skip(*why, *sz));
            tried.push(TriedRegion {
                run: candidate.run,
                nr_accesses: candidate.nr_accesses,
                age: candidate.age,
                passed_filters: result.passed_filters,
            });
        }
        (tried, skipped.skipped)
    }
}

/// Makes a region of its own of each piece that was chosen.
fn cut_out(targets: &mut [TargetMut<'_>], chosen: &[Candidate]) {
    let mut borders = vec![Vec::new(); targets.len()];
    for candidate in chosen {
        let range = candidate.run.range;
        borders[candidate.target].extend([range.start, range.end]);
    }
    for (target, borders) in targets.iter_mut().zip(borders) {
        cut_at(target.regions, borders);
    }
}

//! Applies schemes: to regions when sampling, to runs of pages when scanning.
//!
//! If a quota stops a scheme, the remaining runs are kept, and the scheme continues with them in each quota
//! window until the next snapshot. Operations check pages again before they act, so a page accessed meanwhile
//! is skipped.

use super::scanning_state::DeferredRegions;
use super::state::Context;
use crate::action::Action;
use crate::ops::Operations;
use crate::region::Region;
use crate::scheme::{self, ApplyInput, ApplyTrigger, SchemeState, TargetMut};
use crate::sink::{Event, Sink, TriedRegion};
use thermo_units::Nanos;

impl Context {
    /// Applies the schemes that are due to the regions of the targets.
    pub(super) fn apply_schemes_to_regions(
        &mut self,
        trigger: ApplyTrigger,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) {
        if self.schemes.is_empty() {
            return;
        }
        let mut targets: Vec<TargetMut<'_>> = self
            .targets
            .iter_mut()
            .map(|t| TargetMut {
                id: t.id,
                regions: &mut t.regions,
            })
            .collect();
        let input = ApplyInput {
            trigger,
            now,
            passed_sample_intervals: self.schedule.passed,
            attrs: &self.attrs,
        };
        scheme::apply_schemes(&mut self.schemes, &mut targets, &input, ops, sink);
    }

    /// Hands the page-exact results of a snapshot to the schemes whose age is automatic.
    pub(super) fn update_auto_ages(&mut self, now: Nanos, sink: &mut dyn Sink) {
        let tables = self
            .targets
            .iter()
            .filter_map(|target| Some((target.id, target.tables.as_ref()?)));
        for (index, state) in self.schemes.iter_mut().enumerate() {
            state.update_auto_age(index, now, tables.clone(), sink);
        }
    }

    /// Applies the schemes to `runs` of pages instead of the coarser regions of a snapshot: a region that
    /// merges idle pages with a few accessed ones would not match a pattern for idle memory. Runs left over
    /// by quotas are kept.
    pub(super) fn apply_schemes_to_runs(
        &mut self,
        trigger: ApplyTrigger,
        runs: Vec<Vec<Region>>,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) {
        let mut acted_on = Vec::new();
        let mut recording_sink = |event: &Event<'_>| {
            if let Event::SchemeApplied { scheme, tried, .. } = event {
                acted_on.extend(tried.iter().map(|tried| (*scheme, *tried)));
            }
            sink.on(event);
        };
        let regions = self.replace_regions(runs);
        self.apply_schemes_to_regions(trigger, now, ops, &mut recording_sink);
        let runs = self.replace_regions(regions);
        if !self.keeps_ages {
            self.restart_ages_of_pages(&acted_on, now);
        }
        let runs_by_target = self.targets.iter().map(|t| t.id).zip(runs);
        self.scanning.deferred = self
            .next_window()
            .map(|_| DeferredRegions(runs_by_target.collect()));
    }

    /// Applies schemes to the runs that quotas left over, if a new quota window has begun. Returns the start
    /// of the next window; `None` if no runs are left or all schemes are deactivated.
    pub(super) fn apply_schemes_to_deferred(
        &mut self,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Option<Nanos> {
        self.scanning.deferred.as_ref()?;
        let next = self.next_window()?;
        if now < next {
            return Some(next);
        }
        if scheme::check_watermarks(&mut self.schemes, now, ops, sink).is_some() {
            return None;
        }
        let deferred = self.scanning.deferred.take()?;
        let runs = deferred.of_targets(self.targets.iter().map(|t| t.id));
        self.apply_schemes_to_runs(ApplyTrigger::QuotaWindow, runs, now, ops, sink);
        self.next_window()
    }

    /// The next start of a quota window, over all schemes that a quota stopped.
    pub(super) fn next_window(&self) -> Option<Nanos> {
        self.schemes
            .iter()
            .filter_map(SchemeState::next_window_start)
            .min()
    }

    fn restart_ages_of_pages(&mut self, acted_on: &[(usize, TriedRegion)], now: Nanos) {
        // Ranges of a target are restarted together: each call computes a table of all states.
        let kind = |(scheme, tried): &(usize, TriedRegion)| {
            (*scheme, tried.target_range.target, tried.nr_accesses == 0)
        };
        for alike in acted_on.chunk_by(|a, b| kind(a) == kind(b)) {
            let Some((scheme, id, were_idle)) = alike.first().map(kind) else {
                continue;
            };
            let changes_pages = self
                .schemes
                .get(scheme)
                .is_some_and(|state| state.scheme().action != Action::Stat);
            let ranges = alike.iter().map(|(_, tried)| tried.target_range.range);
            if let Some(target) = self.targets.iter_mut().find(|t| changes_pages && t.id == id) {
                target.states.restart_ages(ranges, were_idle, now);
            }
        }
    }

    /// Replaces the regions of each target, in order, and returns the previous ones.
    pub(super) fn replace_regions(&mut self, regions: Vec<Vec<Region>>) -> Vec<Vec<Region>> {
        let targets = self.targets.iter_mut().zip(regions);
        targets
            .map(|(target, regions)| std::mem::replace(&mut target.regions, regions))
            .collect()
    }
}

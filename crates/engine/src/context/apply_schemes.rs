//! Applying schemes: to regions, or, where every page is known, to runs of pages.
//!
//! Where a quota stops a scheme before it is through, the runs it did not come by are kept, and it goes on with them
//! window by window until the next snapshot. Operations check pages again before they act, so what was accessed meanwhile
//! is safe.

use super::scanning_state::DeferredRegions;
use super::state::Context;
use crate::action::Action;
use crate::ops::{Operations, TargetRange};
use crate::region::Region;
use crate::scheme::{self, ApplyInput, SchemeState, TargetMut, Turn};
use crate::sink::{Event, Sink, TriedRegion};
use thermo_units::Nanos;

impl Context {
    /// Applies the schemes whose turn it is to the targets' regions.
    pub(super) fn apply_schemes(
        &mut self,
        turn: Turn,
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
            turn,
            now,
            passed: self.schedule.passed,
            attrs: &self.attrs,
        };
        scheme::apply(&mut self.schemes, &mut targets, &input, ops, sink);
    }

    /// Applies the schemes to runs of pages as they are, not to the fewer regions of a snapshot: merged with its few busy
    /// neighbours, idle memory would match no pattern that wants none. What quotas leave is kept.
    pub(super) fn act_on_runs(
        &mut self,
        turn: Turn,
        runs: Vec<Vec<Region>>,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) {
        let mut acted_on = Vec::new();
        let mut listener = |event: &Event<'_>| {
            if let Event::SchemeApplied { scheme, tried, .. } = event {
                acted_on.extend(tried.iter().map(|tried| (*scheme, *tried)));
            }
            sink.on(event);
        };
        let regions = self.replace_regions(runs);
        self.apply_schemes(turn, now, ops, &mut listener);
        let runs = self.replace_regions(regions);
        self.restart_ages_of_pages(&acted_on, now);
        let of_targets = self.targets.iter().map(|t| t.id).zip(runs);
        self.scanning.deferred = self.next_window().map(|_| DeferredRegions(of_targets.collect()));
    }

    /// Goes on with what quotas left of the last snapshot, if a window began since. Returns when the next one does;
    /// nothing when nothing is left or nobody may act.
    pub(super) fn use_next_window(
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
        self.act_on_runs(Turn::NextWindow, runs, now, ops, sink);
        self.next_window()
    }

    /// When the next window of a scheme begins that its quota stopped.
    pub(super) fn next_window(&self) -> Option<Nanos> {
        self.schemes
            .iter()
            .filter_map(SchemeState::next_window_start)
            .min()
    }

    fn restart_ages_of_pages(&mut self, acted_on: &[(usize, TriedRegion)], now: Nanos) {
        for (scheme, tried) in acted_on {
            let changes = self
                .schemes
                .get(*scheme)
                .is_some_and(|state| state.scheme().action != Action::Stat);
            let TargetRange { target, range } = tried.run;
            if let Some(target) = self.targets.iter_mut().find(|t| changes && t.id == target) {
                target.states.restart_age(range, tried.nr_accesses == 0, now);
            }
        }
    }

    /// Puts `regions` in the place of those there are, of each target in turn; returns what was there.
    pub(super) fn replace_regions(&mut self, regions: Vec<Vec<Region>>) -> Vec<Vec<Region>> {
        let targets = self.targets.iter_mut().zip(regions);
        targets
            .map(|(target, regions)| std::mem::replace(&mut target.regions, regions))
            .collect()
    }
}

//! Monitoring by scanning: targets are scanned chunk by chunk. Snapshots are taken at a fixed interval from
//! the page states known so far, however long the passes are.

use std::collections::BTreeMap;

use super::budget_state::PacedWork;
use super::state::Context;
use crate::action::Action;
use crate::monitoring::Target;
use crate::ops::Operations;
use crate::region::Region;
use crate::scan::{CoalescedRuns, GapCost, MAX_NR_ACCESSES, ScanProgress, State, StateRun, coalesce_targets};
use crate::scheme;
use crate::sink::{Event, Sink};
use thermo_units::AddrRange;
use thermo_units::{Bytes, Nanos};

/// Maximum number of runs to which schemes are applied at once: a few milliseconds of work and a few MiB.
const MAX_RUNS: usize = 32_768;
/// The regions of a target are derived again once 1/2 of its mapped memory has been scanned.
const RESCAN_DIVISOR: u64 = 2;
/// Minimum number of regions kept per target before the regions of all targets are coalesced.
const MIN_COALESCED: usize = 64;

impl Context {
    /// Takes a snapshot if one is due. Otherwise scans the next chunk, unless the budget requires
    /// a pause until `pause_until`. Returns the time of the next step.
    pub(super) fn step_scanning(
        &mut self,
        now: Nanos,
        pause_until: Option<Nanos>,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Nanos {
        let next_window = self
            .apply_schemes_to_deferred(now, ops, sink)
            .unwrap_or(Nanos::MAX);
        if let Some(check_at) = scheme::check_watermarks(&mut self.schemes, now, ops, sink) {
            self.pause(now);
            return check_at;
        }
        self.resume(now);
        if now >= self.scanning.next_snapshot {
            self.take_snapshot(now, ops, sink);
            return now;
        }
        let until = next_window
            .min(self.scanning.next_snapshot)
            .min(self.schedule.next_update);
        if let Some(pause_until) = pause_until {
            return pause_until.min(until);
        }
        self.end_start_when_scanned(now);
        match self.scanning.scheduler.scan_next(now, &mut self.targets, ops) {
            ScanProgress::Worked(warning) => {
                if let Some(text) = &warning {
                    sink.on(&Event::Warning { now, text });
                }
                now
            }
            ScanProgress::WaitUntil(next) => next.min(until),
        }
    }

    /// Emits a snapshot and applies the schemes that are due.
    fn take_snapshot(&mut self, now: Nanos, ops: &mut dyn Operations, sink: &mut dyn Sink) {
        let interval = self.attrs.aggr;
        // At least half an interval from now, so that a late snapshot is not followed by another at once.
        let earliest = now.saturating_add(Nanos(interval.0 / 2));
        self.scanning.next_snapshot = self.scanning.next_snapshot.saturating_add(interval).max(earliest);
        // A snapshot counts as MAX_NR_ACCESSES sampling intervals.
        self.schedule.passed += u64::from(MAX_NR_ACCESSES);
        for target in &mut self.targets {
            let mut tables = target.states.take_tables(now);
            if let Some(resident) = target.resident {
                tables.aliased = target.aliases.uncounted();
                tables.fit_to(resident.saturating_sub(tables.aliased));
            }
            tables.name_hugetlb(target.hugetlb);
            target.tables = Some(tables);
        }
        self.derive_regions(now);
        self.emit_snapshot(now, sink);
        self.update_auto_ages(now, sink);
        if now >= self.scanning.next_schemes && self.is_any_scheme_due() {
            self.set_paced_work(PacedWork::Schemes);
            let runs = self.runs_for_schemes(now);
            self.scanning.deferred = None;
            self.apply_schemes_to_runs(scheme::ApplyTrigger::ApplyInterval, runs, now, ops, sink);
        }
        for region in self.targets.iter_mut().flat_map(|t| &mut t.regions) {
            region.last_nr_accesses = region.nr_accesses;
        }
        self.aggr_start = Some(now);
    }

    fn is_any_scheme_due(&self) -> bool {
        let passed = self.schedule.passed;
        self.schemes.iter().any(|state| state.is_due(&self.attrs, passed))
    }

    /// Derives the regions of all targets from page states. Targets of which little was scanned since keep
    /// their coalesced runs.
    fn derive_regions(&mut self, now: Nanos) {
        let (max, interval) = (self.max_regions(), self.attrs.aggr);
        let per_target = (max * 4 / self.targets.len().max(1)).clamp(MIN_COALESCED, max.max(MIN_COALESCED));
        if now < self.scanning.next_regions {
            return self.coalesce_regions(now);
        }
        self.set_paced_work(PacedWork::Regions);
        for target in &mut self.targets {
            if needs_new_regions(target) {
                let runs = target.states.runs(now, interval).chain(unscanned_runs(target));
                target.coalesced = CoalescedRuns::new(runs, per_target, GapCost::ByAccesses, now, interval);
                target.cursor.scanned = Bytes::ZERO;
            }
        }
        self.coalesce_regions(now);
    }

    /// Builds regions from the coalesced runs of all targets.
    fn coalesce_regions(&mut self, now: Nanos) {
        let (max, interval) = (self.max_regions(), self.attrs.aggr);
        let coalesced = self.targets.iter().map(|target| &target.coalesced);
        let regions = coalesce_targets(coalesced, max, GapCost::ByAccesses, now, interval);
        for (target, (mut regions, averaged)) in self.targets.iter_mut().zip(regions) {
            inherit_ages(&mut regions, &target.regions);
            (target.regions, target.averaged) = (regions, averaged);
        }
    }

    /// The runs of pages that schemes are applied to, for each target in order.
    fn runs_for_schemes(&self, now: Nanos) -> Vec<Vec<Region>> {
        let interval = self.attrs.aggr;
        let coalesce = |target: &Target| {
            let runs = target.states.runs(now, interval);
            CoalescedRuns::new(runs, MAX_RUNS, GapCost::ByBytes, now, interval)
        };
        let coalesced: Vec<CoalescedRuns> = self
            .idle_runs_for_schemes(now)
            .unwrap_or_else(|| self.targets.iter().map(coalesce).collect());
        let regions = coalesce_targets(coalesced.iter(), MAX_RUNS, GapCost::ByBytes, now, interval);
        let mut regions: Vec<Vec<Region>> = regions.into_iter().map(|(regions, _)| regions).collect();
        for (regions, target) in regions.iter_mut().zip(&self.targets) {
            inherit_ages(regions, &target.regions);
        }
        regions
    }

    /// Only the runs that are idle long enough for a scheme; those that are idle longest, if there are too
    /// many. The others follow with the next application: pages that were acted on are gone, or their age
    /// restarts. `None` if a scheme may match other memory, or only counts.
    ///
    /// Coalescing all runs instead would hide most idle memory of finely mixed targets: a single idle page
    /// between accessed pages becomes part of an accessed region.
    fn idle_runs_for_schemes(&self, now: Nanos) -> Option<Vec<CoalescedRuns>> {
        if self
            .schemes
            .iter()
            .any(|state| state.scheme().action == Action::Stat)
        {
            return None;
        }
        let least = self
            .schemes
            .iter()
            .map(|state| state.least_idle_time(&self.attrs));
        let least = least.collect::<Option<Vec<Nanos>>>()?.into_iter().min()?;
        let mut runs = self.idle_runs(least, MAX_RUNS + 1, now);
        if runs.iter().map(Vec::len).sum::<usize>() > MAX_RUNS {
            runs = self.idle_runs(self.longest_idle(least, now), MAX_RUNS, now);
        }
        let interval = self.attrs.aggr;
        let coalesce = |runs: Vec<StateRun>| {
            CoalescedRuns::new(runs.into_iter(), MAX_RUNS, GapCost::ByBytes, now, interval)
        };
        Some(runs.into_iter().map(coalesce).collect())
    }

    /// The runs of each target that are idle for at least `least`, at most `max` in all.
    fn idle_runs(&self, least: Nanos, max: usize, now: Nanos) -> Vec<Vec<StateRun>> {
        let mut room = max;
        let of_target = |target: &Target| {
            let runs = target.states.idle_runs(least, now, self.attrs.aggr);
            let runs: Vec<StateRun> = runs.take(room).collect();
            room -= runs.len();
            runs
        };
        self.targets.iter().map(of_target).collect()
    }

    /// The idle time, at least `least`, from which on there are just more than [`MAX_RUNS`] runs.
    fn longest_idle(&self, least: Nanos, now: Nanos) -> Nanos {
        // Page states have few different times.
        let mut runs_since: BTreeMap<Nanos, usize> = BTreeMap::new();
        for target in &self.targets {
            for run in target.states.idle_runs(least, now, self.attrs.aggr) {
                if let State::Idle(since) = run.state {
                    *runs_since.entry(since).or_default() += 1;
                }
            }
        }
        let mut sum = 0;
        let last = runs_since.into_iter().find(|(_, runs)| {
            sum += runs;
            sum > MAX_RUNS
        });
        last.map_or(least, |(since, _)| now.saturating_sub(since))
    }
}

/// True if enough of `target` has been scanned since its regions were derived, or if its first pass is
/// incomplete.
fn needs_new_regions(target: &Target) -> bool {
    let mapped: Bytes = target.ranges.iter().map(AddrRange::len).sum();
    target.cursor.scanned.0 > 0 && target.cursor.scanned.0 >= mapped.0 / RESCAN_DIVISOR
        || target.states.nr_passes() == 0
}

/// Memory that the first pass over `target` has not reached yet, as unknown runs.
fn unscanned_runs(target: &Target) -> impl Iterator<Item = StateRun> + '_ {
    let reached = target.cursor.reached();
    let is_first = target.states.nr_passes() == 0;
    let ranges = target.ranges.iter().filter(move |_| is_first);
    ranges.filter_map(move |range| {
        let start = range.start.max(reached);
        let range = AddrRange {
            start,
            end: range.end.max(start),
        };
        let state = State::Unknown;
        (!range.is_empty()).then_some(StateRun { range, state })
    })
}

/// Sets the age of accessed regions: one more than in the previous snapshot where the access count is about
/// the same, 0 elsewhere, averaged over the region. Page states record since when a page is idle, but not
/// since when it is accessed.
fn inherit_ages(regions: &mut [Region], previous: &[Region]) {
    let mut first = 0;
    for region in regions.iter_mut().filter(|region| region.nr_accesses > 0) {
        while previous
            .get(first)
            .is_some_and(|old| old.range.end <= region.range.start)
        {
            first += 1;
        }
        let overlapping = previous[first..]
            .iter()
            .take_while(|old| old.range.start < region.range.end);
        let mut age_bytes = 0;
        for old in overlapping {
            let overlap = old
                .range
                .intersection(&region.range)
                .map_or(0, |overlap| overlap.len().0);
            // Count of the previous snapshot, already rescaled if the intervals changed since.
            let count = old.last_nr_accesses;
            let is_similar = count > 0 && count.abs_diff(region.nr_accesses) <= MAX_NR_ACCESSES / 10;
            age_bytes += u128::from(overlap) * if is_similar { u128::from(old.age) + 1 } else { 0 };
        }
        region.age = u32::try_from(age_bytes / u128::from(region.len().0)).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    #[test]
    fn accessed_regions_age_while_count_is_similar() {
        let region = |start: u64, end: u64, nr_accesses, age| Region {
            nr_accesses,
            last_nr_accesses: nr_accesses,
            age,
            ..Region::new(AddrRange::new(start * 4096, end * 4096))
        };
        let before = [region(0, 10, 70, 4), region(10, 20, 30, 9), region(20, 30, 0, 50)];
        let mut now = [
            region(0, 10, 66, 0),
            region(10, 20, 70, 0),
            region(20, 30, 70, 0),
            region(90, 91, 70, 0),
        ];
        inherit_ages(&mut now, &before);
        assert_eq!(now.map(|r| r.age), [5, 0, 0, 0]);
        // Half of the region had a similar count, half was idle: the age is the mean.
        let mut wide = [region(5, 15, 70, 0)];
        inherit_ages(&mut wide, &before);
        assert_eq!(wide[0].age, 2);
    }
}

//! Monitoring every page: chunks are scanned one after the other, and a snapshot is taken at its own cadence, however
//! long the passes are, from what is known by then.

use super::budget_state::PacedWork;
use super::state::Context;
use crate::monitoring::Target;
use crate::ops::Operations;
use crate::region::Region;
use crate::scan::{Condensed, GapCost, MAX_NR_ACCESSES, State, StateRun, Turn, regions_of};
use crate::scheme;
use crate::sink::{Event, Sink};
use thermo_units::AddrRange;
use thermo_units::{Bytes, Nanos};

/// Most runs that schemes are applied to in a turn: some milliseconds of work and some MiB.
const MOST_RUNS: usize = 32_768;
/// The regions of a target are derived anew when one part in so many of it has been scanned since.
const PART_SCANNED: u64 = 2;
/// Fewest regions that a target keeps before those of all targets are coalesced.
const LEAST_CONDENSED: usize = 64;

impl Context {
    /// Takes a snapshot that is due, or scans the next chunk unless the budget rests until `rest_until`. Returns when to go
    /// on.
    pub(super) fn step_scanning(
        &mut self,
        now: Nanos,
        rest_until: Option<Nanos>,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Nanos {
        let next_window = self.use_next_window(now, ops, sink).unwrap_or(Nanos::MAX);
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
        if let Some(rest_until) = rest_until {
            return rest_until.min(until);
        }
        self.end_start_when_scanned(now);
        match self.scanning.scheduler.turn(now, &mut self.targets, ops) {
            Turn::Worked(warning) => {
                if let Some(text) = &warning {
                    sink.on(&Event::Warning { now, text });
                }
                now
            }
            Turn::Wait(next) => next.min(until),
        }
    }

    /// Emits what is known by now, and applies the schemes that are due.
    fn take_snapshot(&mut self, now: Nanos, ops: &mut dyn Operations, sink: &mut dyn Sink) {
        let interval = self.attrs.aggr;
        // In step with the one before, but never two at once.
        let least = now.saturating_add(Nanos(interval.0 / 2));
        self.scanning.next_snapshot = self.scanning.next_snapshot.saturating_add(interval).max(least);
        // A snapshot stands for as many sampling intervals as its counts can reach.
        self.schedule.passed += u64::from(MAX_NR_ACCESSES);
        for target in &mut self.targets {
            let mut tables = target.states.take_tables(now);
            if let Some(resident) = target.resident {
                tables.fit_to(resident);
            }
            target.tables = Some(tables);
        }
        self.derive_regions(now);
        self.emit_snapshot(now, sink);
        if now >= self.scanning.next_schemes && self.is_any_due() {
            self.pace(PacedWork::Schemes);
            let runs = self.runs_for_schemes(now);
            self.scanning.deferred = None;
            self.act_on_runs(scheme::Turn::Due, runs, now, ops, sink);
        }
        for region in self.targets.iter_mut().flat_map(|t| &mut t.regions) {
            region.last_nr_accesses = region.nr_accesses;
        }
        self.aggr_start = Some(now);
    }

    fn is_any_due(&self) -> bool {
        let passed = self.schedule.passed;
        self.schemes.iter().any(|state| state.is_due(&self.attrs, passed))
    }

    /// Derives the regions of all targets from their pages.
    fn derive_regions(&mut self, now: Nanos) {
        let (most, interval) = (self.most_regions(), self.attrs.aggr);
        let each = (most * 4 / self.targets.len().max(1)).clamp(LEAST_CONDENSED, most.max(LEAST_CONDENSED));
        if now < self.scanning.next_regions {
            return self.coalesce_regions(now);
        }
        self.pace(PacedWork::Regions);
        for target in &mut self.targets {
            if is_to_condense(target) {
                let runs = target.states.runs(now, interval).chain(not_scanned(target));
                target.condensed = Condensed::of(runs, each, GapCost::ByHeat, now, interval);
                target.cursor.scanned = Bytes::ZERO;
            }
        }
        self.coalesce_regions(now);
    }

    /// Makes regions of what was derived from pages last.
    fn coalesce_regions(&mut self, now: Nanos) {
        let (most, interval) = (self.most_regions(), self.attrs.aggr);
        let condensed = self.targets.iter().map(|target| &target.condensed);
        let regions = regions_of(condensed, most, GapCost::ByHeat, now, interval);
        for (target, (mut regions, averaged)) in self.targets.iter_mut().zip(regions) {
            inherit_ages(&mut regions, &target.regions);
            (target.regions, target.averaged) = (regions, averaged);
        }
    }

    /// The runs of pages that schemes are applied to.
    fn runs_for_schemes(&self, now: Nanos) -> Vec<Vec<Region>> {
        let interval = self.attrs.aggr;
        let condense = |target: &Target| {
            let runs = target.states.runs(now, interval);
            Condensed::of(runs, MOST_RUNS, GapCost::ByBytes, now, interval)
        };
        let condensed: Vec<Condensed> = self.targets.iter().map(condense).collect();
        let regions = regions_of(condensed.iter(), MOST_RUNS, GapCost::ByBytes, now, interval);
        let mut regions: Vec<Vec<Region>> = regions.into_iter().map(|(regions, _)| regions).collect();
        for (regions, target) in regions.iter_mut().zip(&self.targets) {
            inherit_ages(regions, &target.regions);
        }
        regions
    }
}

/// Whether so much of a target has been scanned since its regions were derived that it is worth doing so again.
fn is_to_condense(target: &Target) -> bool {
    let mapped: Bytes = target.ranges.iter().map(AddrRange::len).sum();
    target.cursor.scanned.0 > 0 && target.cursor.scanned.0 >= mapped.0 / PART_SCANNED
        || target.states.nr_passes() == 0
}

/// What the first pass over a target has not scanned yet, as runs of unknown memory.
fn not_scanned(target: &Target) -> impl Iterator<Item = StateRun> + '_ {
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

/// Memory that goes on being accessed as before is a snapshot older: pages remember since when they are idle, but not since
/// when they are busy, so that age is taken from the regions of the snapshot before.
fn inherit_ages(regions: &mut [Region], before: &[Region]) {
    let mut first = 0;
    for region in regions.iter_mut().filter(|region| region.nr_accesses > 0) {
        while before
            .get(first)
            .is_some_and(|old| old.range.end <= region.range.start)
        {
            first += 1;
        }
        let overlapping = before[first..]
            .iter()
            .take_while(|old| old.range.start < region.range.end);
        let mut aged = 0;
        for old in overlapping {
            let both = old
                .range
                .intersection(&region.range)
                .map_or(0, |both| both.len().0);
            // The count of the snapshot before, in today's units even when the intervals changed since.
            let count = old.last_nr_accesses;
            let alike = count > 0 && count.abs_diff(region.nr_accesses) <= MAX_NR_ACCESSES / 10;
            aged += u128::from(both) * if alike { u128::from(old.age) + 1 } else { 0 };
        }
        region.age = u32::try_from(aged / u128::from(region.len().0)).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_units::AddrRange;

    #[test]
    fn busy_memory_grows_older_while_it_stays_as_busy() {
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
        // Half of it was as busy before, half was idle: the mean.
        let mut wide = [region(5, 15, 70, 0)];
        inherit_ages(&mut wide, &before);
        assert_eq!(wide[0].age, 2);
    }
}

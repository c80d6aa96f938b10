//! Monitoring by sampling: one access check per region and sampling interval. Each aggregation merges and
//! splits regions.

use super::sampling_state::Sampling;
use super::state::Context;
use crate::attrs::Attrs;
use crate::monitoring::{MergeLimits, Target, merge_and_age};
use crate::ops::{CheckResult, Operations, Probe};
use crate::scheme::ApplyTrigger;
use crate::sink::{Event, Sink};
use thermo_units::{Addr, PAGE_SIZE};
use thermo_units::{Bytes, Nanos};

impl Context {
    /// Begins a sampling interval and returns its end.
    pub(super) fn begin_sample(&mut self, now: Nanos, ops: &mut dyn Operations) -> Nanos {
        self.prepare_access_checks(ops);
        self.sampling.running = true;
        self.next_due(now)
    }

    /// Ends the running sampling interval and does the work that is due at its end.
    pub(super) fn finish_sample(&mut self, now: Nanos, ops: &mut dyn Operations, sink: &mut dyn Sink) {
        self.sampling.running = false;
        self.schedule.passed += 1;
        self.check_accesses(ops);
        sink.on(&Event::Sampled { now });
        let aggregated = self.schedule.passed >= self.schedule.next_aggr;
        if aggregated {
            self.split_by_evidence();
            self.mark_unknown_regions();
            let reaccessed = self.reaccessed();
            let limits = self.merge_limits();
            merge_and_age(&mut self.targets, limits);
            self.derive_tables(&reaccessed, now);
            self.emit_snapshot(now, sink);
            self.update_auto_ages(now, sink);
        }
        self.apply_schemes_to_regions(ApplyTrigger::ApplyInterval, now, ops, sink);
        if aggregated {
            let tuned = self.tuned_attrs();
            self.begin_aggregation(now);
            self.choose_intervals(now, sink);
            if let Some(attrs) = tuned {
                self.change_to(attrs);
                self.aggr_start = Some(now);
                sink.on(&Event::Tuned { now, attrs: &attrs });
            }
        }
    }

    /// New attributes, if the intervals goal calls for a change.
    fn tuned_attrs(&mut self) -> Option<Attrs> {
        let tuner = self.tuner.as_mut().filter(|_| self.budget.is_none())?;
        tuner.after_aggregation(self.targets.iter().flat_map(|t| &t.regions), &self.attrs)
    }

    /// End of the sampling interval that begins now: one interval after the previous end. At least half an
    /// interval from now, so that on a slow machine access checks take at most two thirds of the time.
    fn next_due(&mut self, now: Nanos) -> Nanos {
        let regular = self.sampling.due.unwrap_or(now).saturating_add(self.attrs.sample);
        let due = regular.max(now.saturating_add(Nanos(self.attrs.sample.0 / 2)));
        self.sampling.due = Some(due);
        due
    }

    fn prepare_access_checks(&mut self, ops: &mut dyn Operations) {
        let probes = &mut self.sampling.probes;
        probes.clear();
        for target in &self.targets {
            for region in &target.regions {
                let pages = region.len().0 / PAGE_SIZE;
                let addr = Addr(region.range.start.0 + self.rng.below(pages) * PAGE_SIZE);
                probes.push(Probe {
                    target: target.id,
                    addr,
                    result: CheckResult::Unknown,
                });
            }
        }
        ops.prepare_access_checks(probes);
    }

    fn check_accesses(&mut self, ops: &mut dyn Operations) {
        let probes = &mut self.sampling.probes;
        if probes.is_empty() {
            return;
        }
        ops.check_accesses(probes);
        let max_nr_accesses = self.attrs.max_nr_accesses();
        let regions = self.targets.iter_mut().flat_map(|t| &mut t.regions);
        for (region, probe) in regions.zip(probes.iter()) {
            debug_assert!(region.range.contains(probe.addr));
            region.count_access_check(probe.result == CheckResult::Accessed, max_nr_accesses);
            region.nr_unknown += u32::from(probe.result == CheckResult::Unknown);
        }
        self.sampling.evidence.record(&self.sampling.probes);
        self.sampling.nr_checks += 1;
    }

    fn split_by_evidence(&mut self) {
        let Sampling {
            evidence, nr_checks, ..
        } = &self.sampling;
        evidence.split_regions(&mut self.targets, self.attrs.max_nr_regions, *nr_checks);
    }

    /// A region is unknown if no check found an access and at least half of the checks had no answer.
    fn mark_unknown_regions(&mut self) {
        let nr_checks = self.sampling.nr_checks;
        for region in self.targets.iter_mut().flat_map(|t| &mut t.regions) {
            region.unknown =
                region.nr_accesses == 0 && region.nr_unknown > 0 && region.nr_unknown * 2 >= nr_checks;
        }
    }

    fn begin_aggregation(&mut self, now: Nanos) {
        for region in self.targets.iter_mut().flat_map(|t| &mut t.regions) {
            region.last_nr_accesses = region.nr_accesses;
            region.nr_accesses = 0;
            region.nr_unknown = 0;
        }
        self.splitter
            .split(&mut self.targets, self.attrs.max_nr_regions, &mut self.rng);
        self.sampling.nr_checks = 0;
        self.sampling
            .evidence
            .begin(self.attrs.samples_in(self.attrs.aggr));
        self.aggr_start = Some(now);
        self.schedule.next_aggr = self.schedule.passed + self.attrs.samples_in(self.attrs.aggr);
    }

    fn merge_limits(&self) -> MergeLimits {
        let total: Bytes = self.targets.iter().map(Target::len).sum();
        MergeLimits {
            max_nr_regions: self.attrs.max_nr_regions,
            max_nr_accesses: self.attrs.max_nr_accesses(),
            sz_limit: Bytes((total.0 / self.attrs.min_nr_regions as u64).max(PAGE_SIZE)),
        }
    }
}

//! The one loop: look, sum up, apply schemes, split, look again.
//!
//! A [`Context`] is what the kernel calls a `damon_ctx` together with its thread's main function: everything a
//! kdamond remembers, and [`Context::step`], which is called once a sampling interval and says when to call it
//! again. Time comes in as an argument, the machine through [`Operations`], and what happens goes out to a
//! [`Sink`].

use crate::attrs::{Attrs, AttrsError};
use crate::monitoring::{MergeLimits, Splitter, Target, lay_out, merge_and_age, rescale};
use crate::ops::{Operations, OpsError, Probe, Seen, TargetLayout};
use crate::rng::Rng;
use crate::sink::{Event, Sink, TargetRegions};
use crate::units::{Bytes, Nanos};
use crate::{Addr, PAGE_SIZE};

/// One monitoring and its schemes.
#[derive(Debug)]
pub struct Context {
    attrs: Attrs,
    targets: Vec<Target>,
    rng: Rng,
    splitter: Splitter,
    schedule: Schedule,
    /// No region grows past this by merging.
    sz_limit: Bytes,
    /// The looks of the sampling interval that is running, in the order of regions.
    probes: Vec<Probe>,
    /// Looks counted in the aggregation that is running.
    looks: u32,
    /// When the aggregation that is running began.
    aggr_start: Nanos,
    /// The moment the running sampling interval should end; none before the first.
    due: Option<Nanos>,
}

/// What comes after how many sampling intervals, as in the kernel: counting them instead of reading clocks
/// keeps the intervals in step with each other however late a step is.
#[derive(Debug, Clone, Copy, Default)]
struct Schedule {
    passed: u64,
    next_aggr: u64,
    next_update: u64,
}

/// What to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Call again at this moment.
    At(Nanos),
    /// Every target is gone: there is nothing left to monitor.
    Finished,
}

impl Context {
    /// A context that monitors with `attrs`; all its random choices follow from `seed`.
    ///
    /// # Errors
    /// When `attrs` contradict themselves.
    pub fn new(attrs: Attrs, seed: u64) -> Result<Self, AttrsError> {
        attrs.check()?;
        Ok(Self {
            attrs,
            targets: Vec::new(),
            rng: Rng::new(seed),
            splitter: Splitter::default(),
            schedule: Schedule::default(),
            sz_limit: Bytes(PAGE_SIZE),
            probes: Vec::new(),
            looks: 0,
            aggr_start: Nanos::ZERO,
            due: None,
        })
    }

    /// The attributes it monitors with now.
    #[must_use]
    pub const fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// Changes the attributes while monitoring: regions keep their history, counts and ages are converted, and
    /// a new aggregation begins.
    ///
    /// # Errors
    /// When `attrs` contradict themselves; nothing changes then.
    pub fn set_attrs(&mut self, attrs: Attrs) -> Result<(), AttrsError> {
        attrs.check()?;
        if attrs == self.attrs {
            return Ok(());
        }
        rescale(&mut self.targets, &self.attrs, &attrs);
        self.attrs = attrs;
        self.sz_limit = self.merge_limit();
        self.looks = 0;
        if let Some(due) = self.due {
            self.aggr_start = due;
        }
        self.schedule.next_aggr = self.schedule.passed + attrs.samples_in(attrs.aggr);
        self.schedule.next_update = self.schedule.passed + attrs.samples_in(attrs.update);
        Ok(())
    }

    /// Every target with its regions, in the order targets appeared.
    pub fn targets(&self) -> impl Iterator<Item = TargetRegions<'_>> {
        self.targets.iter().map(|t| TargetRegions {
            id: t.id,
            pid: t.pid,
            regions: &t.regions,
        })
    }

    /// How many regions there are over all targets.
    #[must_use]
    pub fn nr_regions(&self) -> usize {
        self.targets.iter().map(|t| t.regions.len()).sum()
    }

    /// Ends the sampling interval that was running, does what is due at its end, and begins the next.
    ///
    /// # Errors
    /// When the operations as a whole failed; a target that vanished is an event, not an error.
    pub fn step(
        &mut self,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Result<Next, OpsError> {
        if self.due.is_none() {
            self.start(now, ops, sink)?;
        } else {
            self.finish_sample(now, ops, sink)?;
        }
        if self.targets.is_empty() && !ops.any_target_left() {
            return Ok(Next::Finished);
        }
        self.prepare_access_checks(ops);
        Ok(Next::At(self.next_due(now)))
    }

    fn start(&mut self, now: Nanos, ops: &mut dyn Operations, sink: &mut dyn Sink) -> Result<(), OpsError> {
        self.update_targets(now, ops, sink)?;
        self.aggr_start = now;
        self.schedule.next_aggr = self.attrs.samples_in(self.attrs.aggr);
        self.schedule.next_update = self.attrs.samples_in(self.attrs.update);
        Ok(())
    }

    fn finish_sample(
        &mut self,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Result<(), OpsError> {
        self.schedule.passed += 1;
        self.check_accesses(ops);
        sink.on(&Event::Sampled { now });
        let aggregated = self.schedule.passed >= self.schedule.next_aggr;
        if aggregated {
            self.judge_unknown();
            let limits = self.merge_limits();
            merge_and_age(&mut self.targets, limits);
            self.tell_aggregated(now, sink);
        }
        if aggregated {
            self.begin_aggregation(now);
        }
        if self.schedule.passed >= self.schedule.next_update {
            self.schedule.next_update = self.schedule.passed + self.attrs.samples_in(self.attrs.update);
            self.update_targets(now, ops, sink)?;
        }
        Ok(())
    }

    /// When the sampling interval that begins now should end: in step with the one before, but never so soon
    /// that looking would take more than two thirds of the time on a machine too slow for the interval.
    fn next_due(&mut self, now: Nanos) -> Nanos {
        let in_step = self.due.unwrap_or(now).saturating_add(self.attrs.sample);
        let due = in_step.max(now.saturating_add(Nanos(self.attrs.sample.0 / 2)));
        self.due = Some(due);
        due
    }

    fn prepare_access_checks(&mut self, ops: &mut dyn Operations) {
        self.probes.clear();
        for target in &mut self.targets {
            for region in &mut target.regions {
                let pages = region.len().0 / PAGE_SIZE;
                let addr = Addr(region.range.start.0 + self.rng.below(pages) * PAGE_SIZE);
                region.sampling_addr = Some(addr);
                self.probes.push(Probe {
                    target: target.id,
                    addr,
                    seen: Seen::Unknown,
                });
            }
        }
        ops.prepare_access_checks(&self.probes);
    }

    fn check_accesses(&mut self, ops: &mut dyn Operations) {
        ops.check_accesses(&mut self.probes);
        let max_nr_accesses = self.attrs.max_nr_accesses();
        let mut answers = self.probes.iter();
        let probed = self
            .targets
            .iter_mut()
            .flat_map(|t| &mut t.regions)
            .filter(|r| r.sampling_addr.is_some());
        for region in probed {
            let Some(probe) = answers.next() else { break };
            region.count_look(probe.seen == Seen::Accessed, max_nr_accesses);
            region.nr_unknown += u32::from(probe.seen == Seen::Unknown);
        }
        self.looks += 1;
    }

    fn judge_unknown(&mut self) {
        for region in self.targets.iter_mut().flat_map(|t| &mut t.regions) {
            region.unknown =
                region.nr_accesses == 0 && region.nr_unknown > 0 && region.nr_unknown * 2 >= self.looks;
        }
    }

    fn tell_aggregated(&self, now: Nanos, sink: &mut dyn Sink) {
        let targets: Vec<TargetRegions<'_>> = self.targets().collect();
        sink.on(&Event::Aggregated {
            start: self.aggr_start,
            end: now,
            attrs: &self.attrs,
            targets: &targets,
        });
    }

    fn begin_aggregation(&mut self, now: Nanos) {
        for region in self.targets.iter_mut().flat_map(|t| &mut t.regions) {
            region.last_nr_accesses = region.nr_accesses;
            region.nr_accesses = 0;
            region.nr_unknown = 0;
        }
        self.splitter
            .split(&mut self.targets, self.attrs.max_nr_regions, &mut self.rng);
        self.looks = 0;
        self.aggr_start = now;
        self.schedule.next_aggr = self.schedule.passed + self.attrs.samples_in(self.attrs.aggr);
    }

    /// Takes over the targets the operations see now: new ones are laid out, gone ones leave, the rest keep
    /// their history.
    fn update_targets(
        &mut self,
        now: Nanos,
        ops: &mut dyn Operations,
        sink: &mut dyn Sink,
    ) -> Result<(), OpsError> {
        let layouts = ops.update()?;
        self.targets.retain(|target| {
            let lives = layouts.iter().any(|layout| layout.id == target.id);
            if !lives {
                sink.on(&Event::TargetGone {
                    now,
                    id: target.id,
                    pid: target.pid,
                });
            }
            lives
        });
        let total: Bytes = layouts
            .iter()
            .flat_map(|layout| &layout.ranges)
            .map(|range| range.len())
            .sum();
        let first_sz = Bytes(total.0 / self.attrs.min_nr_regions as u64);
        for layout in layouts {
            self.take_over(layout, first_sz, now, sink);
        }
        self.sz_limit = self.merge_limit();
        Ok(())
    }

    fn take_over(&mut self, layout: TargetLayout, first_sz: Bytes, now: Nanos, sink: &mut dyn Sink) {
        let TargetLayout { id, pid, ranges } = layout;
        match self.targets.iter_mut().find(|target| target.id == id) {
            Some(target) if target.regions.is_empty() => target.regions = lay_out(&ranges, first_sz),
            Some(target) => target.set_ranges(&ranges),
            None => {
                sink.on(&Event::TargetAppeared {
                    now,
                    id,
                    pid,
                    ranges: &ranges,
                });
                self.targets.push(Target {
                    id,
                    pid,
                    regions: lay_out(&ranges, first_sz),
                });
            }
        }
    }

    fn merge_limits(&self) -> MergeLimits {
        MergeLimits {
            max_nr_regions: self.attrs.max_nr_regions,
            max_nr_accesses: self.attrs.max_nr_accesses(),
            sz_limit: self.sz_limit,
        }
    }

    fn merge_limit(&self) -> Bytes {
        let total: Bytes = self.targets.iter().map(Target::len).sum();
        Bytes((total.0 / self.attrs.min_nr_regions as u64).max(PAGE_SIZE))
    }
}

//! Makes totals continuous: those of schemes and of the cost begin anew with each start of the agent.

use std::collections::BTreeMap;

use thermo_units::Nanos;

use super::wall_clock;
use crate::model::{Cost, Record, SchemeApplied};

/// A counter over several starts of whatever counts.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    last: u64,
    sum: u64,
}

impl Counter {
    /// The counter stands at `value`. A lower value than before: it began anew. What it rose by counts if
    /// `is_counted`.
    fn set(&mut self, value: u64, is_counted: bool) -> u64 {
        let rise = value.checked_sub(self.last).unwrap_or(value);
        self.last = value;
        self.sum = self.sum.saturating_add(if is_counted { rise } else { 0 });
        self.sum
    }
}

/// The totals of one policy.
#[derive(Debug, Default)]
pub(super) struct Continuity {
    segment_start: Nanos,
    schemes: BTreeMap<u32, [Counter; 7]>,
    cost: [Counter; 2],
}

impl Continuity {
    /// A segment begins. What it repeats of the one before has an earlier time.
    pub(super) const fn begin_segment(&mut self, start: Nanos) {
        self.segment_start = start;
    }

    /// The record with totals of the whole part that is read. `None`: it is repeated, or before the part.
    pub(super) fn add(&mut self, record: Record, is_counted: bool) -> Option<Record> {
        let is_repeated = wall_clock::time(&record) < self.segment_start;
        let is_counted = is_counted && !is_repeated;
        let record = match record {
            Record::Scheme(applied) => Record::Scheme(self.scheme(applied, is_counted)),
            Record::Cost(cost) => Record::Cost(self.cost(cost, is_counted)),
            other => other,
        };
        is_counted.then_some(record)
    }

    fn scheme(&mut self, applied: SchemeApplied, is_counted: bool) -> SchemeApplied {
        let counters = self.schemes.entry(applied.index).or_default();
        // The scheme was replaced by another: no total of it goes on.
        if applied.nr_tried < counters[0].last {
            counters.iter_mut().for_each(|counter| counter.last = 0);
        }
        let [tried, sz_tried, nr_applied, sz_applied, passed, changed, exceeds] = counters;
        SchemeApplied {
            nr_tried: tried.set(applied.nr_tried, is_counted),
            sz_tried: sz_tried.set(applied.sz_tried, is_counted),
            nr_applied: nr_applied.set(applied.nr_applied, is_counted),
            sz_applied: sz_applied.set(applied.sz_applied, is_counted),
            sz_ops_filter_passed: passed.set(applied.sz_ops_filter_passed, is_counted),
            sz_changed: changed.set(applied.sz_changed, is_counted),
            qt_exceeds: exceeds.set(applied.qt_exceeds, is_counted),
            ..applied
        }
    }

    fn cost(&mut self, cost: Cost, is_counted: bool) -> Cost {
        let [cpu, monitoring] = &mut self.cost;
        Cost {
            cpu_ns: cpu.set(cost.cpu_ns, is_counted),
            monitoring_cpu_ns: monitoring.set(cost.monitoring_cpu_ns, is_counted),
            ..cost
        }
    }
}

//! What happens to the targets between two exports.

use std::collections::{BTreeMap, BTreeSet};

use thermo_actions::Returns;
use thermo_engine::access_tables::NR_AGES;
use thermo_engine::ops::Applied;
use thermo_fleet::Row;
use thermo_units::{Bytes, Nanos};

use crate::ledger::fair_table::{FairTable, Value};

/// Targets are counted apart up to this number: names may come from users. Further ones share a row of their
/// policy.
const MAX_TARGETS: usize = 4096;

/// Sums by policy and target.
#[derive(Debug)]
pub struct Sums {
    targets: FairTable<Sum>,
    /// Re-accesses since the agent started, as the last export saw them.
    reaccessed: BTreeMap<(String, String), [Bytes; NR_AGES]>,
    /// CPU time of acting, of all targets.
    acting: Nanos,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            targets: FairTable::new(MAX_TARGETS),
            reaccessed: BTreeMap::new(),
            acting: Nanos::ZERO,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    paged_out: Bytes,
    back: Bytes,
    watching: Nanos,
    acting: Nanos,
}

impl Value for Sum {
    fn fold(&mut self, other: Self) {
        self.paged_out += other.paged_out;
        self.back += other.back;
        self.watching += other.watching;
        self.acting += other.acting;
    }
}

impl Sums {
    /// Adds the result of an action.
    pub fn add_applied(&mut self, policy: &str, target: &str, action: &str, applied: &Applied) {
        if action == "pageout" {
            let bytes = applied.changed.unwrap_or(applied.applied);
            self.change(policy, target, |sum| sum.paged_out += bytes);
        }
    }

    /// Adds what came back.
    pub fn add_returns(&mut self, policy: &str, target: &str, returns: &Returns) {
        self.change(policy, target, |sum| sum.back += returns.back());
    }

    /// Adds CPU time of watching and acting.
    pub fn add_cpu(&mut self, policy: &str, target: &str, (watching, acting): (Nanos, Nanos)) {
        self.acting += acting;
        self.change(policy, target, |sum| {
            sum.watching += watching;
            sum.acting += acting;
        });
    }

    fn change(&mut self, policy: &str, target: &str, change: impl FnOnce(&mut Sum)) {
        change(self.targets.change(policy, target).value);
    }

    /// Moves the sums into the rows of their targets, and begins anew. `reaccessed` has the re-accesses of
    /// each row's target since the agent started. Targets that have ended get a row of their own. Returns
    /// the CPU time of acting in microseconds, too.
    pub fn take(&mut self, rows: &mut Vec<Row>, reaccessed: &[[Bytes; NR_AGES]]) -> u64 {
        let mut living = BTreeSet::new();
        let all = self.targets.take().into_iter();
        let mut sums: BTreeMap<(String, String), Sum> =
            all.map(|(policy, target, sum)| ((policy, target), sum)).collect();
        for (row, reaccessed) in rows.iter_mut().zip(reaccessed) {
            let key = (row.policy.clone(), row.target.clone());
            let before = self.reaccessed.entry(key.clone()).or_default();
            for ((delta, now), before) in row
                .reaccess_bytes
                .iter_mut()
                .zip(reaccessed)
                .zip(before.iter_mut())
            {
                // A policy that begins anew counts from zero.
                *delta = now.0.checked_sub(before.0).unwrap_or(now.0);
                *before = *now;
            }
            if let Some(sum) = sums.remove(&key) {
                sum.fill(row);
            }
            living.insert(key);
        }
        self.reaccessed.retain(|key, _| living.contains(key));
        for ((policy, target), sum) in sums {
            let mut row = Row {
                workload: target.clone(),
                policy,
                target,
                ..Row::default()
            };
            sum.fill(&mut row);
            rows.push(row);
        }
        microseconds(std::mem::take(&mut self.acting))
    }
}

impl Sum {
    const fn fill(self, row: &mut Row) {
        row.paged_out_bytes = self.paged_out.0;
        row.back_bytes = self.back.0;
        row.watching_cpu_us = microseconds(self.watching);
        row.acting_cpu_us = microseconds(self.acting);
    }
}

const fn microseconds(time: Nanos) -> u64 {
    time.0 / 1000
}

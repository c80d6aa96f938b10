//! What a policy saw and did since the last look: from its kdamond to its targets and its history.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_kernel::clock::WallClock;
use thermo_kernel::statm;
use thermo_recording::history::Clocks;
use thermo_recording::model::{Cost, Record};
use thermo_units::{Bytes, Nanos};

use super::sink::Report;
use super::worker::{Collected, Progress};
use super::{Activity, Policy, RESTART_AFTER, TargetState};
use crate::pressure::SwapState;

/// An action that takes longer is warned of.
const LONG_ACTION: Nanos = Nanos::secs(60);
/// Sizes and mappings of processes are read so often.
const SIZES_EVERY: Nanos = Nanos::secs(5);
/// That may take one part in so many of the policy's budget. Of many processes, the next ones are read in
/// turn.
const SURVEY_PART: u64 = 8;

impl Policy {
    /// Takes what happened since the last call, and updates the targets.
    pub fn collect(&mut self, now: Nanos, swap: &SwapState) -> Activity {
        let Some(worker) = &mut self.worker else {
            self.targets.clear();
            return Activity::default();
        };
        let collected = match worker.collect() {
            Progress::Done(collected) => collected,
            // The targets stay as they were last seen.
            Progress::Busy => return self.busy(now),
            Progress::Ended => return self.ended(now),
        };
        let cpu = self.count_cpu(&collected);
        self.used.add(cpu.0, now.saturating_sub(self.last_collect));
        self.wants_more = collected.wants_more_budget;
        (self.last_collect, self.is_long_busy) = (now, false);
        let returns = self.update_targets(&collected, now, swap);
        self.read_sizes(&collected, now);
        let Report {
            applied,
            ages,
            warnings,
            ..
        } = collected.report;
        Activity {
            applied,
            returns,
            ages: self.take_ages(ages),
            warnings,
            cpu,
        }
    }

    fn ended(&mut self, now: Nanos) -> Activity {
        self.stop();
        let why = self
            .error
            .get_or_insert_with(|| "its kdamond has ended".to_owned());
        let warnings = vec![format!("{why}; the policy starts again in {RESTART_AFTER}")];
        self.restart_at = now.saturating_add(RESTART_AFTER);
        Activity {
            warnings,
            ..Activity::default()
        }
    }

    /// Warns once of an action that takes long.
    fn busy(&mut self, now: Nanos) -> Activity {
        let time = now.saturating_sub(self.last_collect);
        let is_long = time > LONG_ACTION && !std::mem::replace(&mut self.is_long_busy, true);
        let warning = format!(
            "an action takes more than {LONG_ACTION}: give its scheme a quota, or pause the policy to stop it"
        );
        Activity {
            warnings: Some(warning).filter(|_| is_long).into_iter().collect(),
            ..Activity::default()
        }
    }

    /// Keeps automatic ages. Returns the reasons of their changes.
    fn take_ages(&mut self, ages: Vec<(usize, Option<Nanos>, String)>) -> Vec<String> {
        let keep = |(scheme, age, why): (usize, Option<Nanos>, String)| {
            self.ages.insert(scheme, age);
            why
        };
        ages.into_iter().map(keep).collect()
    }

    fn count_cpu(&mut self, collected: &Collected) -> (Nanos, Nanos) {
        let now = (collected.cpu.monitoring, collected.acting);
        let watching = now.0.saturating_sub(self.last_cpu.0);
        let acting = now.1.saturating_sub(self.last_cpu.1);
        self.last_cpu = now;
        self.watching += watching;
        self.acting += acting;
        (watching, acting)
    }

    /// Returns what became of memory that was paged out, by target.
    fn update_targets(
        &mut self,
        collected: &Collected,
        now: Nanos,
        swap: &SwapState,
    ) -> Vec<(String, thermo_actions::Returns)> {
        self.targets.values_mut().for_each(TargetState::begin);
        let report = &collected.report;
        for watched in &report.watched {
            let target = self.targets.entry(watched.name.clone()).or_default();
            target.add_process(watched.pid, watched.tables.as_deref());
        }
        let mut all = Vec::new();
        let names = names(report);
        for (id, returns) in &collected.returns {
            let Some(name) = names.get(&id.0).copied() else {
                continue;
            };
            if let Some(target) = self.targets.get_mut(name) {
                target.add_returns(returns, now);
                all.push((name.to_owned(), *returns));
            }
        }
        self.targets.retain(|_, target| !target.pids.is_empty());
        for (name, target) in &mut self.targets {
            target.update_net_saved(swap.cost.unwrap_or_default());
            target.reaccessed = report.reaccessed.get(name).copied().unwrap_or_default();
        }
        all
    }

    /// Reads sizes and mappings of the processes, for the targets and for the history.
    fn read_sizes(&mut self, collected: &Collected, now: Nanos) {
        let report = &collected.report;
        let targets: Vec<(u32, u32)> = report
            .watched
            .iter()
            .map(|watched| (watched.id.0, watched.pid))
            .collect();
        let mut records = Vec::new();
        if now >= self.next_sizes {
            self.next_sizes = now.saturating_add(SIZES_EVERY);
            let slice = Nanos(self.share.of(SIZES_EVERY).0 / SURVEY_PART);
            records.extend(self.survey.look(&targets, slice));
            self.add_swap(report, &records);
            records.push(Record::Cost(Cost {
                time_ns: now.0,
                cpu_ns: collected.cpu.total.0,
                monitoring_cpu_ns: collected.cpu.monitoring.0,
                rss: statm::read(Path::new("/"), std::process::id()).map_or(0, |statm| statm.resident.0),
            }));
        }
        if let Some(worker) = &self.worker {
            let unix = WallClock::now().unix(now);
            worker.write_history(records, Clocks { monotonic: now, unix });
        }
    }

    fn add_swap(&mut self, report: &Report, records: &[Record]) {
        let names = names(report);
        self.swap.retain(|target, _| names.contains_key(target));
        for record in records {
            if let Record::Footprint(footprint) = record {
                self.swap.insert(footprint.target, Bytes(footprint.swap));
            }
        }
        self.targets
            .values_mut()
            .for_each(|target| target.swap = Bytes::ZERO);
        for (target, swap) in &self.swap {
            let name = names.get(target).copied();
            if let Some(target) = name.and_then(|name| self.targets.get_mut(name)) {
                target.swap += *swap;
            }
        }
    }
}

/// The names of the targets that the watched processes belong to, by their number.
fn names(report: &Report) -> BTreeMap<u32, &str> {
    let watched = report.watched.iter();
    watched
        .map(|watched| (watched.id.0, watched.name.as_str()))
        .collect()
}

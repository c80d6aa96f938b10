//! The sink of a policy's kdamond: keeps what was seen and done until the agent takes it.

use std::collections::{BTreeMap, BTreeSet};

use thermo_engine::access_tables::{AccessTables, NR_AGES};
use thermo_engine::ops::{Applied, TargetId};
use thermo_engine::{Event, Sink};
use thermo_kernel::clock;
use thermo_recording::history::{Clocks, SegmentWriter};
use thermo_recording::model::Record;
use thermo_units::{Bytes, Nanos};

/// Re-accesses are kept of so many targets that have ended: names may come from users. Beyond, all of these
/// are forgotten.
const MAX_ENDED: usize = 1024;

/// What a policy saw and did since the agent asked last.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The living targets with complete tables, by process.
    pub watched: Vec<Watched>,
    /// Bytes that were accessed again since the start, by target name and idle age.
    pub reaccessed: BTreeMap<String, [Bytes; NR_AGES]>,
    /// Results of actions since the last report, by scheme and target name.
    pub applied: BTreeMap<(usize, String), Applied>,
    /// Changes of automatic ages, by scheme: the age, `None` if nothing is acted on, and the reason.
    pub ages: Vec<(usize, Option<Nanos>, String)>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// A process that is watched.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Its target in the context.
    pub id: TargetId,
    /// The process number.
    pub pid: u32,
    /// Name of the target that it belongs to.
    pub name: String,
    /// Its access tables, as last seen; `None` before the first snapshot, and where only regions are known.
    pub tables: Option<Box<AccessTables>>,
}

/// The sink of a policy.
#[derive(Default)]
pub struct PolicySink {
    /// Names of targets by process.
    names: BTreeMap<u32, String>,
    watched: BTreeMap<TargetId, Watched>,
    report: Report,
    history: Option<SegmentWriter>,
}

impl PolicySink {
    /// A sink that also writes the history.
    #[must_use]
    pub fn new(history: Option<SegmentWriter>) -> Self {
        Self {
            history,
            ..Self::default()
        }
    }

    /// Writes what is due, and `records` that the agent has read.
    pub fn write_history(&mut self, records: &[Record], now: Clocks) {
        if let Some(history) = &mut self.history {
            records.iter().for_each(|record| history.record(record));
            history.tick(now);
            self.report.warnings.extend(history.take_warnings());
        }
    }

    /// Sets the actions of the schemes, for the history.
    pub fn set_actions(&mut self, actions: Vec<String>) {
        if let Some(history) = &mut self.history {
            history.set_actions(actions);
        }
    }

    /// Ends the history in order. Returns what could not be written.
    pub fn finish(&mut self) -> Vec<String> {
        self.history.take().map(SegmentWriter::finish).unwrap_or_default()
    }

    /// Sets the names of targets, by process. A process that is watched already keeps its target's history
    /// under the new name.
    pub fn set_names(&mut self, names: BTreeMap<u32, String>) {
        for watched in self.watched.values_mut() {
            let Some(name) = names.get(&watched.pid).filter(|name| **name != watched.name) else {
                continue;
            };
            watched.name.clone_from(name);
            if let Some(history) = &mut self.history {
                history.name(clock::monotonic(), watched.id, Some(watched.pid), name);
            }
        }
        self.names = names;
    }

    /// What was seen and done since the last call. Re-accesses are sums since the start.
    pub fn take(&mut self) -> Report {
        self.forget_ended();
        let next = Report {
            reaccessed: self.report.reaccessed.clone(),
            ..Report::default()
        };
        let mut report = std::mem::replace(&mut self.report, next);
        report.watched = self.watched.values().cloned().collect();
        report
    }

    fn forget_ended(&mut self) {
        if self.report.reaccessed.len() <= MAX_ENDED {
            return;
        }
        let living: BTreeSet<&str> = self
            .watched
            .values()
            .map(|watched| watched.name.as_str())
            .collect();
        if self.report.reaccessed.len() > living.len() + MAX_ENDED {
            self.report
                .reaccessed
                .retain(|name, _| living.contains(name.as_str()));
        }
    }

    fn appeared(&mut self, now: Nanos, id: TargetId, pid: u32) {
        let name = self
            .names
            .get(&pid)
            .cloned()
            .unwrap_or_else(|| format!("pid {pid}"));
        if let Some(history) = &mut self.history {
            history.name(now, id, Some(pid), &name);
        }
        let tables = None;
        self.watched.insert(
            id,
            Watched {
                id,
                pid,
                name,
                tables,
            },
        );
    }

    fn name(&self, id: TargetId) -> Option<&str> {
        self.watched.get(&id).map(|watched| watched.name.as_str())
    }

    fn add_tables(&mut self, id: TargetId, tables: &AccessTables) {
        let Some(watched) = self.watched.get_mut(&id) else {
            return;
        };
        let sums = self.report.reaccessed.entry(watched.name.clone()).or_default();
        for (sum, bytes) in sums.iter_mut().zip(&tables.reaccessed) {
            *sum += *bytes;
        }
        watched.tables = Some(Box::new(*tables));
    }
}

impl Sink for PolicySink {
    fn on(&mut self, event: &Event<'_>) {
        if let Some(history) = &mut self.history {
            history.on(event);
        }
        match event {
            Event::TargetAppeared {
                now,
                id,
                pid: Some(pid),
                ..
            } => self.appeared(*now, *id, *pid),
            Event::TargetGone { id, .. } => drop(self.watched.remove(id)),
            Event::Aggregated { targets, .. } => {
                for target in *targets {
                    if let Some(tables) = target.tables {
                        self.add_tables(target.id, tables);
                    }
                }
            }
            Event::SchemeApplied {
                scheme, by_target, ..
            } => {
                for (id, applied) in *by_target {
                    if let Some(name) = self.name(*id).map(str::to_owned) {
                        self.report
                            .applied
                            .entry((*scheme, name))
                            .or_default()
                            .add(applied);
                    }
                }
            }
            Event::AutoAge { scheme, decision, .. } => {
                self.report
                    .ages
                    .push((*scheme, decision.age, decision.to_string()));
            }
            Event::Warning { text, .. } => self.report.warnings.push((*text).to_owned()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use thermo_engine::Attrs;
    use thermo_engine::budget::Method;
    use thermo_engine::ops::Skip;
    use thermo_engine::scheme::SchemeStats;
    use thermo_engine::sink::TargetRegions;
    use thermo_units::Nanos;

    use super::*;

    fn appear(sink: &mut PolicySink, id: u32, pid: u32) {
        sink.on(&Event::TargetAppeared {
            now: Nanos::ZERO,
            id: TargetId(id),
            pid: Some(pid),
            ranges: &[],
        });
    }

    fn snapshot(sink: &mut PolicySink, id: u32, pid: u32, tables: &AccessTables) {
        let target = TargetRegions {
            id: TargetId(id),
            pid: Some(pid),
            method: Method::Scan,
            regions: &[],
            tables: Some(tables),
            averaged: Bytes::ZERO,
        };
        sink.on(&Event::Aggregated {
            start: Nanos::ZERO,
            end: Nanos::secs(1),
            attrs: &Attrs::default(),
            targets: &[target],
        });
    }

    #[test]
    fn reaccesses_add_up_by_name_also_after_the_end() {
        let mut sink = PolicySink::default();
        sink.set_names(BTreeMap::from([(7, "web".to_owned()), (8, "web".to_owned())]));
        appear(&mut sink, 0, 7);
        appear(&mut sink, 1, 8);
        let mut tables = AccessTables::new(Method::Scan);
        tables.reaccessed[3] = Bytes::mib(1);
        snapshot(&mut sink, 0, 7, &tables);
        snapshot(&mut sink, 1, 8, &tables);
        let (now, id, pid) = (Nanos::ZERO, TargetId(1), Some(8));
        sink.on(&Event::TargetGone { now, id, pid });
        let report = sink.take();
        assert_eq!(
            (report.watched.len(), report.reaccessed["web"][3]),
            (1, Bytes::mib(2))
        );
        assert_eq!(
            sink.take().reaccessed["web"][3],
            Bytes::mib(2),
            "sums since the start"
        );
    }

    #[test]
    fn reaccesses_of_short_lived_names_are_forgotten() {
        let mut sink = PolicySink::default();
        let mut tables = AccessTables::new(Method::Scan);
        tables.reaccessed[3] = Bytes::mib(1);
        let nr = u32::try_from(3 * MAX_ENDED).unwrap_or_default();
        sink.set_names((0..=nr).map(|pid| (pid, format!("name-{pid}"))).collect());
        appear(&mut sink, nr, nr);
        snapshot(&mut sink, nr, nr, &tables);
        for id in 0..nr {
            appear(&mut sink, id, id);
            snapshot(&mut sink, id, id, &tables);
            let (now, id, pid) = (Nanos::ZERO, TargetId(id), Some(id));
            sink.on(&Event::TargetGone { now, id, pid });
            sink.take();
        }
        let reaccessed = sink.take().reaccessed;
        assert!(reaccessed.len() <= MAX_ENDED + 1, "{}", reaccessed.len());
        assert_eq!(reaccessed[&format!("name-{nr}")][3], Bytes::mib(1));
    }

    #[test]
    fn results_are_taken_once_by_name() {
        let mut sink = PolicySink::default();
        sink.set_names(BTreeMap::from([(7, "web".to_owned())]));
        appear(&mut sink, 0, 7);
        let applied = Applied {
            applied: Bytes::mib(2),
            skipped: vec![(Skip::Young, Bytes::mib(1))],
            ..Applied::default()
        };
        let by_target = [(TargetId(0), applied.clone()), (TargetId(9), applied)];
        sink.on(&Event::SchemeApplied {
            now: Nanos::ZERO,
            scheme: 0,
            tried: &[],
            skipped: &[],
            by_target: &by_target,
            stats: &SchemeStats::default(),
        });
        let report = sink.take();
        assert_eq!(report.applied[&(0, "web".to_owned())].applied, Bytes::mib(2));
        assert!(sink.take().applied.is_empty());
    }
}

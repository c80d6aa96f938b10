//! Records that the session reads besides accesses: mappings and sizes of the targets, and its own cost.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_kernel::statm::{self, Statm};
use thermo_kernel::{clock, maps, status};
use thermo_recording::model::{Cost, Footprint, Mapping, Mappings, Record};
use thermo_targets::Reread;
use thermo_units::{Nanos, Turn};

use crate::kdamond::CpuTime;

/// Looks at the sizes and mappings of targets, in turn.
#[derive(Debug, Default)]
pub struct Survey {
    known: BTreeMap<u32, Known>,
    turn: Turn<u32>,
}

/// What is known of a target.
#[derive(Debug, Default)]
struct Known {
    mappings: Vec<Mapping>,
    reread: Reread,
}

impl Survey {
    /// Looks at the next of `targets` (target number, process ID) until `slice` of CPU time has
    /// passed, and at most once at each. The records have its sizes, and its mappings if they changed. A
    /// process that has ended gives no record.
    pub fn look(&mut self, targets: &[(u32, u32)], slice: Nanos) -> Vec<Record> {
        let targets: BTreeMap<u32, u32> = targets.iter().copied().collect();
        self.known.retain(|target, _| targets.contains_key(target));
        let (began, mut records) = (clock::thread_cpu(), Vec::new());
        for (target, pid) in self.turn.entries(&targets) {
            if let Some((footprint, sizes)) = footprint(*target, *pid) {
                records.extend(self.changed(*target, *pid, sizes));
                records.push(Record::Footprint(footprint));
            }
            self.turn.set(*target);
            if clock::thread_cpu().saturating_sub(began) >= slice {
                break;
            }
        }
        records
    }

    fn changed(&mut self, target: u32, pid: u32, sizes: Statm) -> Option<Record> {
        let (now, began) = (clock::monotonic(), clock::thread_cpu());
        let known = self.known.entry(target).or_default();
        if !(known.reread.look(Some(sizes)) && known.reread.may_read(now)) {
            return None;
        }
        let mappings: Vec<Mapping> = maps::read(Path::new("/"), pid)
            .ok()?
            .into_iter()
            .map(mapping)
            .collect();
        let cost = clock::thread_cpu().saturating_sub(began);
        known.reread = Reread::after_read(sizes, now, cost);
        if known.mappings == mappings {
            return None;
        }
        known.mappings.clone_from(&mappings);
        Some(Record::Mappings(Mappings {
            time_ns: clock::monotonic().0,
            target,
            mappings,
        }))
    }
}

/// The memory sizes of `targets` (target number, process ID).
pub fn footprints(targets: &[(u32, u32)]) -> Vec<Record> {
    targets
        .iter()
        .filter_map(|(target, pid)| footprint(*target, *pid))
        .map(|(footprint, _)| Record::Footprint(footprint))
        .collect()
}

/// The cost of monitoring since `cpu_begin`: CPU time of our own threads, and of the kernel on our behalf.
pub fn cost(cpu_begin: Nanos, kdamond: CpuTime) -> Record {
    let rss = statm::read(Path::new("/"), std::process::id()).map_or(0, |statm| statm.resident.0);
    Record::Cost(Cost {
        time_ns: clock::monotonic().0,
        cpu_ns: (clock::process_cpu().saturating_sub(cpu_begin) + kdamond.delegated).0,
        monitoring_cpu_ns: kdamond.monitoring.0,
        rss,
    })
}

fn footprint(target: u32, pid: u32) -> Option<(Footprint, Statm)> {
    let root = Path::new("/");
    let statm = statm::read(root, pid).ok()?;
    let status = status::read(root, pid).ok()?;
    let footprint = Footprint {
        time_ns: clock::monotonic().0,
        target,
        vsz: statm.size.0,
        rss: statm.resident.0,
        swap: status.vm_swap.0,
    };
    Some((footprint, statm))
}

fn mapping(mapping: maps::Mapping) -> Mapping {
    Mapping {
        start: mapping.range.start.0,
        end: mapping.range.end.0,
        name: mapping.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(records: &[Record], is: impl Fn(&Record) -> bool) -> usize {
        records.iter().filter(|record| is(record)).count()
    }

    #[test]
    fn mappings_are_read_again_for_returning_target() {
        let ourselves = [(7, std::process::id())];
        let mut survey = Survey::default();
        let mut look = |targets| {
            let records = survey.look(targets, Nanos::MAX);
            let mappings = count(&records, |record| matches!(record, Record::Mappings(_)));
            (mappings, records.len() - mappings)
        };
        assert_eq!(look(&ourselves), (1, 1));
        assert_eq!(look(&[]), (0, 0));
        assert_eq!(look(&ourselves), (1, 1));
    }

    #[test]
    fn of_many_targets_the_next_ones_are_looked_at() {
        let us = std::process::id();
        let targets = [(3, us), (5, u32::MAX), (8, us)];
        let mut survey = Survey::default();
        let mut look = |slice| {
            let records = survey.look(&targets, slice);
            let of_target = records.iter().filter_map(|record| match record {
                Record::Footprint(footprint) => Some(footprint.target),
                _ => None,
            });
            of_target.collect::<Vec<u32>>()
        };
        assert_eq!(look(Nanos::ZERO), [3]);
        assert_eq!(look(Nanos::ZERO), [0; 0], "it has ended");
        assert_eq!(look(Nanos::ZERO), [8]);
        assert_eq!(look(Nanos::MAX), [3, 8]);
    }

    #[test]
    fn footprints_leave_out_ended_process() {
        assert!(footprints(&[(0, u32::MAX)]).is_empty());
        assert_eq!(footprints(&[(0, std::process::id())]).len(), 1);
    }
}

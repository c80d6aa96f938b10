//! Records that the session reads besides accesses: mappings and sizes of the targets, and its own cost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use thermo_kernel::statm::{self, Statm};
use thermo_kernel::{clock, maps, status};
use thermo_recording::model::{Cost, Footprint, Mapping, Mappings, Record};
use thermo_units::Nanos;

use crate::kdamond::CpuTime;

/// Looks at the sizes and mappings of targets, in turn.
#[derive(Debug, Default)]
pub struct Survey {
    known: BTreeMap<u32, Known>,
    /// The target that was looked at last.
    turn: Option<u32>,
}

/// What is known of a target.
#[derive(Debug, Default)]
struct Known {
    mappings: Vec<Mapping>,
    /// The sizes when the mappings were read.
    sizes: Statm,
    /// When they may be read again: a process with very many mappings takes a small part of the time.
    may_read_at: Nanos,
    /// Looks since they were read.
    looks: u32,
}

/// Reading the mappings of one target takes at most this part of the time of one CPU.
const READ_DIVISOR: u64 = 256;
/// After so many looks the mappings are read also if the sizes are the same.
const MAX_LOOKS: u32 = 8;

impl Survey {
    /// Looks at the next of `targets` (target number, process ID; ascending) until `slice` of CPU time has
    /// passed, and at most once at each. The records have its sizes, and its mappings if they changed. A
    /// process that has ended gives no record.
    pub fn look(&mut self, targets: &[(u32, u32)], slice: Nanos) -> Vec<Record> {
        let living: BTreeSet<u32> = targets.iter().map(|(target, _)| *target).collect();
        self.known.retain(|target, _| living.contains(target));
        let next = targets.partition_point(|(target, _)| self.turn.is_some_and(|turn| *target <= turn));
        let (before, after) = targets.split_at(next);
        let (began, mut records) = (clock::thread_cpu(), Vec::new());
        for (target, pid) in after.iter().chain(before) {
            if let Some((footprint, sizes)) = footprint(*target, *pid) {
                records.extend(self.changed(*target, *pid, sizes));
                records.push(Record::Footprint(footprint));
            }
            self.turn = Some(*target);
            if clock::thread_cpu().saturating_sub(began) >= slice {
                break;
            }
        }
        records
    }

    fn changed(&mut self, target: u32, pid: u32, sizes: Statm) -> Option<Record> {
        let (now, began) = (clock::monotonic(), clock::thread_cpu());
        let known = self.known.entry(target).or_default();
        known.looks += 1;
        let is_same = (sizes.size, sizes.data) == (known.sizes.size, known.sizes.data);
        if is_same && known.looks <= MAX_LOOKS || now < known.may_read_at {
            return None;
        }
        let mappings: Vec<Mapping> = maps::read(Path::new("/"), pid)
            .ok()?
            .into_iter()
            .map(mapping)
            .collect();
        let cost = clock::thread_cpu().saturating_sub(began);
        (known.sizes, known.looks) = (sizes, 0);
        known.may_read_at = now.saturating_add(cost * READ_DIVISOR);
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

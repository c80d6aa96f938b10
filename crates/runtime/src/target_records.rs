//! Records that the session reads besides accesses: mappings and sizes of the targets, and its own cost.

use std::collections::BTreeMap;
use std::path::Path;

use thermo_kernel::{clock, maps, statm, status};
use thermo_recording::model::{Cost, Footprint, Mapping, Mappings, Record};
use thermo_units::Nanos;

use crate::kdamond::CpuTime;

/// Reads the mappings that changed since the last call.
#[derive(Debug, Default)]
pub struct MappingChanges {
    known: BTreeMap<u32, Vec<Mapping>>,
}

impl MappingChanges {
    /// The mappings of `targets` (target number, process ID) whose mappings changed. A process that has ended
    /// gives no record.
    pub fn mappings(&mut self, targets: &[(u32, u32)]) -> Vec<Record> {
        self.known
            .retain(|target, _| targets.iter().any(|(living, _)| living == target));
        targets
            .iter()
            .filter_map(|(target, pid)| self.changed(*target, *pid))
            .collect()
    }

    fn changed(&mut self, target: u32, pid: u32) -> Option<Record> {
        let mappings: Vec<Mapping> = maps::read(Path::new("/"), pid)
            .ok()?
            .into_iter()
            .map(mapping)
            .collect();
        let known = self.known.entry(target).or_default();
        if *known == mappings {
            return None;
        }
        known.clone_from(&mappings);
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
        .map(Record::Footprint)
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

fn footprint(target: u32, pid: u32) -> Option<Footprint> {
    let root = Path::new("/");
    let statm = statm::read(root, pid).ok()?;
    let status = status::read(root, pid).ok()?;
    Some(Footprint {
        time_ns: clock::monotonic().0,
        target,
        vsz: statm.size.0,
        rss: statm.resident.0,
        swap: status.vm_swap.0,
    })
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

    #[test]
    fn mappings_are_read_again_for_returning_target() {
        let ourselves = [(7, std::process::id())];
        let mut changes = MappingChanges::default();
        assert_eq!(changes.mappings(&ourselves).len(), 1);
        // An immediate second call may give a record or not: other test threads map memory.
        assert!(changes.mappings(&[]).is_empty());
        assert_eq!(changes.mappings(&ourselves).len(), 1);
    }

    #[test]
    fn footprints_leave_out_ended_process() {
        assert!(footprints(&[(0, u32::MAX)]).is_empty());
        assert_eq!(footprints(&[(0, std::process::id())]).len(), 1);
    }
}

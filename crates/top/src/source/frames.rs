//! The access tables of a recording by time, and what the API makes of them.
//!
//! A long recording is thinned out: every second frame is dropped whenever there are too many, so that a week
//! takes no more memory than an hour.

use std::collections::BTreeMap;

use thermo_agent::api::{AgeBytes, KindAges, Point, Target, UnixMillis};
use thermo_engine::access_tables::{AccessTables, NR_AGES, PageKind};
use thermo_report::Layout;
use thermo_report::tables::SnapshotTables;
use thermo_units::Bytes;

use super::TargetId;

/// Maximum number of tables of all frames together, 1 KiB each.
const MAX_TABLES: usize = 1 << 15;

/// The targets of a recording over time.
#[derive(Debug, Default)]
pub(super) struct Frames {
    frames: Vec<Frame>,
    nr_tables: usize,
    /// Every so many snapshots become a frame.
    stride: usize,
    nr_snapshots: usize,
    /// Bytes accessed again since the beginning, by target and idle age.
    reaccessed: BTreeMap<u32, [Bytes; NR_AGES]>,
}

/// All processes at one moment.
#[derive(Debug)]
pub(super) struct Frame {
    /// When.
    pub(super) time_ms: UnixMillis,
    processes: Vec<Process>,
}

/// A target of the recording at one moment: a process, or physical memory.
#[derive(Debug)]
struct Process {
    /// Its number in the recording.
    id: u32,
    pid: Option<u32>,
    swap_bytes: u64,
    derived: bool,
    tables: AccessTables,
}

/// The processes of a target together.
#[derive(Debug)]
pub(super) struct Sum {
    pids: Vec<u32>,
    swap_bytes: u64,
    has_kinds: bool,
    tables: AccessTables,
}

impl Frames {
    /// Adds the tables of a snapshot.
    pub(super) fn add(&mut self, time_ms: UnixMillis, tables: SnapshotTables, layout: &Layout) {
        self.nr_snapshots += 1;
        let mut processes = Vec::with_capacity(tables.targets.len());
        for mut target in tables.targets {
            let sums = self.reaccessed.entry(target.id).or_default();
            for (sum, bytes) in sums.iter_mut().zip(target.tables.reaccessed) {
                *sum = Bytes(sum.0.saturating_add(bytes.0));
            }
            target.tables.reaccessed = *sums;
            processes.push(Process {
                id: target.id,
                pid: target.pid,
                swap_bytes: layout.footprint(target.id).map_or(0, |footprint| footprint.swap),
                derived: target.derived,
                tables: target.tables,
            });
        }
        if !(self.nr_snapshots - 1).is_multiple_of(self.stride.max(1)) {
            return;
        }
        self.nr_tables += processes.len();
        self.frames.push(Frame { time_ms, processes });
        if self.nr_tables > MAX_TABLES && self.frames.len() > 2 {
            self.thin_out();
        }
    }

    fn thin_out(&mut self) {
        self.stride = self.stride.max(1) * 2;
        let mut nth = 0_usize;
        self.frames.retain(|_| {
            nth += 1;
            nth % 2 == 1
        });
        self.nr_tables = self.frames.iter().map(|frame| frame.processes.len()).sum();
    }

    /// The frame at `at`: the last that is not later, or the first.
    pub(super) fn at(&self, at: Option<UnixMillis>) -> Option<&Frame> {
        let after = at.map_or(self.frames.len(), |at| {
            self.frames.partition_point(|frame| frame.time_ms <= at)
        });
        self.frames.get(after.saturating_sub(1))
    }

    /// The times of all frames, ascending.
    pub(super) fn times_ms(&self) -> Vec<UnixMillis> {
        self.frames.iter().map(|frame| frame.time_ms).collect()
    }

    /// At most `columns` points of the sum of the processes `ids`.
    pub(super) fn points(&self, ids: &[u32], columns: usize) -> Vec<Point> {
        let found = |frame: &Frame| frame.sum(ids).map(|sum| (frame.time_ms, sum));
        let with_target: Vec<(UnixMillis, Sum)> = self.frames.iter().filter_map(found).collect();
        let step = with_target.len().div_ceil(columns.max(1)).max(1);
        let point = |(time_ms, sum): &(UnixMillis, Sum)| Point {
            time_ms: *time_ms,
            resident_bytes: sum.tables.resident().0,
            swap_bytes: sum.swap_bytes,
            ages: AgeBytes::rows(&sum.tables.ages()),
        };
        with_target.iter().step_by(step).map(point).collect()
    }
}

impl Frame {
    /// The processes `ids` together; `None` if none of them is there.
    pub(super) fn sum(&self, ids: &[u32]) -> Option<Sum> {
        let mut processes = self.processes.iter().filter(|process| ids.contains(&process.id));
        let first = processes.next()?;
        let mut sum = Sum {
            pids: first.pid.into_iter().collect(),
            swap_bytes: first.swap_bytes,
            has_kinds: !first.derived,
            tables: first.tables,
        };
        for process in processes {
            sum.pids.extend(process.pid);
            sum.swap_bytes = sum.swap_bytes.saturating_add(process.swap_bytes);
            sum.has_kinds &= !process.derived;
            sum.tables.add(&process.tables);
        }
        Some(sum)
    }
}

impl Sum {
    /// The target in the API's words.
    pub(super) fn target(self, id: &TargetId) -> Target {
        let tables = &self.tables;
        Target {
            name: id.name.clone(),
            policy: id.policy.clone(),
            resident_bytes: tables.resident().0,
            swap_bytes: self.swap_bytes,
            unknown_bytes: tables.unknown().0,
            working_set_bytes: tables.working_set().0,
            ages: AgeBytes::rows(&tables.ages()),
            kinds: if self.has_kinds { self.kinds() } else { Vec::new() },
            reaccess: AgeBytes::rows(&tables.reaccessed),
            pass_s: (tables.nr_passes > 0).then(|| tables.pass.as_secs_f64()),
            pids: self.pids,
            ..Target::default()
        }
    }

    fn kinds(&self) -> Vec<KindAges> {
        let kind = |kind: PageKind| KindAges {
            kind: kind.name().to_owned(),
            ages: AgeBytes::rows(&self.tables.idle[kind.index()]),
        };
        let has_bytes = |kind: &KindAges| kind.ages.iter().any(|age| age.bytes > 0);
        PageKind::ALL.into_iter().map(kind).filter(has_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use thermo_engine::budget::Method;
    use thermo_report::tables::TargetTables;

    use super::*;

    fn snapshot(reaccessed: u64) -> SnapshotTables {
        let mut tables = AccessTables::new(Method::Scan);
        tables.idle[1][3] = Bytes(100);
        tables.reaccessed[2] = Bytes(reaccessed);
        SnapshotTables {
            targets: vec![TargetTables {
                id: 7,
                pid: Some(4242),
                derived: false,
                tables,
            }],
            may_include_gaps: false,
        }
    }

    #[test]
    fn frame_is_last_one_not_later() {
        let mut frames = Frames::default();
        for time in [1000, 2000, 3000] {
            frames.add(time, snapshot(5), &Layout::default());
        }
        let time = |at| frames.at(at).map(|frame| frame.time_ms);
        assert_eq!(
            [time(Some(0)), time(Some(2500)), time(None)],
            [Some(1000), Some(2000), Some(3000)]
        );
        assert_eq!(Frames::default().at(None).map(|frame| frame.time_ms), None);
        assert_eq!(frames.points(&[7, 8], 2).len(), 2);
        assert_eq!(frames.points(&[8], 2).len(), 0);
    }

    #[test]
    fn long_recordings_are_thinned_out_and_keep_sums() {
        let mut frames = Frames::default();
        for time in 0..100_000 {
            frames.add(time, snapshot(1), &Layout::default());
        }
        assert!(frames.frames.len() <= MAX_TABLES && frames.frames.len() > MAX_TABLES / 4);
        let times = frames.times_ms();
        assert!(times.windows(2).all(|two| two[1] - two[0] == times[1] - times[0]));
        let last = frames
            .at(None)
            .map(|frame| (frame.time_ms, frame.processes[0].tables.reaccessed[2]));
        assert_eq!(last.map(|(time, sum)| sum.0 - time), Some(1));
    }

    #[test]
    fn target_has_kinds_of_api() {
        let mut frames = Frames::default();
        frames.add(1000, snapshot(5), &Layout::default());
        let sum = frames.at(None).and_then(|frame| frame.sum(&[7]));
        let target = sum
            .map(|sum| sum.target(&TargetId::default()))
            .unwrap_or_default();
        assert_eq!(target.kinds.len(), 1);
        assert_eq!(
            (target.kinds[0].kind.as_str(), target.kinds[0].ages[3].bytes),
            ("anon_huge", 100)
        );
        assert_eq!((target.resident_bytes, target.reaccess[2].bytes), (100, 5));
        assert_eq!(target.pass_s, None);
    }
}

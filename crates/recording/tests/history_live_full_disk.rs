//! A state directory that becomes full or read-only: one warning, and the history goes on when there is room.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use thermo_recording::history::{Clocks, History, Query, SegmentWriter, WriteLimits};
use thermo_recording::model::{Metadata, Record, Region, Snapshot, Target};
use thermo_units::Nanos;

const SECOND: u64 = 1_000_000_000;
const START_S: u64 = 1_790_000_000;

/// A small tmpfs, unmounted on drop.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: &Path, bytes: u64) -> Option<Self> {
        let size = format!("size={bytes}");
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", &size, "none"]).arg(at);
        mount.output().ok()?.status.success().then(|| Self(at.to_owned()))
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let status = Command::new("mount")
            .args(["-o", &options])
            .arg(&self.0)
            .status()
            .unwrap();
        assert!(status.success());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Ten minutes of a target whose regions compress badly, from `start`.
fn ten_minutes(writer: &mut SegmentWriter, start: u64) {
    let mut random = start | 1;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 33
    };
    for second in start..start + 600 {
        let mut region = |index: u64| Region {
            start: (index << 32) + next() % (1 << 20) * 4096,
            end: ((index + 1) << 32) + (1 << 20),
            ..Region::default()
        };
        let mut regions: Vec<Region> = (0..200).map(|index| region(index * 4000)).collect();
        regions.sort_by_key(|region| region.start);
        let target = Target {
            regions,
            ..Target::default()
        };
        writer.record(&Record::Snapshot(Snapshot {
            start_ns: (second - 1) * SECOND,
            time_ns: second * SECOND,
            aggr_ns: SECOND,
            max_nr_accesses: 20,
            targets: vec![target],
        }));
        writer.tick(Clocks {
            monotonic: Nanos::secs(second),
            unix: Nanos::secs(START_S + second),
        });
    }
}

fn snapshots(state_dir: &Path) -> usize {
    let mut records = History::open(state_dir)
        .unwrap()
        .records(&Query::default())
        .unwrap();
    let count = records
        .by_ref()
        .filter(|record| matches!(record, Record::Snapshot(_)))
        .count();
    assert_eq!(records.warnings(), Vec::<String>::new());
    count
}

#[test]
fn history_goes_on_when_there_is_room_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(tmpfs) = Tmpfs::mount(dir.path(), 256 << 10) else {
        eprintln!("SKIP: a small file system cannot be mounted here (needs root)");
        return;
    };
    let filler = tmpfs.0.join("filler");
    fs::write(&filler, vec![0; 200 << 10]).unwrap();
    let start = Clocks {
        monotonic: Nanos::ZERO,
        unix: Nanos::secs(START_S),
    };
    let limits = WriteLimits::default();
    let mut writer = SegmentWriter::new(&tmpfs.0, "web", limits, start, Metadata::default).unwrap();
    ten_minutes(&mut writer, 1);
    ten_minutes(&mut writer, 601);
    let warnings = writer.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("No space left on device"), "{warnings:?}");
    let before = snapshots(&tmpfs.0);
    assert!(before > 0, "what was written before can be read");
    fs::remove_file(&filler).unwrap();
    tmpfs.remount("size=4m");
    ten_minutes(&mut writer, 1201);
    assert_eq!(
        writer.take_warnings(),
        ["the history of policy web is written again"]
    );
    assert!(snapshots(&tmpfs.0) > before + 40);
    drop(writer);
    tmpfs.remount("ro");
    let mut writer = SegmentWriter::new(&tmpfs.0, "mail", limits, start, Metadata::default).unwrap();
    ten_minutes(&mut writer, 1);
    let warnings = writer.finish();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("Read-only file system"), "{warnings:?}");
}

//! A disk that becomes full during recording: the error is correct, and the complete batches are readable.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod sample;

use std::path::{Path, PathBuf};
use std::process::Command;

use thermo_recording::model::{Record, Snapshot, Target};
use thermo_recording::{WriteError, Writer, read_all};

/// A small tmpfs, unmounted on drop.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: &Path, bytes: u64) -> Option<Self> {
        let size = format!("size={bytes}");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(at)
            .output()
            .ok()?
            .status;
        status.success().then(|| Self(at.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_disk_loses_only_the_last_batch() {
    let dir = tempfile::tempdir().unwrap();
    let Some(tmpfs) = Tmpfs::mount(dir.path(), 128 << 10) else {
        eprintln!("SKIP: a small file system cannot be mounted here (needs root)");
        return;
    };
    let path = tmpfs.0.join("r.arrow");
    let mut writer = Writer::create(&path, &sample::metadata()).unwrap();
    let error = (0..100_000).find_map(|n| fill(&mut writer, n).err()).unwrap();
    let WriteError::Write {
        whole_bytes,
        whole_records,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(*whole_records > 0);
    assert!(error.to_string().contains("No space left on device"), "{error}");
    let (_, records, truncated) = read_all(&path).unwrap();
    assert_eq!(records.len() as u64, *whole_records);
    assert_eq!(truncated.unwrap().whole_bytes, *whole_bytes);
}

/// Writes one batch of data that compresses badly.
fn fill(writer: &mut Writer, n: u64) -> Result<(), WriteError> {
    let noise = |k: u64| (n * 500 + k).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17;
    let mut starts: Vec<u64> = (0..500).map(noise).collect();
    starts.sort_unstable();
    let regions = starts
        .iter()
        .map(|start| sample::region(*start, 1 + start % 999, 1, 1))
        .collect();
    let targets = vec![Target {
        id: 0,
        pid: Some(7),
        scanned: None,
        averaged: 4096,
        tables: None,
        regions,
    }];
    writer.append(&Record::Snapshot(Snapshot {
        targets,
        ..sample::snapshot(n)
    }))?;
    writer.flush()
}

//! Scans of address spaces with large holes.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::TargetId;
use thermo_engine::scan::{ScanChunk, ScanResult};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange};

/// Maps a terabyte of address space with three resident pages. Ends when its standard input is closed.
const SPARSE: &str = r#"
import ctypes, mmap, os, sys
size, noreserve = 1 << 40, 0x4000
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve)
for at in (0, size // 2 + (5 << 12), size - 4096):
    memory[at] = 1
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
os.write(1, f"{address}\n".encode())
sys.stdin.read()
"#;
const SIZE: u64 = 1 << 40;
const CHUNK: u64 = 64 << 20;

#[test]
fn hole_of_1_tib_takes_few_scans() {
    let mut tracker = match PteTracker::new() {
        Ok(tracker) => tracker,
        Err(why) => return eprintln!("SKIP: {why}"),
    };
    let child = Command::new("python3")
        .args(["-c", SPARSE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        return eprintln!("SKIP: python3 cannot be started");
    };
    let line = BufReader::new(child.stdout.take().unwrap()).lines().next();
    let Some(Ok(line)) = line else {
        child.wait().unwrap();
        return eprintln!("SKIP: cannot map a terabyte of address space");
    };
    let start: u64 = line.parse().unwrap();
    let process = Process::open(TargetId(0), child.id()).unwrap();
    let (mut from, end) = (Addr(start), Addr(start + SIZE));
    let (mut scans, mut found) = (0, Vec::new());
    let mut chunk = ScanChunk::default();
    while from < end {
        let border = Addr((from.0 / CHUNK + 1) * CHUNK).min(end);
        let range = AddrRange {
            start: from,
            end: border,
        };
        chunk.reset(range);
        let next = tracker.scan(&process, range, &mut chunk);
        assert!(next >= border);
        let pages = (range.start.0..range.end.0).step_by(4096).map(Addr);
        found.extend(pages.filter(|page| chunk.get(*page) != ScanResult::Absent));
        (from, scans) = (next, scans + 1);
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    // If the machine uses huge pages more is found, but the three pages are included.
    for at in [0, SIZE / 2 + (5 << 12), SIZE - 4096] {
        assert!(found.contains(&Addr(start + at)), "{at:#x} of {found:?}");
    }
    assert!(
        scans < 100,
        "{scans} scans: each 64 MiB would be {}",
        SIZE / CHUNK
    );
}

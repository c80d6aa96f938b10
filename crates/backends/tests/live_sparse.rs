//! Sweeping address spaces with large holes.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use thermo_backends::{PteTracker, Tracker as _};
use thermo_engine::TargetId;
use thermo_engine::scan::{PageSeen, ScanChunk};
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange};

/// A terabyte of address space with three pages in it. Ends with its standard input.
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
const PIECE: u64 = 64 << 20;

#[test]
fn a_hole_of_a_terabyte_takes_a_few_looks() {
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
        return eprintln!("SKIP: a terabyte of address space cannot be had here");
    };
    let start: u64 = line.parse().unwrap();
    let process = Process::open(TargetId(0), child.id()).unwrap();
    let (mut from, end) = (Addr(start), Addr(start + SIZE));
    let (mut looks, mut found) = (0, Vec::new());
    let mut piece = ScanChunk::default();
    while from < end {
        let border = Addr((from.0 / PIECE + 1) * PIECE).min(end);
        let range = AddrRange {
            start: from,
            end: border,
        };
        piece.reset(range);
        let next = tracker.scan(&process, range, &mut piece);
        assert!(next >= border);
        let pages = (range.start.0..range.end.0).step_by(4096).map(Addr);
        found.extend(pages.filter(|page| piece.get(*page) != PageSeen::Absent));
        (from, looks) = (next, looks + 1);
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    // Huge pages where the machine gives them: the three pages are among what was found.
    for at in [0, SIZE / 2 + (5 << 12), SIZE - 4096] {
        assert!(found.contains(&Addr(start + at)), "{at:#x} of {found:?}");
    }
    assert!(
        looks < 100,
        "{looks} looks: each 64 MiB would be {}",
        SIZE / PIECE
    );
}

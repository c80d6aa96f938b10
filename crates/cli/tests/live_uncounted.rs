//! Memory that the kernel's resident total leaves out, or counts more than once: real processes, monitored by
//! the real command.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Guard, has_tracker, json, run, stderr};
use serde_json::Value;

/// Writes to 16 MiB all the time, and holds one more kind of memory: 48 MiB of hugetlb pages; 64 MiB of small
/// zero pages and as much of huge ones; 20 MiB of shared memory, mapped three times.
const PROGRAM: &str = r#"
import ctypes, mmap, os, sys
MIB = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
def map(size, flags, fd=-1):
    at = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
    if at == ctypes.c_void_p(-1).value: sys.exit("mmap: " + os.strerror(ctypes.get_errno()))
    return at
def write(at, size): ctypes.memset(at, 1, size)
def read(at, size): ctypes.string_at(at, size)
private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
hot = map(16 * MIB, private)
if sys.argv[1] == "hugetlb":
    write(map(48 * MIB, private | 0x40000), 48 * MIB)
elif sys.argv[1] == "zero":
    small, huge = map(64 * MIB, private), map(66 * MIB, private)
    huge = (huge + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
    libc.madvise(small, 64 * MIB, 15)
    libc.madvise(huge, 64 * MIB, 14)
    read(small, 64 * MIB); read(huge, 64 * MIB)
else:
    fd = os.memfd_create("views")
    os.ftruncate(fd, 20 * MIB)
    views = [map(20 * MIB, mmap.MAP_SHARED, fd) for _ in range(3)]
    for view in views: write(view, 20 * MIB)
print("ready", flush=True)
while True: write(hot, 16 * MIB)
"#;

const MIB: f64 = (1 << 20) as f64;
/// Python's own memory: changes of some hundred KiB.
const TOLERANCE: f64 = 1.0;

/// Lets programs allocate hugetlb pages until it is dropped.
struct HugetlbPages {
    before: String,
}

const OVERCOMMIT: &str = "/proc/sys/vm/nr_overcommit_hugepages";

impl HugetlbPages {
    fn allow() -> Option<Self> {
        let before = fs::read_to_string(OVERCOMMIT).ok()?;
        fs::write(OVERCOMMIT, "64").ok()?;
        Some(Self { before })
    }
}

impl Drop for HugetlbPages {
    fn drop(&mut self) {
        fs::write(OVERCOMMIT, &self.before).unwrap();
    }
}

struct Monitored {
    /// `VmRSS` in MiB.
    rss: f64,
    idle: Value,
    text: String,
}

impl Monitored {
    /// Monitors the program for some seconds; `None` if it cannot run here.
    fn of(dir: &Path, kind: &str) -> Option<Self> {
        if !has_tracker(dir) {
            return None;
        }
        let mut command = Command::new("python3");
        let started = command.args(["-c", PROGRAM, kind]).stdout(Stdio::piped()).spawn();
        let mut child = started
            .map(Guard)
            .inspect_err(|why| eprintln!("SKIP: python3: {why}"))
            .ok()?;
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        if line.is_empty() {
            eprintln!("SKIP: the program cannot have {kind} memory here");
            return None;
        }
        let pid = child.0.id().to_string();
        let record = [
            "record",
            "--pid",
            &pid,
            "-o",
            "r.arrow",
            "--cpu",
            "20%",
            "--duration",
            "4s",
        ];
        let output = run(dir, &record);
        assert!(output.status.success(), "{}", stderr(&output));
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let rss = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        let kib: f64 = rss.trim().trim_end_matches(" kB").parse().unwrap();
        Some(Self {
            rss: kib / 1024.0,
            idle: json(dir, &["report", "idle", "r.arrow", "--json"]),
            text: String::from_utf8(run(dir, &["report", "idle", "r.arrow"]).stdout).unwrap(),
        })
    }

    fn resident(&self) -> f64 {
        self.idle["resident_bytes"].as_f64().unwrap() / MIB
    }

    /// Found accessed in the last pass.
    fn accessed(&self) -> f64 {
        self.idle["ages"][0]["bytes"].as_f64().unwrap() / MIB
    }

    fn unknown(&self, reason: &str) -> f64 {
        let reasons = self.idle["unknown"].as_array().unwrap();
        let found = reasons.iter().find(|unknown| unknown["reason"] == reason);
        found.unwrap()["bytes"].as_f64().unwrap() / MIB
    }

    fn assert_near(&self, what: &str, found: f64, expected: f64) {
        assert!(
            (found - expected).abs() < TOLERANCE,
            "{what}: {found} MiB, not {expected}\n{}",
            self.text
        );
    }
}

#[test]
fn hugetlb_pages_count_as_resident_of_unknown_age() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_pages) = HugetlbPages::allow() else {
        eprintln!("SKIP: {OVERCOMMIT} cannot be written");
        return;
    };
    let Some(monitored) = Monitored::of(folder.path(), "hugetlb") else {
        return;
    };
    monitored.assert_near("resident", monitored.resident(), monitored.rss + 48.0);
    monitored.assert_near("hugetlb", monitored.unknown("hugetlb"), 48.0);
    assert!(monitored.accessed() > 16.0 - TOLERANCE, "{}", monitored.text);
    assert!(monitored.text.contains("hugetlb pages"), "{}", monitored.text);
}

#[test]
fn zero_pages_are_not_resident() {
    let folder = tempfile::tempdir().unwrap();
    let Some(monitored) = Monitored::of(folder.path(), "zero") else {
        return;
    };
    monitored.assert_near("resident", monitored.resident(), monitored.rss);
    assert!(monitored.accessed() > 16.0 - TOLERANCE, "{}", monitored.text);
    assert!(
        !monitored.text.contains("more than the kernel"),
        "{}",
        monitored.text
    );
}

#[test]
fn memory_mapped_three_times_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let Some(monitored) = Monitored::of(folder.path(), "views") else {
        return;
    };
    monitored.assert_near("resident", monitored.resident(), monitored.rss - 40.0);
    assert!(monitored.accessed() > 16.0 - TOLERANCE, "{}", monitored.text);
    assert!(
        monitored.text.contains("maps more than once"),
        "{}",
        monitored.text
    );
}

//! A process to watch: this test binary again, told by its environment to be the child, obeying lines on its
//! standard input. It ends when its input does, so a test that fails leaves none behind.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod look;

use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use thermo_backends::PteTracker;
use thermo_engine::TargetId;
use thermo_kernel::meminfo;
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::pidfd::PidFd;
use thermo_kernel::process_madvise::{Advice, process_madvise};
use thermo_kernel::smaps;
use thermo_kernel::zram::ZramSwap;
use thermo_targets::{Process, Processes};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

const AS_CHILD: &str = "THERMO_TEST_CHILD_BYTES";
const HUGE: u64 = 2 << 20;

/// The tracker that reads page tables, where it can be had; says why not otherwise.
pub fn tracker() -> Option<PteTracker> {
    PteTracker::new().inspect_err(|why| eprintln!("SKIP: {why}")).ok()
}

/// What every test file that uses a child must have as a test of the name `child`: the child's own life. Does
/// nothing in the parent.
pub fn live_as_child() {
    let Some(bytes) = std::env::var(AS_CHILD).ok().and_then(|bytes| bytes.parse().ok()) else {
        return;
    };
    // Page by page unless told otherwise: what the machine's THP mode is must not matter.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    // More than malloc keeps, so fresh from the kernel, and room to begin on a huge page's border.
    let mut memory = vec![0_u8; bytes + HUGE as usize];
    let skip = memory.as_ptr().align_offset(HUGE as usize);
    let memory = &mut memory[skip..][..bytes];
    for (eight, word) in memory.chunks_exact_mut(8).zip(contents()) {
        eight.copy_from_slice(&word);
    }
    let mut is_thin = false;
    println!("\nready {}", memory.as_ptr() as u64);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            // Reads every page from and to these offsets.
            ["touch", from, to] => {
                let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
                let sum: u64 = memory[from..to]
                    .iter()
                    .step_by(4096)
                    .map(|byte| u64::from(*byte))
                    .sum();
                black_box(sum);
            }
            // Lets it have huge pages from now on.
            ["allow"] => rustix::thread::disable_transparent_huge_pages(false).unwrap(),
            // Writes zeroes to all but the first page of every 2 MiB.
            ["thin"] => {
                is_thin = true;
                for huge in memory.chunks_exact_mut(HUGE as usize) {
                    huge[PAGE_SIZE as usize..].fill(0);
                }
            }
            // Looks at every byte.
            ["check"] => {
                for (n, (eight, word)) in memory.chunks_exact(8).zip(contents()).enumerate() {
                    let is_first_page = n * 8 % (HUGE as usize) < PAGE_SIZE as usize;
                    let expected = if is_thin && !is_first_page { [0; 8] } else { word };
                    assert_eq!(eight, expected, "at {:#x}", n * 8);
                }
            }
            ["collapse"] => {
                rustix::thread::disable_transparent_huge_pages(false).unwrap();
                let us = PidFd::open(std::process::id()).unwrap();
                let start = memory.as_ptr() as u64;
                let all = AddrRange::new(start, start + bytes as u64);
                // What came of it is for the parent to look at.
                let _ = process_madvise(us.as_fd(), &[all], Advice::Collapse);
            }
            _ => panic!("{line}?"),
        }
        println!("\ndone");
        std::io::stdout().flush().unwrap();
    }
    // Not through the test harness, whose words nobody reads.
    std::process::exit(0);
}

/// What is written there, eight bytes at a time: neither zeroes nor alike, or a page could be had without memory or
/// space.
fn contents() -> impl Iterator<Item = [u8; 8]> {
    let next = |word: &u64| Some(word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    std::iter::successors(next(&0x9e37_79b9_7f4a_7c15), next).map(|word| (word >> 40).to_ne_bytes())
}

/// A child with memory of a known place, all of it written once.
pub struct Target {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    pub range: AddrRange,
}

impl Target {
    pub fn start(bytes: u64) -> Self {
        Self::start_as(&std::env::current_exe().unwrap(), bytes)
    }

    /// The same, by a copy of this program.
    pub fn start_as(program: &Path, bytes: u64) -> Self {
        let mut child = Command::new(program)
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(AS_CHILD, bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut target = Self {
            child,
            stdin,
            stdout,
            range: AddrRange::default(),
        };
        let start: u64 = target.wait_for("ready ").parse().unwrap();
        target.range = AddrRange::new(start, start + bytes);
        target
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The table of processes with this one as target 0.
    pub fn processes(&self) -> Processes {
        let id = TargetId(0);
        Processes::from([(id, Process::open(id, self.pid()).unwrap())])
    }

    /// Has the child read every page of `range`, and returns when it has.
    pub fn touch(&mut self, range: AddrRange) {
        let (from, to) = (range.start - self.range.start, range.end - self.range.start);
        self.tell(&format!("touch {} {}", from.0, to.0));
    }

    /// Has the child ask for huge pages.
    pub fn collapse(&mut self) {
        self.tell("collapse");
    }

    /// A child whose `bytes` are all huge pages, where those can be had; says why not otherwise.
    pub fn start_huge(bytes: u64) -> Option<Self> {
        let mut target = Self::start(bytes);
        target.collapse();
        let huge = target.huge();
        if huge < Bytes(bytes) {
            eprintln!(
                "SKIP: no huge pages are to be had here ({huge} of {})",
                Bytes(bytes)
            );
            return None;
        }
        Some(target)
    }

    /// How much of the child is huge pages.
    pub fn huge(&self) -> Bytes {
        smaps::rollup(Path::new("/"), self.pid()).unwrap().anon_huge_pages
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Every page's address.
    pub fn pages(&self) -> impl Iterator<Item = Addr> + use<> {
        (self.range.start.0..self.range.end.0)
            .step_by(PAGE_SIZE as usize)
            .map(Addr)
    }

    /// Has the child do what `live_as_child` knows by this word.
    pub fn tell(&mut self, what: &str) {
        writeln!(self.stdin, "{what}").unwrap();
        self.wait_for("done");
    }

    fn wait_for(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(
                self.stdout.read_line(&mut line).unwrap(),
                0,
                "the child ended before it said {word:?}"
            );
            if let Some(rest) = line.trim_end().strip_prefix(word) {
                return rest.to_owned();
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may be dead already; nothing else can go wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tries until `attempt` is content: others on the machine may spoil any one try. The last complaint is the
/// test's failure.
pub fn repeat_until_good(mut attempt: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match attempt() {
            Ok(()) => return,
            Err(complaint) if Instant::now() > deadline => panic!("{complaint}"),
            Err(_) => {}
        }
    }
}

/// How much of `range` is swapped out.
pub fn swapped(pid: u32, range: AddrRange) -> Bytes {
    let mut pages = Vec::new();
    Pagemap::open(Path::new("/"), pid)
        .unwrap()
        .read(range, &mut pages)
        .unwrap();
    Bytes(pages.iter().filter(|page| page.is_swapped()).count() as u64 * 4096)
}

/// Swap for a test: what there is, or zram of our own, which is taken away again when dropped.
pub enum Swap {
    Theirs,
    Ours(#[expect(dead_code, reason = "kept for its end")] ZramSwap),
}

pub fn swap() -> Option<Swap> {
    let root = Path::new("/");
    if meminfo::read(root).unwrap().swap_free >= Bytes::mib(256) {
        return Some(Swap::Theirs);
    }
    match ZramSwap::create(root, Bytes::mib(256)) {
        Ok(zram) => Some(Swap::Ours(zram)),
        Err(why) => {
            eprintln!("SKIP: no swap is free and none can be made: {why}");
            None
        }
    }
}

//! A child process to monitor: this test binary, started with an environment variable. The child executes
//! commands from its standard input. It ends when the input is closed, so a failed test leaves no child
//! behind.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod access;

use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
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

/// The `pte` tracker; prints the reason if it is not available.
pub fn tracker() -> Option<PteTracker> {
    PteTracker::new().inspect_err(|why| eprintln!("SKIP: {why}")).ok()
}

/// Runs the program of the child. Returns at once in the parent. Each test file that uses a child must call
/// this in a test named `child`.
pub fn run_if_child() {
    let Some(bytes) = std::env::var(AS_CHILD).ok().and_then(|bytes| bytes.parse().ok()) else {
        return;
    };
    // Without huge pages at first, whatever the THP mode of the machine.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    // Large enough that malloc maps new memory, with room for alignment to a huge page.
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
            // Reads every page between these offsets.
            ["touch", from, to] => {
                let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
                let sum: u64 = memory[from..to]
                    .iter()
                    .step_by(4096)
                    .map(|byte| u64::from(*byte))
                    .sum();
                black_box(sum);
            }
            // Allows huge pages.
            ["allow"] => rustix::thread::disable_transparent_huge_pages(false).unwrap(),
            // Writes zeroes to all but the first page of every 2 MiB.
            ["thin"] => {
                is_thin = true;
                for huge in memory.chunks_exact_mut(HUGE as usize) {
                    huge[PAGE_SIZE as usize..].fill(0);
                }
            }
            // Contents that do not compress.
            ["scramble"] => {
                let next = |word: &u64| {
                    let word = word ^ (word << 13);
                    let word = word ^ (word >> 7);
                    Some(word ^ (word << 17))
                };
                let words = std::iter::successors(next(&0x9e37_79b9_7f4a_7c15), next);
                for (eight, word) in memory.chunks_exact_mut(8).zip(words) {
                    eight.copy_from_slice(&word.to_ne_bytes());
                }
            }
            ["check"] => check_contents(memory, is_thin),
            ["collapse"] => {
                rustix::thread::disable_transparent_huge_pages(false).unwrap();
                let own_pidfd = PidFd::open(std::process::id()).unwrap();
                let start = memory.as_ptr() as u64;
                let all = AddrRange::new(start, start + bytes as u64);
                // The parent checks the result.
                let _ = process_madvise(&own_pidfd, &[all], Advice::Collapse);
            }
            _ => panic!("unknown command {line:?}"),
        }
        println!("\ndone");
        std::io::stdout().flush().unwrap();
    }
    // Skips the output of the test harness.
    std::process::exit(0);
}

/// Verifies every byte. With `is_thin`, only the first page of every 2 MiB is not zero.
fn check_contents(memory: &[u8], is_thin: bool) {
    for (n, (eight, word)) in memory.chunks_exact(8).zip(contents()).enumerate() {
        let is_first_page = n * 8 % (HUGE as usize) < PAGE_SIZE as usize;
        let expected = if is_thin && !is_first_page { [0; 8] } else { word };
        assert_eq!(eight, expected, "at {:#x}", n * 8);
    }
}

/// The content of the memory, eight bytes at a time. Not zero and not repeating, so that a page can neither
/// be dropped nor compressed to nothing.
fn contents() -> impl Iterator<Item = [u8; 8]> {
    let next = |word: &u64| Some(word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    std::iter::successors(next(&0x9e37_79b9_7f4a_7c15), next).map(|word| (word >> 40).to_ne_bytes())
}

/// A child with memory at a known address. All of the memory was written once.
pub struct Target {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    pub range: AddrRange,
}

impl Target {
    pub fn start(bytes: u64) -> Self {
        Self::start_program(&std::env::current_exe().unwrap(), bytes)
    }

    /// The same as `start`, with a copy of this program.
    pub fn start_program(program: &Path, bytes: u64) -> Self {
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

    /// This process as target 0.
    pub fn processes(&self) -> Processes {
        let id = TargetId(0);
        Processes::from([(id, Process::open(id, self.pid()).unwrap())])
    }

    /// Makes the child read every page of `range`.
    pub fn touch(&mut self, range: AddrRange) {
        let (from, to) = (range.start - self.range.start, range.end - self.range.start);
        self.command(&format!("touch {} {}", from.0, to.0));
    }

    /// Makes the child collapse its memory into huge pages.
    pub fn collapse(&mut self) {
        self.command("collapse");
    }

    /// A child whose memory consists of huge pages. Prints the reason if huge pages are not available.
    pub fn start_huge(bytes: u64) -> Option<Self> {
        let mut target = Self::start(bytes);
        target.collapse();
        let huge = target.huge();
        if huge < Bytes(bytes) {
            eprintln!(
                "SKIP: huge pages are not available here ({huge} of {})",
                Bytes(bytes)
            );
            return None;
        }
        Some(target)
    }

    /// Bytes of the child in huge pages.
    pub fn huge(&self) -> Bytes {
        smaps::rollup(Path::new("/"), self.pid()).unwrap().anon_huge_pages
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The address of every page.
    pub fn pages(&self) -> impl Iterator<Item = Addr> + use<> {
        (self.range.start.0..self.range.end.0)
            .step_by(PAGE_SIZE as usize)
            .map(Addr)
    }

    /// Makes the child execute a command of `run_if_child`.
    pub fn command(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").unwrap();
        self.wait_for("done");
    }

    fn wait_for(&mut self, prefix: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(
                self.stdout.read_line(&mut line).unwrap(),
                0,
                "the child ended before it printed {prefix:?}"
            );
            if let Some(rest) = line.trim_end().strip_prefix(prefix) {
                return rest.to_owned();
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // The only possible error is that the child has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Repeats `attempt` until it succeeds, because other programs on the machine can disturb a single attempt.
/// After a minute the last error fails the test.
pub fn retry(mut attempt: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match attempt() {
            Ok(()) => return,
            Err(error) if Instant::now() > deadline => panic!("{error}"),
            Err(_) => {}
        }
    }
}

/// Bytes of `range` that are swapped out.
pub fn swapped(pid: u32, range: AddrRange) -> Bytes {
    let mut pages = Vec::new();
    Pagemap::open(Path::new("/"), pid)
        .unwrap()
        .read(range, &mut pages)
        .unwrap();
    Bytes(pages.iter().filter(|page| page.is_swapped()).count() as u64 * 4096)
}

/// A zram device as swap, even if the machine has other swap; prints the reason if there is none.
pub fn zram() -> Option<ZramSwap> {
    ZramSwap::create(Path::new("/"), Bytes::mib(256))
        .inspect_err(|why| eprintln!("SKIP: no zram device can be created: {why}"))
        .ok()
}

/// Swap for a test: the swap of the machine, or a zram device that is removed when dropped.
pub enum Swap {
    Existing,
    Own(#[expect(dead_code, reason = "removes the device when dropped")] ZramSwap),
}

pub fn swap() -> Option<Swap> {
    let root = Path::new("/");
    if meminfo::read(root).unwrap().swap_free >= Bytes::mib(256) {
        return Some(Swap::Existing);
    }
    match ZramSwap::create(root, Bytes::mib(256)) {
        Ok(zram) => Some(Swap::Own(zram)),
        Err(why) => {
            eprintln!("SKIP: no swap is free and no zram device can be created: {why}");
            None
        }
    }
}

//! The scanned program, with 4 KiB pages. It accesses a fixed set of pages all the time, and single other
//! pages, which it logs.

use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use thermo_engine::TargetId;
use thermo_kernel::clock;
use thermo_targets::Process;
use thermo_units::{Addr, AddrRange, Nanos, PAGE_SIZE};

const AS_CHILD: &str = "THERMO_BENCH_SCAN_COST_BYTES";
const TABLE: usize = 512;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % below as u64) as usize
    }
}

/// The pages of the set in random order: `each` of every 512. The same set in the child and in the parent.
pub fn set_of(pages: usize, each: usize) -> Vec<usize> {
    let mut random = Random(1);
    let mut set = Vec::new();
    for table in 0..pages / TABLE {
        let mut table_pages: Vec<usize> = (0..TABLE).collect();
        for nth in 0..each {
            table_pages.swap(nth, nth + random.next(TABLE - nth));
        }
        set.extend(table_pages[..each].iter().map(|nth| table * TABLE + nth));
    }
    for nth in (1..set.len()).rev() {
        set.swap(nth, random.next(nth + 1));
    }
    set
}

/// Memory as an array of pages.
type Memory = &'static [[u8; PAGE_SIZE as usize]];

fn map(bytes: usize) -> Memory {
    let memory = vec![0_u8; bytes + (2 << 20)].leak();
    let skip = memory.as_ptr().align_offset(2 << 20);
    let (pages, _) = memory[skip..][..bytes].as_chunks_mut();
    pages.iter_mut().for_each(|page| page[0] = 1);
    pages
}

fn read(memory: Memory, page: usize) {
    black_box(memory[page][0]);
}

static SPINNING: AtomicBool = AtomicBool::new(false);
static LOGGING: AtomicBool = AtomicBool::new(false);
static ACCESSES: AtomicU64 = AtomicU64::new(0);
/// CPU time of these accesses in nanoseconds.
static CPU_NS: AtomicU64 = AtomicU64::new(0);

/// Binds this thread to CPU `cpu`, if it exists.
pub fn run_on(cpu: usize) {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    // Fails on a machine with one CPU; the thread then runs on that CPU.
    let _ = rustix::thread::sched_setaffinity(None, &cpus);
}

/// Reads the pages of the set as fast as possible while `SPINNING` is set.
fn spin(memory: Memory, set: &[usize]) {
    run_on(1);
    let mut before = clock::thread_cpu();
    while SPINNING.load(Ordering::Relaxed) {
        for pages in set.chunks(4096) {
            pages.iter().for_each(|page| read(memory, *page));
            ACCESSES.fetch_add(pages.len() as u64, Ordering::Relaxed);
            let now = clock::thread_cpu();
            CPU_NS.fetch_add(now.saturating_sub(before).0, Ordering::Relaxed);
            before = now;
        }
    }
}

/// Reads 20 random pages outside of the set per millisecond while `LOGGING` is set. Returns time and page of
/// each access.
fn log(memory: Memory, set: &[usize]) -> Vec<(u64, usize)> {
    let mut is_in_set = vec![false; memory.len()];
    set.iter().for_each(|page| is_in_set[*page] = true);
    let (mut random, mut log) = (Random(2), Vec::new());
    while LOGGING.load(Ordering::Relaxed) {
        for _ in 0..20 {
            let page = random.next(memory.len());
            if !is_in_set[page] {
                log.push((clock::monotonic().0, page));
                read(memory, page);
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    log
}

/// Runs the program of the child. Returns at once in the parent.
pub fn run_if_child() {
    let Some(bytes) = std::env::var(AS_CHILD).ok().and_then(|bytes| bytes.parse().ok()) else {
        return;
    };
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let memory = map(bytes);
    println!("{}", memory.as_ptr() as u64);
    let (mut spinner, mut logger) = (None, None);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["spin", each] => {
                let set = set_of(memory.len(), each.parse().unwrap());
                SPINNING.store(true, Ordering::Relaxed);
                spinner = Some(thread::spawn(move || spin(memory, &set)));
            }
            ["stop"] => {
                SPINNING.store(false, Ordering::Relaxed);
                if let Some(thread) = spinner.take() {
                    thread.join().unwrap();
                }
            }
            ["read-all"] => (0..memory.len()).for_each(|page| read(memory, page)),
            ["log", each] => {
                let set = set_of(memory.len(), each.parse().unwrap());
                LOGGING.store(true, Ordering::Relaxed);
                logger = Some(thread::spawn(move || log(memory, &set)));
            }
            ["logged"] => {
                LOGGING.store(false, Ordering::Relaxed);
                let log: Vec<(u64, usize)> = logger.take().unwrap().join().unwrap();
                let words: Vec<String> = log.iter().map(|(at, page)| format!("{at} {page}")).collect();
                println!("{}", words.join(" "));
                continue;
            }
            ["count"] => {}
            _ => panic!("unknown command {line:?}"),
        }
        let counts = [&ACCESSES, &CPU_NS].map(|count| count.load(Ordering::Relaxed));
        println!("{} {}", counts[0], counts[1]);
    }
    std::process::exit(0);
}

/// Handle of the child, which ends when its standard input is closed.
pub struct ScannedChild {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    pub range: AddrRange,
}

impl ScannedChild {
    pub fn start(bytes: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(AS_CHILD, bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut scanned = Self {
            child,
            stdin,
            stdout,
            range: AddrRange::default(),
        };
        let start: u64 = scanned.line().parse().unwrap();
        scanned.range = AddrRange::new(start, start + bytes);
        scanned
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the child ended");
        line.trim_end().to_owned()
    }

    fn request(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}").unwrap();
        self.line()
    }

    pub fn process(&self) -> Process {
        Process::open(TargetId(0), self.child.id()).unwrap()
    }

    pub fn page(&self, nth: usize) -> Addr {
        Addr(self.range.start.0 + nth as u64 * PAGE_SIZE)
    }

    /// Makes the child access `each` pages of every 2 MiB again and again.
    pub fn spin(&mut self, each: usize) {
        self.request(&format!("spin {each}"));
    }

    /// Ends `spin`.
    pub fn stop(&mut self) {
        self.request("stop");
    }

    pub fn read_all(&mut self) {
        self.request("read-all");
    }

    /// Number of accesses, and their CPU time.
    pub fn count(&mut self) -> (u64, Nanos) {
        let text = self.request("count");
        let (accesses, cpu) = text.split_once(' ').unwrap();
        (accesses.parse().unwrap(), Nanos(cpu.parse().unwrap()))
    }

    /// Makes the child access and log pages outside of the set of `each`.
    pub fn log(&mut self, each: usize) {
        self.request(&format!("log {each}"));
    }

    /// The log: time and page of each access.
    pub fn logged(&mut self) -> Vec<(Nanos, usize)> {
        let text = self.request("logged");
        let words: Vec<u64> = text
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        let (pairs, _) = words.as_chunks::<2>();
        pairs
            .iter()
            .map(|[at, page]| (Nanos(*at), *page as usize))
            .collect()
    }
}

impl Drop for ScannedChild {
    fn drop(&mut self) {
        // The only possible error is that the child has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

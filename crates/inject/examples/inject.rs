//! Makes a process set a huge-page flag on its own memory repeatedly, and prints statistics of the stops.
//!
//! ```text
//! inject PID START END COUNT SECONDS [LAST]
//! ```
//! Sets `MADV_NOHUGEPAGE` and `MADV_HUGEPAGE` in turn on the range (hexadecimal), COUNT times, but starts no
//! call after SECONDS. With LAST, the program kills itself right after request number LAST of the first call.
//! Tests use this to see what happens to a target whose tracer dies at any point.
#![allow(
    clippy::unwrap_used,
    reason = "a test program, in which a panic is the report"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use thermo_inject::{Call, HugeFlag, InjectError, Injector, Request};
use thermo_kernel::pidfd::PidFd;
use thermo_units::AddrRange;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).map(|word| word.parse::<u32>().unwrap());
    let hex = |at: usize| u64::from_str_radix(words[at].trim_start_matches("0x"), 16).unwrap();
    let pid = number(0).unwrap();
    let range = AddrRange::new(hex(1), hex(2));
    let (count, last) = (number(3).unwrap(), number(5).unwrap_or(u32::MAX));
    let (begin, longest) = (Instant::now(), Duration::from_secs(number(4).unwrap().into()));
    let mut made = 0;
    let mut hook = |_: Request| {
        made += 1;
        if made == last {
            // SIGKILL cannot be handled.
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    };
    let mut injector = Injector::new(Path::new("/"));
    let pidfd = PidFd::open(pid).unwrap();
    let (mut stops, mut failed, mut unsuitable) = (Vec::new(), 0, 0);
    for n in (0..count).take_while(|_| begin.elapsed() < longest) {
        let flag = if n % 2 == 0 {
            HugeFlag::NoHugePage
        } else {
            HugeFlag::HugePage
        };
        match injector.madvise_with_hook(&pidfd, pid, Call { range, flag }, &mut hook) {
            Ok(done) => {
                failed += u32::from(done.errno != 0);
                stops.push(done.stopped.0);
            }
            Err(InjectError::NoSuitableThread { why, .. }) => {
                unsuitable += 1;
                if unsuitable == 1 {
                    eprintln!("no suitable thread: {why}");
                }
            }
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(1);
            }
        }
    }
    stops.sort_unstable();
    let at = |part: usize| {
        stops
            .get(stops.len().saturating_sub(1) * part / 100)
            .map_or(0.0, |ns| *ns as f64 / 1000.0)
    };
    println!(
        "calls={} seconds={} failed={failed} unsuitable={unsuitable} median_us={:.1} p99_us={:.1} max_us={:.1}",
        stops.len(),
        begin.elapsed().as_secs(),
        at(50),
        at(99),
        at(100)
    );
}

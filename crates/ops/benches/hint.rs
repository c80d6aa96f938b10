//! Hints against bare `process_madvise` on the same memory of another process: bytes a second, in turns.
//!
//! `cargo bench -p thermocline-ops --bench hint`. Pageout is measured where swap is on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use thermo_core::{Action, AddrRange, Permille, TargetId};
use thermo_ops::hint::{Hint, Hinter, Limits};
use thermo_ops::{Actor, PageoutLimits, Process, Processes};
use thermo_sys::meminfo;
use thermo_sys::process_madvise::{Advice, MAX_RANGES, process_madvise};

const SIZE: usize = 256 << 20;
const ROUNDS: usize = 9;

fn main() {
    if std::env::var_os("THERMO_BENCH_CHILD").is_some() {
        return child();
    }
    let mut target = Command::new(std::env::current_exe().expect("we run"))
        .env("THERMO_BENCH_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("we can be started again");
    let (mut to, from) = (
        target.stdin.take().expect("piped"),
        target.stdout.take().expect("piped"),
    );
    let mut from = BufReader::new(from);
    let mut touch = || {
        let mut line = String::new();
        writeln!(to, "touch").expect("it listens");
        from.read_line(&mut line).expect("it answers");
        line.trim().parse::<u64>().expect("an address")
    };
    let start = touch();
    let processes = Processes::from([(
        TargetId(0),
        Process::open(TargetId(0), target.id()).expect("it runs"),
    )]);
    println!(
        "{:<34} {:>12} {:>12} {:>8}",
        "MiB/s, medians of 9", "raw", "hints", "share"
    );
    for (action, advice, piece, name) in [
        (Action::Cold, Advice::Cold, 64 << 20, "cold, 64 MiB ranges"),
        (Action::Cold, Advice::Cold, 64 << 10, "cold, 64 KiB ranges"),
        (
            Action::Pageout,
            Advice::PageOut,
            64 << 20,
            "pageout, 64 MiB ranges",
        ),
        (
            Action::Pageout,
            Advice::PageOut,
            64 << 10,
            "pageout, 64 KiB ranges",
        ),
    ] {
        let swap = meminfo::read(Path::new("/")).map_or(0, |info| info.swap_free.0);
        if action == Action::Pageout && swap < SIZE as u64 {
            println!("{name:<34} not measured: {swap} bytes of swap are free");
            continue;
        }
        let ranges: Vec<AddrRange> = (start..start + SIZE as u64)
            .step_by(piece)
            .map(|at| AddrRange::new(at, at + piece as u64))
            .collect();
        let (mut raw, mut hinted) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            touch();
            raw.push(timed(|| bare(&processes, &ranges, advice)));
            touch();
            hinted.push(timed(|| by_hints(&processes, &ranges, action)));
        }
        let (raw, hinted) = (median(raw), median(hinted));
        println!(
            "{name:<34} {raw:>12.0} {hinted:>12.0} {:>7.1}%",
            hinted / raw * 100.0
        );
    }
    drop(to);
    let _ = target.wait();
}

fn bare(processes: &Processes, ranges: &[AddrRange], advice: Advice) {
    // At most 2 GiB a call: all of it fits.
    for call in ranges.chunks(MAX_RANGES) {
        process_madvise(processes[&TargetId(0)].pidfd.as_fd(), call, advice).expect("it can be advised");
    }
}

fn by_hints(processes: &Processes, ranges: &[AddrRange], action: Action) {
    let hint = |range: &AddrRange| Hint {
        target: TargetId(0),
        range: *range,
        action,
    };
    let hints: Vec<Hint> = ranges.iter().map(hint).collect();
    let limits = PageoutLimits {
        swap_floor: Permille(0),
        refaults: Permille(1000),
        ..PageoutLimits::default()
    };
    Hinter::new(Actor::new(limits, false), Limits::default()).give(processes, &hints);
}

/// MiB a second.
fn timed(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    (SIZE >> 20) as f64 / begin.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn child() {
    let mut memory = vec![0_u8; SIZE + 8192];
    rustix::thread::disable_transparent_huge_pages(true).expect("it can be switched off");
    for line in std::io::stdin().lines() {
        if line.is_err() {
            return;
        }
        for (nth, page) in memory.chunks_mut(4096).enumerate() {
            // About half of a page is noise.
            let mut word = nth as u64 | 1;
            for eight in page[..2048].chunks_exact_mut(8) {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                eight.copy_from_slice(&word.to_ne_bytes());
            }
        }
        println!("{}", (memory.as_ptr() as u64).next_multiple_of(4096));
    }
}

//! What it costs to page one page out and in on this machine, measured with memory of our own.

use std::hint::black_box;
use std::path::Path;

use anyhow::Context as _;
use thermo_kernel::clock;
use thermo_kernel::madvise_batch::madvise_batch;
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::pidfd::PidFd;
use thermo_kernel::process_madvise::Advice;
use thermo_kernel::swap::{self, Swap};
use thermo_report::advice::PageCosts;
use thermo_units::{AddrRange, Bytes, Nanos, PAGE_SIZE};

/// Memory to page out and in: enough for a stable mean, little enough for a tenth of a second.
const MEASURED: Bytes = Bytes::mib(16);
/// Without so much more free swap, nothing is measured.
const SPARE: Bytes = Bytes::mib(64);

/// Measures the costs. `None`: there is too little free swap, or the memory did not leave.
///
/// # Errors
/// The memory cannot be advised or looked up.
pub(super) fn measure() -> anyhow::Result<Option<PageCosts>> {
    let root = Path::new("/");
    let free: Bytes = swap::read(root)?.iter().map(Swap::free).sum();
    if free < MEASURED + SPARE {
        return Ok(None);
    }
    let memory = compressible(MEASURED);
    let first = (memory.as_ptr() as u64).next_multiple_of(PAGE_SIZE);
    let range = AddrRange::new(first, first + (MEASURED.0 - PAGE_SIZE));
    let us = PidFd::open(std::process::id()).context("cannot open our own process")?;
    let before = clock::thread_cpu();
    madvise_batch(&us, &[range], Advice::PageOut, MEASURED, &mut |_| false);
    let out = clock::thread_cpu().saturating_sub(before);
    let mut pages = Vec::new();
    Pagemap::open(root, std::process::id())
        .and_then(|pagemap| pagemap.read(range, &mut pages))
        .context("cannot look up our own memory")?;
    let left = pages.iter().filter(|page| !page.is_present()).count() as u64;
    if left < range.len().0 / PAGE_SIZE / 2 {
        return Ok(None);
    }
    let (cpu, began) = (clock::thread_cpu(), clock::monotonic());
    for page in memory.chunks(PAGE_SIZE as usize) {
        black_box(page.first());
    }
    let back = clock::thread_cpu().saturating_sub(cpu);
    let wait = clock::monotonic().saturating_sub(began);
    let each = |time: Nanos| Nanos(time.0 / left);
    Ok(Some(PageCosts {
        out: each(out),
        back: each(back),
        wait: each(wait),
    }))
}

/// Memory of which every page differs and compresses to about a third, as that of programs does.
fn compressible(size: Bytes) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut memory = vec![0_u8; usize::try_from(size.0).unwrap_or(0)];
    for line in memory.chunks_mut(64) {
        // One random word of eight.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (byte, value) in line.iter_mut().zip(state.to_le_bytes()) {
            *byte = value;
        }
        if let Some(last) = line.last_mut() {
            *last = 1;
        }
    }
    memory
}

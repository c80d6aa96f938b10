//! Reading pages of a live process: what it finds, and what it does to the pages.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use thermo_compress::{Candidate, PageReader, ProcessReader, SampleSettings, Stratum, sample};
use thermo_kernel::kpageflags::{Flags, PageFrames};
use thermo_kernel::pagemap::{self, Pagemap};
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

const NR_PAGES: u64 = 200;

/// Memory of this process, the first half touched.
fn half_touched() -> (Vec<u8>, AddrRange) {
    let mut memory = vec![0; ((NR_PAGES + 1) * PAGE_SIZE) as usize];
    let start = Addr(memory.as_ptr() as u64).align_up().0;
    let skip = (start - memory.as_ptr() as u64) as usize;
    let touched = &mut memory[skip..][..(NR_PAGES / 2 * PAGE_SIZE) as usize];
    touched.fill_with({
        let mut nth = 0_u32;
        move || {
            nth += 1;
            (nth % 251) as u8
        }
    });
    (memory, AddrRange::new(start, start + NR_PAGES * PAGE_SIZE))
}

fn pages(range: AddrRange) -> Vec<pagemap::Page> {
    let mut pages = Vec::new();
    let pagemap = Pagemap::open(Path::new("/"), std::process::id()).unwrap();
    pagemap.read(range, &mut pages).unwrap();
    pages
}

#[test]
fn sample_reads_present_pages_and_allocates_none() {
    let (memory, range) = half_touched();
    let present = || pages(range).iter().filter(|page| page.is_present()).count() as u64;
    let before = present();
    let pid = std::process::id();
    let strata = [Stratum {
        key: "half touched",
        bytes: Bytes(before * PAGE_SIZE),
        candidates: vec![Candidate { pid, range }],
    }];
    let found = sample(&strata, &mut ProcessReader::new(), &SampleSettings::default()).unwrap();
    assert_eq!(found.total.nr_read, before);
    assert_eq!(found.total.unread.not_present, NR_PAGES - before);
    let lz4 = found.total.algorithms[0].stored;
    assert!(lz4.mean < 0.2, "{lz4:?}");
    assert_eq!(present(), before);
    drop(memory);
}

/// The flags of present pages that are folios of their own.
fn single_pages(frames: &PageFrames, range: AddrRange) -> Vec<(Addr, Flags)> {
    let addrs = (range.start.0..range.end.0).step_by(PAGE_SIZE as usize).map(Addr);
    let flags = |(addr, page): (Addr, pagemap::Page)| Some((addr, frames.flags(page.pfn()?).ok()?));
    let is_single = |(_, flags): &(Addr, Flags)| !flags.is_compound_head() && !flags.is_compound_tail();
    addrs
        .zip(pages(range))
        .filter_map(flags)
        .filter(is_single)
        .collect()
}

#[test]
fn one_read_activates_no_page() {
    let (memory, range) = half_touched();
    let Ok(frames) = PageFrames::open(Path::new("/")) else {
        eprintln!("SKIP: cannot open /proc/kpageflags");
        return;
    };
    let (before, mut reader, mut page) = (single_pages(&frames, range), ProcessReader::new(), [0; 4096]);
    if before.is_empty() {
        eprintln!("SKIP: all pages belong to larger folios, or frame numbers are hidden");
        return;
    }
    for (addr, _) in &before {
        reader.read(std::process::id(), *addr, &mut page).unwrap();
    }
    let after = single_pages(&frames, range);
    let active = |pages: &[(Addr, Flags)]| pages.iter().filter(|(_, flags)| flags.is_active()).count();
    let referenced = after.iter().filter(|(_, flags)| flags.is_referenced()).count();
    let (nr, was, is) = (before.len(), active(&before), active(&after));
    println!("{nr} pages: {was} active before and {is} after one read, {referenced} referenced");
    assert!(is <= was + nr / 20);
    drop(memory);
}

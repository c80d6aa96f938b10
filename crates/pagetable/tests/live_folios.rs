//! Folios of our own memory, read from the kernel's array of struct page, compared with `/proc/kpageflags`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs::File;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::id;
use std::thread::sleep;
use std::time::{Duration, Instant};

use thermo_pagetable::{Entry, Folios, Leaf, PageTables};
use thermo_units::{Addr, AddrRange};

const PAGES: usize = 2048;
/// From include/uapi/linux/kernel-page-flags.h: head and tail of a folio that is larger than a page.
const COMPOUND: u64 = 1 << 15 | 1 << 16;

/// Both forms of the program, as far as the kernel accepts them; prints why if it accepts none.
fn open() -> Vec<PageTables> {
    let opened = [PageTables::open(), PageTables::open_by_iterator()];
    if let [Err(why), Err(_)] = &opened {
        eprintln!("SKIP: {why}");
    }
    opened.into_iter().flatten().collect()
}

/// Our own memory, every page written.
fn memory() -> Vec<u8> {
    let mut bytes = vec![0_u8; (PAGES + 1) * 4096];
    bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    black_box(bytes)
}

fn pages_of(memory: &[u8]) -> Vec<Addr> {
    let start = Addr(memory.as_ptr() as u64).align_up();
    (0..PAGES as u64)
        .map(|page| Addr(start.0 + page * 4096))
        .collect()
}

/// The leaf of each of `addrs`; `None` where the page is no longer mapped (swapped out, moved).
fn leaves(tables: &mut PageTables, addrs: &[Addr], folios: Folios) -> Vec<Option<Leaf>> {
    let mut entries = Vec::new();
    tables.entries(id(), addrs, folios, &mut entries).unwrap();
    let leaf = |entry: &Entry| match entry {
        Entry::Leaf(leaf) => Some(*leaf),
        _ => None,
    };
    entries.iter().map(leaf).collect()
}

#[test]
fn young_flags_are_readable_where_damon_exists() {
    if !Path::new("/sys/kernel/mm/damon").exists() {
        return eprintln!("SKIP: this kernel has no in-kernel DAMON, or its files are not visible");
    }
    for tables in open() {
        assert_eq!(tables.young_support(), Ok(()));
    }
}

#[test]
fn folio_size_agrees_with_kpageflags() {
    let Ok(flags) = File::open("/proc/kpageflags") else {
        return eprintln!("SKIP: /proc/kpageflags cannot be read; run as root");
    };
    let is_large = |leaf: &Leaf| {
        let mut word = [0; 8];
        flags.read_exact_at(&mut word, leaf.pfn * 8).unwrap();
        u64::from_ne_bytes(word) & COMPOUND != 0
    };
    for mut tables in open() {
        let memory = memory();
        let addrs = pages_of(&memory);
        // Huge pages come and go: mismatches are read again.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let leaves = leaves(&mut tables, &addrs, Folios::All);
            let leaves: Vec<Leaf> = leaves.into_iter().flatten().collect();
            assert!(!leaves.is_empty());
            if leaves.iter().all(|leaf| leaf.is_large.is_none()) {
                assert!(tables.young_support().is_err());
                eprintln!("SKIP: folios cannot be read here: {:?}", tables.young_support());
                return;
            }
            let wrong = leaves
                .iter()
                .filter(|leaf| leaf.level == 0 && leaf.is_large != Some(is_large(leaf)))
                .count();
            if wrong == 0 {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{wrong} of {PAGES} pages have the wrong folio size"
            );
            sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn folios_are_read_only_when_requested() {
    for mut tables in open() {
        let memory = memory();
        let addrs = pages_of(&memory);
        let not_requested = leaves(&mut tables, &addrs, Folios::None);
        assert!(
            not_requested
                .iter()
                .flatten()
                .all(|leaf| leaf.is_large.is_none() && !leaf.young)
        );
        let requested = leaves(&mut tables, &addrs, Folios::NotAccessed);
        let has_folio = |leaf: &Leaf| leaf.is_large.is_some() || leaf.young;
        for (addr, leaf) in addrs.iter().zip(requested) {
            if let Some(leaf) = leaf.filter(has_folio) {
                assert!(!leaf.accessed, "{addr} {leaf:?}");
            }
        }
    }
}

#[test]
fn tables_and_entries_agree_on_young_folios() {
    for mut tables in open() {
        let memory = memory();
        let addrs = pages_of(&memory);
        let range = AddrRange::new(addrs[0].0, addrs[0].0 + PAGES as u64 * 4096);
        for folios in [Folios::None, Folios::NotAccessed] {
            // Other users clear accessed bits between two reads as well: only pages on which the reads before
            // and after agree are compared.
            let before = leaves(&mut tables, &addrs, folios);
            let mut young = vec![None; PAGES];
            let layout = *tables.layout();
            tables
                .tables(id(), range, folios, &mut |table| {
                    for nth in 0..512 {
                        let addr = Addr(table.base.0 + nth as u64 * 4096);
                        if let (0, true, Entry::Leaf(leaf)) =
                            (table.level, range.contains(addr), table.decode(&layout, nth))
                        {
                            young[((addr - range.start).0 / 4096) as usize] = Some(leaf.young);
                        }
                    }
                    ControlFlow::Continue(())
                })
                .unwrap();
            let after = leaves(&mut tables, &addrs, folios);
            for (nth, (before, after)) in before.iter().zip(&after).enumerate() {
                if let (Some(young), Some(leaf)) = (young[nth], before)
                    && before == after
                {
                    assert_eq!(young, leaf.young, "page {nth} of {folios:?}");
                }
            }
        }
    }
}

//! Folios of our own memory, read from the kernel's array of struct page, against what `/proc/kpageflags` says of them.
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
/// Of include/uapi/linux/kernel-page-flags.h: head and tail of a folio that is larger than a page.
const COMPOUND: u64 = 1 << 15 | 1 << 16;

/// The program in both its forms, as far as this kernel takes them and folios can be read; says why not else.
fn open() -> Vec<PageTables> {
    let opened = [PageTables::open(), PageTables::open_by_iterator()];
    if let [Err(why), Err(_)] = &opened {
        eprintln!("SKIP: {why}");
    }
    opened.into_iter().flatten().collect()
}

/// Pages of ours, all of them written.
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

/// What maps each of `addrs`; none where it is gone again (swapped out, moved).
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
fn where_damon_is_the_marks_it_takes_are_seen() {
    if !Path::new("/sys/kernel/mm/damon").exists() {
        return eprintln!("SKIP: this kernel has no in-kernel DAMON, or we may not see it");
    }
    for tables in open() {
        assert_eq!(tables.sees_young(), Ok(()));
    }
}

#[test]
fn folios_are_as_large_as_the_kernel_says() {
    let Ok(flags) = File::open("/proc/kpageflags") else {
        return eprintln!("SKIP: /proc/kpageflags cannot be read: it takes root");
    };
    let is_large = |leaf: &Leaf| {
        let mut word = [0; 8];
        flags.read_exact_at(&mut word, leaf.pfn * 8).unwrap();
        u64::from_ne_bytes(word) & COMPOUND != 0
    };
    for mut tables in open() {
        let memory = memory();
        let addrs = pages_of(&memory);
        // Huge pages come and go: what differs now is looked at once more.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let leaves = leaves(&mut tables, &addrs, Folios::OfAll);
            let leaves: Vec<Leaf> = leaves.into_iter().flatten().collect();
            assert!(!leaves.is_empty());
            if leaves.iter().all(|leaf| leaf.is_large.is_none()) {
                assert!(tables.sees_young().is_err());
                eprintln!("SKIP: folios cannot be read here: {:?}", tables.sees_young());
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
                "{wrong} of {PAGES} pages are told wrongly"
            );
            sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn what_is_not_asked_is_not_told() {
    for mut tables in open() {
        let memory = memory();
        let addrs = pages_of(&memory);
        let unasked = leaves(&mut tables, &addrs, Folios::Unasked);
        assert!(
            unasked
                .iter()
                .flatten()
                .all(|leaf| leaf.is_large.is_none() && !leaf.young)
        );
        let asked = leaves(&mut tables, &addrs, Folios::OfUnmarked);
        let told = |leaf: &Leaf| leaf.is_large.is_some() || leaf.young;
        for (addr, leaf) in addrs.iter().zip(asked) {
            if let Some(leaf) = leaf.filter(told) {
                assert!(!leaf.accessed, "{addr} {leaf:?}");
            }
        }
    }
}

#[test]
fn tables_say_of_young_folios_what_entries_say() {
    for mut tables in open() {
        let memory = memory();
        let addrs = pages_of(&memory);
        let range = AddrRange::new(addrs[0].0, addrs[0].0 + PAGES as u64 * 4096);
        for folios in [Folios::Unasked, Folios::OfUnmarked] {
            // Who takes marks off does it between two looks as well: what both looks around agree on is compared.
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

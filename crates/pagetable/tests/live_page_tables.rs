//! Page tables of our own process, whose memory is known.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::hint::black_box;
use std::ops::ControlFlow;
use std::process::{Command, id};

use thermo_pagetable::{Entry, Folios, PageTables, WalkError};
use thermo_units::{Addr, AddrRange};

/// 40 MiB: allocations above 32 MiB come fresh from the kernel, never from freed memory.
const PAGES: usize = 10_240;

/// Both forms of the program, as far as the kernel accepts them; prints why if it accepts none.
fn open() -> Vec<PageTables> {
    let (opened, refused): (Vec<_>, Vec<_>) = [PageTables::open(), PageTables::open_by_iterator()]
        .into_iter()
        .partition(Result::is_ok);
    if let (true, Some(Err(why))) = (opened.is_empty(), refused.first()) {
        eprintln!("SKIP: {why}");
    }
    opened.into_iter().flatten().collect()
}

/// `PAGES` pages of our own memory, of which the first half is resident.
struct Memory(Vec<u8>);

impl Memory {
    fn new() -> Self {
        // Fresh memory from the kernel: no page is resident before it is written.
        let mut bytes = vec![0_u8; (PAGES + 1) * 4096];
        let skip = bytes.as_ptr().align_offset(4096);
        for page in 0..PAGES / 2 {
            bytes[skip + page * 4096] = 1;
        }
        Self(black_box(bytes))
    }

    fn range(&self) -> AddrRange {
        let start = Addr(self.0.as_ptr() as u64).align_up();
        AddrRange::new(start.0, start.0 + PAGES as u64 * 4096)
    }
}

#[test]
fn written_pages_are_present_and_accessed() {
    for mut tables in open() {
        let memory = Memory::new();
        let start = memory.range().start.0;
        let addrs: Vec<Addr> = (0..PAGES as u64).map(|page| Addr(start + page * 4096)).collect();
        let mut entries = Vec::new();
        tables.entries(id(), &addrs, Folios::None, &mut entries).unwrap();
        assert_eq!(entries.len(), PAGES);
        let is_present = |entry: &Entry| matches!(entry, Entry::Leaf(_));
        assert!(entries[..PAGES / 2].iter().all(is_present), "{:?}", &entries[..8]);
        // A huge page at the boundary may map up to 511 more pages.
        let more = entries[PAGES / 2..]
            .iter()
            .filter(|entry| is_present(entry))
            .count();
        assert!(more < 512, "{more} untouched pages are present");
        // Others (a kdamond, reclaim) may have cleared accessed bits since, but hardly all of them.
        let accessed = entries
            .iter()
            .filter(|entry| matches!(entry, Entry::Leaf(leaf) if leaf.accessed))
            .count();
        assert!(accessed > 0, "no page has its accessed bit set");
    }
}

#[test]
fn tables_and_entries_agree() {
    for mut tables in open() {
        let memory = Memory::new();
        let range = memory.range();
        let layout = *tables.layout();
        let mut found = vec![false; PAGES];
        let mut last = None;
        tables
            .tables(id(), range, Folios::None, &mut |table| {
                assert!(
                    last < Some((table.base, u8::MAX - table.level)),
                    "{} after {last:?}",
                    table.base
                );
                last = Some((table.base, u8::MAX - table.level));
                let span = 4096_u64 << (9 * table.level);
                for (i, raw) in table.entries.iter().enumerate() {
                    let Entry::Leaf(_) = layout.decode(*raw, table.level) else {
                        continue;
                    };
                    let base = table.base.0 + i as u64 * span;
                    for addr in (base..base + span)
                        .step_by(4096)
                        .filter(|addr| range.contains(Addr(*addr)))
                    {
                        found[((addr - range.start.0) / 4096) as usize] = true;
                    }
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(found[..PAGES / 2].iter().all(|found| *found));
        assert!(found[PAGES / 2..].iter().filter(|found| **found).count() < 512);
    }
}

#[test]
fn tables_cross_empty_address_space() {
    for mut tables in open() {
        let memory = Memory::new();
        let mut pages = 0;
        let layout = *tables.layout();
        tables
            .tables(id(), AddrRange::new(0, 1 << 47), Folios::None, &mut |table| {
                let leaf = |raw: &&u64| matches!(layout.decode(**raw, table.level), Entry::Leaf(_));
                pages += table.entries.iter().filter(leaf).count();
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(pages > 0, "no page found, not even our own code");
        drop(memory);
    }
}

#[test]
fn ended_process_is_reported_gone() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    for mut tables in open() {
        let pid = child.id();
        let gone = Err(WalkError::Gone { pid });
        assert_eq!(
            tables.entries(pid, &[Addr(0x1000)], Folios::None, &mut Vec::new()),
            gone
        );
        assert_eq!(
            tables.tables(pid, AddrRange::new(0, 1 << 30), Folios::None, &mut |_| {
                ControlFlow::Continue(())
            }),
            gone
        );
        // Kernel threads have no address space. pid 2 is kthreadd, unless we are in a container.
        if std::fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim() == "kthreadd") {
            assert_eq!(
                tables.entries(2, &[Addr(0x1000)], Folios::None, &mut Vec::new()),
                Err(WalkError::Gone { pid: 2 })
            );
        }
    }
}

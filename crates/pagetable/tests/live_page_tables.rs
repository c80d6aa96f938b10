//! Page tables of a real process: our own, whose memory we know.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::hint::black_box;
use std::ops::ControlFlow;
use std::process::{Command, id};

use thermo_pagetable::{Entry, Folios, PageTables, WalkError};
use thermo_units::{Addr, AddrRange};

/// 40 MiB: what is larger than 32 MiB comes fresh from the kernel, never from what was freed before.
const PAGES: usize = 10_240;

/// The program in both its forms, as far as this kernel takes them; if it takes none, says why.
fn open() -> Vec<PageTables> {
    let (opened, refused): (Vec<_>, Vec<_>) = [PageTables::open(), PageTables::open_by_iterator()]
        .into_iter()
        .partition(Result::is_ok);
    if let (true, Some(Err(why))) = (opened.is_empty(), refused.first()) {
        eprintln!("SKIP: {why}");
    }
    opened.into_iter().flatten().collect()
}

/// `PAGES` pages of ours, of which the first half is there.
struct Memory(Vec<u8>);

impl Memory {
    fn new() -> Self {
        // Fresh zeroes from the kernel: no page is there before it is written.
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
fn pages_that_were_written_are_there_and_accessed() {
    for mut tables in open() {
        let memory = Memory::new();
        let start = memory.range().start.0;
        let addrs: Vec<Addr> = (0..PAGES as u64).map(|page| Addr(start + page * 4096)).collect();
        let mut entries = Vec::new();
        tables
            .entries(id(), &addrs, Folios::Unasked, &mut entries)
            .unwrap();
        assert_eq!(entries.len(), PAGES);
        let there = |entry: &Entry| matches!(entry, Entry::Leaf(_));
        assert!(entries[..PAGES / 2].iter().all(there), "{:?}", &entries[..8]);
        // A huge page at the border may bring up to 511 pages more.
        let more = entries[PAGES / 2..].iter().filter(|entry| there(entry)).count();
        assert!(more < 512, "{more} untouched pages are there");
        // Others (a kdamond, reclaim) may have taken marks off since, but hardly all of them.
        let accessed = entries
            .iter()
            .filter(|entry| matches!(entry, Entry::Leaf(leaf) if leaf.accessed))
            .count();
        assert!(accessed > 0, "no page is marked accessed");
    }
}

#[test]
fn whole_tables_say_what_single_entries_say() {
    for mut tables in open() {
        let memory = Memory::new();
        let range = memory.range();
        let layout = *tables.layout();
        let mut found = vec![false; PAGES];
        let mut last = None;
        tables
            .tables(id(), range, Folios::Unasked, &mut |table| {
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
fn an_empty_address_space_of_terabytes_is_crossed() {
    for mut tables in open() {
        let memory = Memory::new();
        let mut pages = 0;
        let layout = *tables.layout();
        tables
            .tables(id(), AddrRange::new(0, 1 << 47), Folios::Unasked, &mut |table| {
                let leaf = |raw: &&u64| matches!(layout.decode(**raw, table.level), Entry::Leaf(_));
                pages += table.entries.iter().filter(leaf).count();
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(pages > 0, "not even our own code was found");
        drop(memory);
    }
}

#[test]
fn a_process_that_ended_is_gone() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    for mut tables in open() {
        let pid = child.id();
        let gone = Err(WalkError::Gone { pid });
        assert_eq!(
            tables.entries(pid, &[Addr(0x1000)], Folios::Unasked, &mut Vec::new()),
            gone
        );
        assert_eq!(
            tables.tables(pid, AddrRange::new(0, 1 << 30), Folios::Unasked, &mut |_| {
                ControlFlow::Continue(())
            }),
            gone
        );
        // Kernel threads have no memory of their own: pid 2 is their parent, unless we are in a container.
        if std::fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim() == "kthreadd") {
            assert_eq!(
                tables.entries(2, &[Addr(0x1000)], Folios::Unasked, &mut Vec::new()),
                Err(WalkError::Gone { pid: 2 })
            );
        }
    }
}

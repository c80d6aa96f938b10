//! The page tables of other processes.

use std::fs;

use thermo_core::{Addr, AddrRange};

use crate::calibrate::{Machine, calibrate};
use crate::error::{BpfError, WalkError};
use crate::layout::{Arch, Entry, Layout};
use crate::load::{Kind, failed, load, load_as};
use crate::memory_end::memory_end;
use crate::run::Runner;
use crate::shared::{Call, MAX_PROBES, UNREADABLE, WHAT_PROBES, WHAT_TABLES};

/// A way to read the page tables of any process.
#[derive(Debug)]
pub struct PageTables {
    runner: Runner,
    machine: Machine,
}

/// A copy of one table.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// The first address it maps: entry `i` maps the addresses from `base + i * (4096 << 9 * level)` on.
    pub base: Addr,
    /// 0: its entries are pages. 1: they are huge pages of 2 MiB, holes, and tables of level 0, which follow
    /// as tables of their own.
    pub level: u8,
    /// Its entries as the processor reads them; [`Layout::decode`] tells what they mean.
    pub entries: &'a [u64; 512],
}

impl PageTables {
    /// Loads the program and learns how this machine lays out its memory. Takes some milliseconds, and 1 MiB of
    /// kernel memory until dropped.
    ///
    /// # Errors
    /// The reason why tables cannot be read here, and the way out.
    pub fn open() -> Result<Self, BpfError> {
        Self::with(Runner::new(load()?))
    }

    /// The same through the iterator form of the program, which older kernels and pid namespaces need.
    ///
    /// # Errors
    /// As [`PageTables::open`].
    pub fn open_by_iterator() -> Result<Self, BpfError> {
        Self::with(Runner::new(load_as(Kind::Iterator)?))
    }

    fn with(mut runner: Runner) -> Result<Self, BpfError> {
        let arch = match std::env::consts::ARCH {
            "x86_64" => Arch::X86_64,
            "aarch64" => Arch::Aarch64,
            other => {
                return Err(BpfError::Unsupported(format!(
                    "the tables of {other} are not known"
                )));
            }
        };
        let page_size = rustix::param::page_size();
        if page_size != 4096 {
            return Err(BpfError::Unsupported(format!(
                "pages are {page_size} bytes, not 4096"
            )));
        }
        let zones = fs::read_to_string("/proc/zoneinfo")
            .map_err(|error| failed("reading /proc/zoneinfo, to learn where memory ends", error))?;
        let end = memory_end(&zones).ok_or_else(|| {
            failed(
                "reading /proc/zoneinfo",
                "it names no memory zone with a start_pfn",
            )
        })?;
        let machine = calibrate(&mut runner, arch, end)?;
        Ok(Self { runner, machine })
    }

    /// How entries are to be read.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.machine.layout
    }

    /// Reads the entries that map `addrs` in process `pid`, in the same order, into `entries` (which is emptied
    /// first). Costs about 0.2 µs an address and one system call for every 4096.
    ///
    /// # Errors
    /// [`WalkError::Gone`] when the process ended.
    pub fn entries(&mut self, pid: u32, addrs: &[Addr], entries: &mut Vec<Entry>) -> Result<(), WalkError> {
        entries.clear();
        for batch in addrs.chunks(MAX_PROBES) {
            for (slot, addr) in self.runner.loaded.probes.get_mut().iter_mut().zip(batch) {
                slot.addr = addr.0;
                slot.level = u64::from(UNREADABLE);
            }
            let nr_probes = batch.len() as u32;
            self.runner.run(Call {
                nr_probes,
                ..self.machine.call(WHAT_PROBES, pid)
            })?;
            let slots = &self.runner.loaded.probes.get()[..batch.len()];
            let decode = |level: u64, entry| {
                self.machine
                    .layout
                    .decode(entry, u8::try_from(level).unwrap_or(UNREADABLE))
            };
            entries.extend(slots.iter().map(|slot| decode(slot.level, slot.entry)));
        }
        Ok(())
    }

    /// Gives `each` a copy of every table of pages and of huge pages that maps a part of `range` in process
    /// `pid`: for each GiB first the table of level 1, then, ascending, those of level 0. Tables reach beyond the
    /// range where it does not lie on their borders. Pages of 1 GiB (hugetlb, devices) are left out: nothing can
    /// be done to them. Costs about 1 ms a GiB of small pages.
    ///
    /// # Errors
    /// [`WalkError::Gone`] when the process ended.
    pub fn tables(
        &mut self,
        pid: u32,
        range: AddrRange,
        each: &mut impl FnMut(Table<'_>),
    ) -> Result<(), WalkError> {
        let mut cursor = range.start.0;
        let mut last_middle = None;
        while cursor < range.end.0 {
            let call = Call {
                cursor,
                end: range.end.0,
                ..self.machine.call(WHAT_TABLES, pid)
            };
            let answer = self.runner.run(call)?;
            let loaded = &self.runner.loaded;
            let count = answer.nr_tables as usize;
            for (head, entries) in loaded.heads.get().iter().zip(loaded.tables.get()).take(count) {
                // A call that begins inside a GiB copies its level-1 table anew.
                if head.level == 1 && last_middle.replace(head.base) == Some(head.base) {
                    continue;
                }
                each(Table {
                    base: Addr(head.base),
                    level: head.level as u8,
                    entries,
                });
            }
            // Every call gets on, but what is read from the kernel's memory is not trusted with our patience.
            if answer.cursor <= cursor {
                break;
            }
            cursor = answer.cursor;
        }
        Ok(())
    }
}

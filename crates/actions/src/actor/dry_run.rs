//! Stands in for the kernel in dry runs.
//!
//! A dry run goes the same way as a run, up to the system call. In place of the call, this module says what
//! the kernel would answer, as far as that can be known without it: whether we may act on the process, what
//! is mapped, and which mappings do not allow the action. Only the call itself can tell that a page is busy,
//! that no huge page is free, or that a device does not take a page.

use std::cell::OnceCell;
use std::io;
use std::path::Path;

use thermo_engine::access_tables::Backing;
use thermo_kernel::madvise_batch::{AdviceOutcome, split_by_mapping};
use thermo_kernel::maps::Mapping;
use thermo_kernel::move_pages::{self, PageStatus};
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::process_madvise::{self, Advice};
use thermo_kernel::process_vm::{self, Unread};
use thermo_kernel::refusal::{Call, Refusal};
use thermo_kernel::smaps::{self, Counts, Vma};
use thermo_kernel::{ProcError, maps, status};
use thermo_targets::{Process, backing_of};
use thermo_units::{Addr, AddrRange, Bytes};

use super::migrate::MovePages;
use super::units::HUGE_PAGE;

/// What the kernel would answer for one process.
pub(super) struct DryKernel<'a> {
    root: &'a Path,
    process: &'a Process,
    mappings: OnceCell<Result<Vec<Vma>, i32>>,
}

impl<'a> DryKernel<'a> {
    pub(super) const fn new(root: &'a Path, process: &'a Process) -> Self {
        Self {
            root,
            process,
            mappings: OnceCell::new(),
        }
    }

    /// The outcomes that [`thermo_kernel::madvise_batch::madvise_batch`] would have.
    pub(super) fn madvise_batch(
        &self,
        ranges: &[AddrRange],
        advice: Advice,
        stop: &mut dyn FnMut(Bytes) -> bool,
    ) -> Vec<AdviceOutcome> {
        let mut outcomes = vec![AdviceOutcome::NotTried; ranges.len()];
        if let Err(error) = process_madvise::check(&self.process.pidfd, advice) {
            let refusal = Refusal::new(Call::Madvise(advice), &error);
            outcomes.fill(AdviceOutcome::Refused(refusal.errno));
            return outcomes;
        }
        let mut advised = Bytes::ZERO;
        for (range, outcome) in ranges.iter().zip(&mut outcomes) {
            if stop(advised) {
                break;
            }
            *outcome = self.madvise(*range, advice);
            if *outcome == AdviceOutcome::Done {
                advised += range.len();
            }
        }
        outcomes
    }

    /// The kernel goes mapping by mapping: it stops at the first that does not take the advice, and reports a
    /// hole at the end.
    fn madvise(&self, range: AddrRange, advice: Advice) -> AdviceOutcome {
        let mappings = match self.mappings(advice) {
            Ok(mappings) => mappings,
            Err(errno) => return AdviceOutcome::Refused(errno),
        };
        let mut mapped = Bytes::ZERO;
        for (vma, part) in split_by_mapping(range, mappings, |vma| vma.mapping.range) {
            if !takes(vma, advice) {
                return AdviceOutcome::Refused(libc::EINVAL);
            }
            if advice == Advice::Collapse && vma.has_userfaultfd() && !self.is_populated(part) {
                return AdviceOutcome::Refused(libc::EBUSY);
            }
            mapped += part.len();
        }
        if mapped == range.len() {
            AdviceOutcome::Done
        } else {
            AdviceOutcome::Refused(libc::ENOMEM)
        }
    }

    /// Whether all pages are present.
    fn is_populated(&self, range: AddrRange) -> bool {
        let mut pages = Vec::new();
        let pagemap = Pagemap::open(self.root, self.process.pid);
        let read = pagemap.and_then(|pagemap| pagemap.read(range, &mut pages));
        read.is_ok() && pages.iter().all(|page| page.is_present())
    }

    /// The mappings, or the error number of a call on the process. Their flags are expensive, so they are
    /// read only where they can matter.
    fn mappings(&self, advice: Advice) -> Result<&[Vma], i32> {
        let (root, pid) = (self.root, self.process.pid);
        let read = || {
            let status = status::read(root, pid)?;
            let has_flags = status.vm_lck > Bytes::ZERO || status.hugetlb > Bytes::ZERO;
            if has_flags || advice == Advice::Collapse {
                return smaps::read(root, pid);
            }
            let without_flags = |mapping| Vma {
                mapping,
                counts: Counts::default(),
                vm_flags: String::new(),
            };
            let mappings = maps::read(root, pid)?;
            Ok(mappings.into_iter().map(without_flags).collect())
        };
        // The pid may belong to another process by now.
        let read = self
            .mappings
            .get_or_init(|| read().map_err(|error: ProcError| error.errno()));
        match self.process.is_alive() {
            true => read.as_deref().map_err(|errno| *errno),
            false => Err(libc::ESRCH),
        }
    }

    /// The pages that [`process_vm::touch_all`] could not read.
    pub(super) fn touch_all(&self, pages: &[Addr]) -> Unread {
        let mut unread = Unread::default();
        // Nothing is mapped at address 0, so EFAULT means that we may read the process.
        let may_read = process_vm::touch(self.process.pid, &[Addr(0)]).err();
        let refusal = may_read.map(|error| Refusal::new(Call::ReadMemory, &error));
        if let Some(refusal) = refusal.filter(|refusal| refusal.is_process_wide()) {
            unread.add(refusal.errno, pages.len());
            return unread;
        }
        let mappings = self.mappings(Advice::WillNeed).unwrap_or_default();
        let is_readable = |addr: &&Addr| {
            let nth = mappings.partition_point(|vma| vma.mapping.range.end <= **addr);
            let vma = mappings.get(nth).filter(|vma| vma.mapping.range.contains(**addr));
            vma.is_some_and(|vma| vma.mapping.perms.read && !vma.mapping.is_device())
        };
        let refused = pages.iter().filter(|addr| !is_readable(addr)).count();
        if refused > 0 {
            unread.add(libc::EFAULT, refused);
        }
        unread
    }
}

/// Whether the kernel accepts `advice` for the mapping (`can_madv_lru_vma()` in mm/madvise.c,
/// `thp_vma_allowable_order()` in mm/huge_memory.c).
fn takes(vma: &Vma, advice: Advice) -> bool {
    let has = |flags: &[&str]| flags.iter().any(|flag| vma.has_flag(flag));
    match advice {
        Advice::WillNeed => true,
        Advice::Cold | Advice::PageOut => !vma.mapping.is_device() && !has(&["lo", "ht", "pf"]),
        Advice::Collapse => {
            !vma.mapping.is_device()
                && !has(&["ht", "pf", "io", "de", "mm", "nh"])
                && has_huge_backing(&vma.mapping)
        }
    }
}

/// Whether a mapping of this backing can hold huge pages. Of files, the kernel collapses only programs. Pages
/// of a file and of shared memory must have the same place in a huge page of the file and of the address
/// space.
fn has_huge_backing(mapping: &Mapping) -> bool {
    let is_aligned = mapping.range.start.0 % HUGE_PAGE.0 == mapping.offset % HUGE_PAGE.0;
    match backing_of(mapping) {
        Backing::Anon => true,
        Backing::Shmem => is_aligned,
        Backing::File => is_aligned && mapping.perms.exec,
    }
}

/// `move_pages` that moves nothing: each page that the kernel knows counts as moved.
pub(super) struct DryMoves {
    pid: u32,
    asked: Vec<(Addr, u32)>,
}

impl DryMoves {
    pub(super) const fn new(pid: u32) -> Self {
        Self {
            pid,
            asked: Vec::new(),
        }
    }
}

impl MovePages for DryMoves {
    fn move_pages(
        &mut self,
        pages: &[Addr],
        nodes: &[u32],
        statuses: &mut Vec<PageStatus>,
    ) -> io::Result<usize> {
        self.asked = pages.iter().copied().zip(nodes.iter().copied()).collect();
        statuses.clear();
        statuses.resize(pages.len(), PageStatus::UNSET);
        Ok(0)
    }

    fn query(&mut self, pages: &[Addr], statuses: &mut Vec<PageStatus>) -> io::Result<()> {
        move_pages::query(self.pid, pages, statuses)?;
        for (status, (_, node)) in statuses.iter_mut().zip(&self.asked) {
            let moved = i32::try_from(*node).unwrap_or(i32::MAX);
            if status.node().is_some() {
                *status = PageStatus::from_raw(moved);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(name: &str, inode: u64, vm_flags: &str) -> Vma {
        Vma {
            mapping: Mapping {
                range: AddrRange::new(0x20_0000, 0x40_0000),
                perms: thermo_kernel::maps::Perms::default(),
                offset: 0,
                inode,
                name: name.to_owned(),
            },
            counts: Counts::default(),
            vm_flags: vm_flags.to_owned(),
        }
    }

    #[test]
    fn mappings_take_advice_as_in_the_kernel() {
        for (name, inode, flags, cold, collapse) in [
            ("", 0, "rd wr", true, true),
            ("", 0, "rd wr lo", false, true),
            ("", 0, "rd wr ht", false, false),
            ("", 0, "rd wr nh", true, false),
            ("/dev/mem", 5, "", false, false),
            ("/dev/shm/x", 7, "", true, true),
            ("/var/lib/x", 7, "", true, false),
        ] {
            let vma = vma(name, inode, flags);
            assert_eq!(takes(&vma, Advice::Cold), cold, "{name} {flags}");
            assert_eq!(takes(&vma, Advice::PageOut), cold, "{name} {flags}");
            assert_eq!(takes(&vma, Advice::Collapse), collapse, "{name} {flags}");
            assert!(takes(&vma, Advice::WillNeed));
        }
    }
}

//! Finds the kernel's array of struct page (vmemmap), through which folios are read.
//!
//! The base is randomised at boot, and kernels without `KALLSYMS_ALL` do not show the symbol that holds it.
//! But the page cache of a memory file (memfd) with a single page holds the address of that page's struct
//! page, our page tables hold the page's frame number, and the array is indexed by frame number: base =
//! address - number * size. Several such files must agree, and the folios read through that base must be as
//! expected.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, madvise};

use crate::calibrate::Machine;
use crate::error::{FolioError, WalkError};
use crate::folios::Folios;
use crate::layout::{Arch, Entry};
use crate::run::Runner;
use crate::shared::{
    Call, FOLIO_LARGE, FOLIO_READ, FOLIO_SHMEM, OP_FILE, OP_PROBES, RawTable, Shared, UNREADABLE,
};

/// Number of our pages that must agree.
const PAGES: usize = 4;
/// Attempts: pages may be moved (compaction) between two reads.
const ATTEMPTS: usize = 3;

/// The array of struct page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vmemmap {
    pub base: u64,
    /// Whether this kernel has the young flag of folios.
    pub has_young: bool,
}

/// The facts about one of our pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OwnPage {
    /// Address of its struct page.
    struct_page: u64,
    /// Its frame number.
    pfn: u64,
    /// Size of a struct page in bytes.
    size: u64,
}

/// Finds the array.
pub(crate) fn find(runner: &mut Runner, machine: &Machine) -> Result<Vmemmap, FolioError> {
    let pages: Vec<MemfdPage> = (0..PAGES).map(|_| MemfdPage::new()).collect::<Result<_, _>>()?;
    let mut found = find_once(&pages, runner, machine);
    for _ in 1..ATTEMPTS {
        if !matches!(found, Err(FolioError::NotFound(_))) {
            break;
        }
        found = find_once(&pages, runner, machine);
    }
    found
}

fn find_once(pages: &[MemfdPage], runner: &mut Runner, machine: &Machine) -> Result<Vmemmap, FolioError> {
    let mut known = Vec::new();
    let mut has_young = false;
    for page in pages {
        let call = Call {
            fd: page.file.as_raw_fd() as u32,
            ..machine.call(OP_FILE, std::process::id())
        };
        let answer = runner.run(call).map_err(not_found)?;
        if answer.page_size == 0 {
            return Err(FolioError::Layout);
        }
        has_young = answer.has_young != 0;
        known.push(OwnPage {
            struct_page: answer.folio,
            pfn: probe(page, runner, machine)?.0,
            size: answer.page_size.into(),
        });
    }
    let base = base_of(&known, machine.layout.arch)?;
    let machine = Machine {
        vmemmap: base,
        ..*machine
    };
    for page in pages {
        let (_, folio) = probe(page, runner, &machine)?;
        if folio & (FOLIO_READ | FOLIO_SHMEM | FOLIO_LARGE) != FOLIO_READ | FOLIO_SHMEM {
            return Err(FolioError::NotFound(format!(
                "the folio of one of our pages, read through {base:#x}, has unexpected flags ({folio})"
            )));
        }
    }
    Ok(Vmemmap { base, has_young })
}

/// The base that follows from each of the pages, if all agree.
fn base_of(known: &[OwnPage], arch: Arch) -> Result<u64, FolioError> {
    let base = |page: &OwnPage| page.struct_page.checked_sub(page.pfn.checked_mul(page.size)?);
    // x86-64 aligns the array to 1 GiB. arm64 puts the struct page of the start of memory at a multiple of 1
    // GiB; memory starts at a multiple of at least 128 MiB, so the base is a multiple of 2 MiB. An array that
    // does not cover all of memory fits neither.
    let aligned_to = match arch {
        Arch::X86_64 => 1 << 30,
        Arch::Aarch64 => 2 << 20,
    };
    let bases: Option<Vec<u64>> = known.iter().map(base).collect();
    // Kernel addresses. Other values (a page in swap, a tree of several pages) have low bits set.
    let is_struct_page = |page: &OwnPage| page.struct_page >> 63 == 1 && page.struct_page.is_multiple_of(8);
    match bases.as_deref() {
        Some([first, rest @ ..])
            if known.iter().all(is_struct_page)
                && rest.iter().all(|base| base == first)
                && first.is_multiple_of(aligned_to) =>
        {
            Ok(*first)
        }
        _ => Err(FolioError::NotFound(format!(
            "the struct pages of {} of our pages give different bases",
            known.len()
        ))),
    }
}

fn not_found(error: WalkError) -> FolioError {
    FolioError::NotFound(error.to_string())
}

/// The frame number of the page and the flags of its folio.
fn probe(page: &MemfdPage, runner: &mut Runner, machine: &Machine) -> Result<(u64, u32), FolioError> {
    let call = Call {
        folios: Folios::All as u32,
        ..machine.call(OP_PROBES, std::process::id())
    };
    let addr = page.memory.get().as_ptr() as u64;
    let slot = runner.probe(call, std::iter::once(addr)).map_err(not_found)?[0];
    let level = u8::try_from(slot.level).unwrap_or(UNREADABLE);
    match machine.layout.decode(slot.entry, level) {
        Entry::Leaf(leaf) => Ok((leaf.pfn, slot.folio)),
        _ => Err(FolioError::NotFound("one of our pages is not mapped".to_owned())),
    }
}

/// A memory file with one page, which is mapped and written.
struct MemfdPage {
    file: OwnedFd,
    memory: Shared<RawTable>,
}

impl MemfdPage {
    fn new() -> Result<Self, FolioError> {
        let error_of =
            |what: &str, error: &dyn std::fmt::Display| FolioError::NoPage(format!("{what}: {error}"));
        let file = memfd_create("thermocline", MemfdFlags::CLOEXEC)
            .map_err(|error| error_of("memfd_create", &error))?;
        ftruncate(&file, 4096).map_err(|error| error_of("ftruncate", &error))?;
        let mut memory =
            Shared::<RawTable>::map(file.as_fd(), 1).map_err(|error| error_of("mmap", &error))?;
        // With huge pages in tmpfs, the page would be part of one. Kernels without huge pages refuse the
        // advice, which is as good.
        // SAFETY: the memory is ours, and the advice does not change its contents.
        let _ = unsafe {
            madvise(
                memory.get_mut().as_mut_ptr().cast(),
                4096,
                Advice::LinuxNoHugepage,
            )
        };
        memory.get_mut()[0][0] = u64::MAX;
        Ok(Self { file, memory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0xffff_ea40_0000_0000;

    fn known(pfn: u64) -> OwnPage {
        OwnPage {
            struct_page: BASE + pfn * 64,
            pfn,
            size: 64,
        }
    }

    #[test]
    fn base_is_found_when_pages_agree() {
        let pages = [5, 70_000, 1 << 21].map(known);
        assert_eq!(base_of(&pages, Arch::X86_64), Ok(BASE));
        assert_eq!(base_of(&pages, Arch::Aarch64), Ok(BASE));
    }

    #[test]
    fn base_is_refused_when_pages_disagree() {
        let good = known(5);
        let moved = OwnPage { pfn: 6, ..known(9) };
        let in_swap = OwnPage {
            struct_page: 0x1235,
            pfn: 0,
            ..good
        };
        let tree = OwnPage {
            struct_page: 0xffff_8880_0123_4562,
            pfn: 0,
            ..good
        };
        // Sparse memory without vmemmap: an array for each section, somewhere in the direct map.
        let section = OwnPage {
            struct_page: 0xffff_8880_3212_3000 + 5 * 64,
            ..good
        };
        for pages in [
            vec![good, moved],
            vec![in_swap],
            vec![tree],
            vec![section, section],
            vec![],
        ] {
            assert!(
                matches!(base_of(&pages, Arch::X86_64), Err(FolioError::NotFound(_))),
                "{pages:?}"
            );
        }
        let huge = OwnPage {
            pfn: u64::MAX,
            ..good
        };
        assert!(base_of(&[huge], Arch::X86_64).is_err());
    }
}

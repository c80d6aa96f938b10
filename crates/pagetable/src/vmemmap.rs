//! Finding the kernel's array of struct page, by which folios are read.
//!
//! Its base is randomised at boot like the direct map's, and the symbol that holds it is not shown by kernels without
//! `KALLSYMS_ALL`. But a file in memory that has one page keeps in its page cache the address of that page's struct
//! page, the page's frame number is in our page tables, and the array is ordered by it: base = address − number × size.
//! Several such files must agree, and what is read through the base of their pages must be what it has to be.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, madvise};

use crate::calibrate::Machine;
use crate::error::{NoFolios, WalkError};
use crate::folios::Folios;
use crate::layout::{Arch, Entry};
use crate::run::Runner;
use crate::shared::{
    Call, FOLIO_LARGE, FOLIO_READ, FOLIO_SOUND, RawTable, Shared, UNREADABLE, WHAT_FOLIO, WHAT_PROBES,
};

/// How many pages of ours must agree.
const PAGES: usize = 4;
/// Pages may be moved (compaction) between two looks at them: the search is repeated.
const ROUNDS: usize = 3;

/// Where the array is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageArray {
    pub base: u64,
    /// Whether this kernel can mark folios young.
    pub has_young: bool,
}

/// What is known of a page of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    /// Where its struct page lies.
    at: u64,
    /// The number of its frame.
    pfn: u64,
    /// How large a struct page is.
    size: u64,
}

/// Finds it.
pub(crate) fn find(runner: &mut Runner, machine: &Machine) -> Result<PageArray, NoFolios> {
    let pages: Vec<Page> = (0..PAGES).map(|_| Page::new()).collect::<Result<_, _>>()?;
    let mut found = find_by(&pages, runner, machine);
    for _ in 1..ROUNDS {
        if !matches!(found, Err(NoFolios::NotFound(_))) {
            break;
        }
        found = find_by(&pages, runner, machine);
    }
    found
}

fn find_by(pages: &[Page], runner: &mut Runner, machine: &Machine) -> Result<PageArray, NoFolios> {
    let mut known = Vec::new();
    let mut has_young = false;
    for page in pages {
        let call = Call {
            fd: page.file.as_raw_fd() as u32,
            ..machine.call(WHAT_FOLIO, std::process::id())
        };
        let answer = runner.run(call).map_err(not_found)?;
        if answer.page_size == 0 {
            return Err(NoFolios::Layout);
        }
        has_young = answer.has_young != 0;
        known.push(Known {
            at: answer.folio,
            pfn: look(page, runner, machine)?.0,
            size: answer.page_size.into(),
        });
    }
    let base = base_of(&known, machine.layout.arch)?;
    let machine = Machine {
        page_array: base,
        ..*machine
    };
    for page in pages {
        let (_, folio) = look(page, runner, &machine)?;
        if folio & (FOLIO_READ | FOLIO_SOUND | FOLIO_LARGE) != FOLIO_READ | FOLIO_SOUND {
            return Err(NoFolios::NotFound(format!(
                "at {base:#x} the folio of a page of ours is not what it has to be ({folio})"
            )));
        }
    }
    Ok(PageArray { base, has_young })
}

/// The base that all of the pages speak for.
fn base_of(known: &[Known], arch: Arch) -> Result<u64, NoFolios> {
    let base = |page: &Known| page.at.checked_sub(page.pfn.checked_mul(page.size)?);
    // x86-64 puts it on a border of 1 GiB; arm64 where the struct page of the first memory would lie on one, which
    // begins on a border of 128 MiB at least. An array that is not one for all of memory does neither.
    let aligned_to = match arch {
        Arch::X86_64 => 1 << 30,
        Arch::Aarch64 => 2 << 20,
    };
    let bases: Option<Vec<u64>> = known.iter().map(base).collect();
    // Addresses of the kernel; what else can be there (a page in swap, a tree of several pages) has its low bits set.
    let is_plain = |page: &Known| page.at >> 63 == 1 && page.at.is_multiple_of(8);
    match bases.as_deref() {
        Some([first, rest @ ..])
            if known.iter().all(is_plain)
                && rest.iter().all(|base| base == first)
                && first.is_multiple_of(aligned_to) =>
        {
            Ok(*first)
        }
        _ => Err(NoFolios::NotFound(format!(
            "the struct pages of {} pages of ours do not fit together",
            known.len()
        ))),
    }
}

fn not_found(error: WalkError) -> NoFolios {
    NoFolios::NotFound(error.to_string())
}

/// The frame of the page, and what is seen of its folio.
fn look(page: &Page, runner: &mut Runner, machine: &Machine) -> Result<(u64, u32), NoFolios> {
    let call = Call {
        folios: Folios::OfAll as u32,
        ..machine.call(WHAT_PROBES, std::process::id())
    };
    let addr = page.memory.get().as_ptr() as u64;
    let slot = runner.probe(call, std::iter::once(addr)).map_err(not_found)?[0];
    let level = u8::try_from(slot.level).unwrap_or(UNREADABLE);
    match machine.layout.decode(slot.entry, level) {
        Entry::Leaf(leaf) => Ok((leaf.pfn, slot.folio)),
        _ => Err(NoFolios::NotFound("a page of ours is not there".to_owned())),
    }
}

/// A file in memory that has one page, which is mapped and written.
struct Page {
    file: OwnedFd,
    memory: Shared<RawTable>,
}

impl Page {
    fn new() -> Result<Self, NoFolios> {
        let failed = |what: &str, error: &dyn std::fmt::Display| NoFolios::NoPage(format!("{what}: {error}"));
        let file = memfd_create("thermocline", MemfdFlags::CLOEXEC)
            .map_err(|error| failed("memfd_create", &error))?;
        ftruncate(&file, 4096).map_err(|error| failed("ftruncate", &error))?;
        let mut memory = Shared::<RawTable>::map(file.as_fd(), 1).map_err(|error| failed("mmap", &error))?;
        // Where tmpfs has huge pages, the page would be a part of one. Kernels without them refuse, which is as good.
        // SAFETY: the memory is ours, and what it holds stays as it is.
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

    fn known(pfn: u64) -> Known {
        Known {
            at: BASE + pfn * 64,
            pfn,
            size: 64,
        }
    }

    #[test]
    fn pages_that_agree_tell_the_base() {
        let pages = [5, 70_000, 1 << 21].map(known);
        assert_eq!(base_of(&pages, Arch::X86_64), Ok(BASE));
        assert_eq!(base_of(&pages, Arch::Aarch64), Ok(BASE));
    }

    #[test]
    fn what_does_not_fit_is_not_taken() {
        let good = known(5);
        let moved = Known { pfn: 6, ..known(9) };
        let in_swap = Known {
            at: 0x1235,
            pfn: 0,
            ..good
        };
        let tree = Known {
            at: 0xffff_8880_0123_4562,
            pfn: 0,
            ..good
        };
        // An array of its own for each section of memory, somewhere in the direct map.
        let section = Known {
            at: 0xffff_8880_3212_3000 + 5 * 64,
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
                matches!(base_of(&pages, Arch::X86_64), Err(NoFolios::NotFound(_))),
                "{pages:?}"
            );
        }
        let huge = Known {
            pfn: u64::MAX,
            ..good
        };
        assert!(base_of(&[huge], Arch::X86_64).is_err());
    }
}

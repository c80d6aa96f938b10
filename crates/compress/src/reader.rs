//! Reads single pages of processes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::Path;

use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::process_vm;
use thermo_units::Addr;

use crate::zram::Page;

/// Why a page could not be read. Such pages are counted; no value is assumed for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// Not in memory: swapped out, discarded, or never touched. Another page is drawn instead.
    NotPresent,
    /// The process has ended.
    ProcessEnded,
    /// The kernel refused: no right to read the process, or a mapping without contents (of a device).
    Refused,
}

/// Reads pages for [`sample`](crate::sample()).
pub trait PageReader {
    /// Copies the page at `addr` of process `pid`.
    ///
    /// # Errors
    /// The reason if the page cannot be read. The contents of `page` are then undefined.
    fn read(&mut self, pid: u32, addr: Addr, page: &mut Page) -> Result<(), Unread>;
}

/// Reads pages with `process_vm_readv`, and only pages that `/proc/PID/pagemap` shows as present.
///
/// So a swapped-out page is not read in, and an untouched page is not allocated, unless it is reclaimed
/// between the two calls.
///
/// **Effect on the target.** The kernel takes a reference to the page with `FOLL_TOUCH`
/// (`pin_user_pages_remote()` in mm/gup.c) and calls `folio_mark_accessed()`. The accessed bit in the page
/// table is not set, so a scan of page tables does not see the read. `PG_referenced` of the folio is set, and
/// an idle flag is cleared. A second read before the next reclaim scan moves the folio to the active list;
/// one read does not, unless another system call has read it already. Reclaim of anonymous memory ignores
/// `PG_referenced` alone. With MGLRU, one read raises the count of references of the folio.
///
/// Reading `/proc/PID/mem` has the same effect (`get_user_pages_remote()`, also with `FOLL_TOUCH`), and reads
/// pages without read permission besides. So the sampler reads each page once at most. Two pages of one huge
/// page are one folio.
#[derive(Debug, Default)]
pub struct ProcessReader {
    /// An open pagemap belongs to its address space, so it never shows a later process with the same pid.
    pagemaps: BTreeMap<u32, Pagemap>,
}

impl ProcessReader {
    /// A reader without open files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn check_present(&mut self, pid: u32, addr: Addr) -> Result<(), Unread> {
        let pagemap = match self.pagemaps.entry(pid) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let opened = Pagemap::open(Path::new("/"), pid);
                place.insert(opened.map_err(|error| reason(&error))?)
            }
        };
        let entry = pagemap.page(addr).map_err(|error| reason(&error))?;
        if entry.is_present() {
            Ok(())
        } else {
            Err(Unread::NotPresent)
        }
    }
}

impl PageReader for ProcessReader {
    fn read(&mut self, pid: u32, addr: Addr, page: &mut Page) -> Result<(), Unread> {
        self.check_present(pid, addr)?;
        match process_vm::read(pid, addr, page) {
            Ok(read) if read == page.len() => Ok(()),
            Ok(_) => Err(Unread::Refused),
            Err(error) => Err(reason(&error)),
        }
    }
}

fn reason(error: &io::Error) -> Unread {
    if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH) {
        Unread::ProcessEnded
    } else {
        Unread::Refused
    }
}

/// No such process.
const ESRCH: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_read_only_if_present() {
        let memory = vec![7_u8; 3 * 4096];
        let at = Addr(memory.as_ptr() as u64).align_up();
        let (mut reader, mut page, us) = (ProcessReader::new(), [0; 4096], std::process::id());
        assert_eq!(reader.read(us, at, &mut page), Ok(()));
        assert_eq!(page, [7; 4096]);
        assert_eq!(reader.read(us, Addr(0), &mut page), Err(Unread::NotPresent));
        // Larger than any pid.
        assert_eq!(reader.read(4_194_305, at, &mut page), Err(Unread::ProcessEnded));
    }
}

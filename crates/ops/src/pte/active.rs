//! Keeping pages where they are on the kernel's lists.
//!
//! `MADV_COLD` takes the mark off a page and moves it to the inactive list if it was on the active one. Where a scheme
//! sorts those lists (`lru_prio`), looking would undo with each round what the scheme did. So there, pages that were
//! active before their mark was taken off are touched twice afterwards, which moves them back and sets no mark. It costs
//! more than the rest of a look at such a page; the budget gives rounds more time for it.

use thermo_bpf::Leaf;
use thermo_core::Addr;
use thermo_sys::kpageflags::PageFrames;
use thermo_sys::process_vm::MAX_PAGES;

use crate::actor::touch_all;
use crate::process::Process;

/// Pages that were active, each by an address that maps it.
#[derive(Debug, Default)]
pub(super) struct Active {
    pages: Vec<Addr>,
}

impl Active {
    /// Notes the page at `addr`, mapped by `leaf`, if it is active now.
    pub(super) fn note(&mut self, addr: Addr, leaf: Leaf, frames: Option<&PageFrames>) {
        let flags = frames.and_then(|frames| frames.flags(leaf.pfn).ok());
        if flags.is_some_and(|flags| flags.is_active()) {
            self.pages.push(addr);
        }
    }

    /// Makes the pages that were noted active again, and forgets them.
    pub(super) fn restore(&mut self, process: &Process) {
        for pages in self.pages.chunks(MAX_PAGES) {
            for _ in 0..2 {
                touch_all(process.pid, pages, &mut |_| ());
            }
        }
        self.pages.clear();
    }
}

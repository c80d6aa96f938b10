//! Moving pages up on the LRU lists: the kernel counts a page that is read through `process_vm_readv` as used,
//! and one that is used twice is active. It brings swapped-out pages in, so only those present are read.

use thermo_core::ops::{Applied, Skip};
use thermo_core::{Addr, AddrRange, Bytes, PAGE_SIZE};
use thermo_sys::pagemap::Pagemap;
use thermo_sys::process_vm::{MAX_PAGES, touch};

use super::spans;
use crate::process::Process;

/// How much is looked at and touched between two questions whether to stop.
const STEP: Bytes = Bytes::mib(4);

/// Touches the present pages of `ranges` twice.
pub(super) fn touch_twice(
    process: &Process,
    pagemap: &Pagemap,
    ranges: &[AddrRange],
    stop: &mut dyn FnMut() -> Option<Skip>,
    applied: &mut Applied,
) {
    let steps = spans::cut(ranges, STEP);
    let mut pages = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        let why = if process.is_alive() {
            stop()
        } else {
            Some(Skip::TargetGone)
        };
        if let Some(why) = why {
            applied.skip(why, spans::sum(&steps[n..]));
            return;
        }
        // What cannot be read is taken for absent.
        if pagemap.read(*step, &mut pages).is_err() {
            pages.clear();
        }
        let numbered = (step.start.0..step.end.0)
            .step_by(PAGE_SIZE as usize)
            .map(Addr)
            .zip(&pages);
        let present: Vec<Addr> = numbered
            .filter(|(_, page)| page.is_present())
            .map(|(addr, _)| addr)
            .collect();
        let there = Bytes(present.len() as u64 * PAGE_SIZE);
        applied.skip(Skip::NotPresent, step.len().saturating_sub(there));
        let mut refused = 0;
        for call in present.chunks(MAX_PAGES) {
            touch_all(process.pid, call, &mut |_| ());
            touch_all(process.pid, call, &mut |_| refused += 1);
        }
        let refused = Bytes(refused * PAGE_SIZE);
        applied.skip(Skip::Refused, refused);
        applied.applied += there.saturating_sub(refused);
    }
}

/// Touches all pages of a call, past those that may not be read (they have no read permission, or went away).
pub(crate) fn touch_all(pid: u32, mut pages: &[Addr], refused: &mut impl FnMut(Addr)) {
    while let Some(first) = pages.first() {
        match touch(pid, pages) {
            Ok(done) if done > 0 => pages = &pages[done.min(pages.len())..],
            _ => {
                refused(*first);
                pages = &pages[1..];
            }
        }
    }
}

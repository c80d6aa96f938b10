//! Going around what the kernel will not advise.
//!
//! The kernel goes through a range mapping by mapping, and stops at the first that is locked or has no pages of its own
//! (`madvise_walk_vmas()`): a locked page at the begin of a heap would leave all the marks behind it where they are, in this
//! round and in each to come. So a range that is refused is advised once more, each of its mappings by itself.

use std::os::fd::AsFd as _;

use thermo_core::sweep::Piece;
use thermo_core::{AddrRange, TargetId};
use thermo_sys::maps;

use super::sweep::each_page;
use super::{PteTracker, batch};
use crate::process::Process;

/// The mappings of the target that refused something last, since a round began.
pub(super) type Mappings = Option<(TargetId, Vec<AddrRange>)>;

impl PteTracker {
    /// Takes the marks off `ranges`, ascending in themselves; what the kernel refuses is unknown in `piece`. False: the
    /// process is gone.
    pub(super) fn clear_marks(&mut self, process: &Process, ranges: &[AddrRange], piece: &mut Piece) -> bool {
        let mut refused = Vec::new();
        let alive = batch::clear(process.pidfd.as_fd(), ranges, &mut |n| refused.push(ranges[n]));
        if !alive || refused.is_empty() {
            return alive;
        }
        let mappings = self.mappings_of(process);
        let parts: Vec<AddrRange> = match mappings {
            [] => refused,
            _ => refused
                .iter()
                .flat_map(|range| mappings.iter().filter_map(|mapping| mapping.intersection(range)))
                .collect(),
        };
        batch::clear(process.pidfd.as_fd(), &parts, &mut |n| {
            each_page(parts[n], |addr| piece.set_unknown(addr));
        })
    }

    /// Ascending; none where they cannot be read.
    fn mappings_of(&mut self, process: &Process) -> &[AddrRange] {
        if self.mappings.as_ref().is_none_or(|(id, _)| *id != process.id) {
            let read = maps::read(&self.root, process.pid).unwrap_or_default();
            self.mappings = Some((process.id, read.iter().map(|mapping| mapping.range).collect()));
        }
        self.mappings.as_ref().map_or(&[], |(_, ranges)| ranges)
    }
}

//! Finds stacks with room for a signal frame. The room below a stack pointer must be known to belong to that
//! stack.
//!
//! The kernel writes the frame of any handled signal there, too. But a program whose threads run on small
//! stacks cut from a heap (goroutines, fibers) handles signals on an alternate stack, which other processes
//! cannot see. So room is proven by the mapping: the main thread's `[stack]`, or a mapping right above a
//! guard that is neither readable nor writable, as C libraries and language runtimes put below each thread's
//! stack.

use thermo_kernel::maps::Mapping;
use thermo_units::{Addr, AddrRange, Bytes};

/// A larger mapping above a guard is not a thread stack but a heap.
const MAX_STACK: Bytes = Bytes::mib(256);

/// The stacks of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stacks(Vec<AddrRange>);

impl Stacks {
    /// The stacks among `mappings`.
    pub(super) fn find(mappings: &[Mapping]) -> Self {
        let main = mappings.iter().filter(|mapping| mapping.name == "[stack]");
        let guarded = mappings
            .iter()
            .zip(mappings.iter().skip(1))
            .filter_map(|(guard, above)| is_guarded(guard, above).then_some(above));
        Self(main.chain(guarded).map(|mapping| mapping.range).collect())
    }

    /// Whether `room` bytes below `stack_pointer` belong to its stack.
    pub(super) fn have_room(&self, stack_pointer: u64, room: u64) -> bool {
        let lowest = stack_pointer.checked_sub(room).map(Addr);
        let fits = |stack: &AddrRange| {
            stack.contains(Addr(stack_pointer)) && lowest.is_some_and(|at| stack.contains(at))
        };
        self.0.iter().any(fits)
    }
}

fn is_guarded(guard: &Mapping, above: &Mapping) -> bool {
    let (below, perms) = (guard.perms, above.perms);
    let is_guard = !(below.read || below.write || below.exec || below.shared);
    let is_memory = perms.read && perms.write && !perms.shared && above.inode == 0;
    // Named heaps and the brk area are not stacks, whatever is below them.
    let is_heap = above.name.starts_with("[anon: Go") || above.name == "[heap]";
    is_guard
        && is_memory
        && !is_heap
        && guard.range.end == above.range.start
        && above.range.len() <= MAX_STACK
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermo_kernel::maps::Perms;

    fn mapping(start: u64, end: u64, is_accessible: bool, name: &str) -> Mapping {
        Mapping {
            range: AddrRange::new(start, end),
            perms: Perms {
                read: is_accessible,
                write: is_accessible,
                ..Perms::default()
            },
            offset: 0,
            inode: 0,
            name: name.to_owned(),
        }
    }

    #[test]
    fn room_counts_only_above_guard_or_in_main_stack() {
        let stacks = Stacks::find(&[
            mapping(0x10_0000, 0x20_0000, true, ""),
            mapping(0x30_0000, 0x30_1000, false, ""),
            mapping(0x30_1000, 0x38_0000, true, ""),
            mapping(0x40_0000, 0x40_1000, false, ""),
            mapping(0x40_1000, 0x48_0000, true, "[anon: Go: heap]"),
            mapping(0x50_0000, 0x50_1000, false, ""),
            mapping(0x50_2000, 0x58_0000, true, ""),
            mapping(0x7f_0000, 0x80_0000, true, "[stack]"),
        ]);
        assert!(!stacks.have_room(0x18_0000, 0x1000), "a heap");
        assert!(stacks.have_room(0x37_0000, 0x1000), "a thread");
        assert!(
            !stacks.have_room(0x30_1800, 0x1000),
            "a thread at the end of its stack"
        );
        assert!(!stacks.have_room(0x47_0000, 0x1000), "goroutines");
        assert!(!stacks.have_room(0x57_0000, 0x1000), "a hole is no guard");
        assert!(stacks.have_room(0x7f_8000, 0x1000), "the main thread");
        assert!(!stacks.have_room(0x800, 0x1000));
    }
}

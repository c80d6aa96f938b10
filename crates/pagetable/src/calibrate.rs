//! Finding the kernel's direct map of physical memory.
//!
//! Its base is randomised at boot, and the symbol that holds it is not shown by every kernel. But it is 1 GiB
//! aligned, and our own top table lies in it less than the size of memory above its base: so the few places that
//! leaves are tried until a word of our own memory reads, through it, as what we wrote there.

use std::hint::black_box;

use crate::error::{BpfError, WalkError};
use crate::layout::{Arch, Layout};
use crate::load::failed;
use crate::run::Runner;
use crate::shared::{Call, MAX_PROBES, WHAT_PROBES, WHAT_WORDS};

const GIB: u64 = 1 << 30;
/// How many words must read right. One word in the wrong place could be a stale copy of ours.
const WORDS: usize = 4;
/// A word's page may be moved (compaction, collapse) between two looks at it: the search is repeated.
const ROUNDS: usize = 3;

/// How this machine's tables are read, and from where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub layout: Layout,
    pub direct_map: u64,
    pub memory_end: u64,
    /// Where the array of struct page begins; 0 where that is not known.
    pub page_array: u64,
}

impl Machine {
    /// Takes memory to end there.
    pub(crate) const fn follow(&mut self, memory_end: u64) {
        self.memory_end = memory_end;
        self.layout = Layout::new(self.layout.arch, self.layout.levels, memory_end);
    }

    /// A call with all that depends on the machine filled in.
    pub(crate) fn call(&self, what: u32, pid: u32) -> Call {
        let (leaf_mask, leaf_value) = self.layout.leaf_test();
        Call {
            what,
            pid,
            levels: self.layout.levels,
            direct_map: self.direct_map,
            frame_mask: self.layout.frame_mask,
            memory_end: self.memory_end,
            leaf_mask,
            leaf_value,
            accessed_mask: self.layout.accessed_mask(),
            page_array: self.page_array,
            ..Call::default()
        }
    }
}

/// Finds base and number of levels.
pub(crate) fn calibrate(runner: &mut Runner, arch: Arch, memory_end: u64) -> Result<Machine, BpfError> {
    let words = Words::new();
    let mut machine = Machine {
        layout: Layout::new(arch, 4, memory_end),
        direct_map: 0,
        memory_end,
        page_array: 0,
    };
    let pgd = runner
        .run(machine.call(WHAT_PROBES, std::process::id()))
        .map_err(unread)?
        .pgd;
    let mut tried = 0;
    for _ in 0..ROUNDS {
        for levels in likely_levels(arch, pgd) {
            machine.layout = Layout::new(arch, levels, memory_end);
            for direct_map in candidates(pgd, memory_end) {
                tried += 1;
                machine.direct_map = direct_map;
                if words.read_right(runner, &machine)? {
                    return Ok(machine);
                }
            }
        }
    }
    Err(BpfError::NoDirectMap { tried, below: pgd })
}

/// Every base from which our top table can be reached, nearest first.
fn candidates(pgd: u64, memory_end: u64) -> impl Iterator<Item = u64> {
    (0..=memory_end / GIB).map_while(move |n| (pgd & !(GIB - 1)).checked_sub(n * GIB))
}

/// With 5 levels, x86-64 has its direct map from 0xff11000000000000, below the half that 4 levels can address.
fn likely_levels(arch: Arch, pgd: u64) -> Vec<u32> {
    match arch {
        Arch::X86_64 if pgd < 0xffff_8000_0000_0000 => vec![5],
        Arch::X86_64 => vec![4, 5],
        Arch::Aarch64 => vec![4, 3, 5],
    }
}

fn unread(error: WalkError) -> BpfError {
    failed("reading our own page tables", error)
}

/// Words of ours that nobody else has, each on a page of its own.
struct Words(Vec<u64>);

impl Words {
    const STRIDE: usize = 512;

    fn new() -> Self {
        let mut words = vec![0_u64; WORDS * Self::STRIDE];
        let place = words.as_ptr() as u64;
        for (n, word) in words.iter_mut().enumerate().step_by(Self::STRIDE) {
            *word =
                (place ^ u64::from(std::process::id()) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) + n as u64;
        }
        Self(black_box(words))
    }

    fn read_right(&self, runner: &mut Runner, machine: &Machine) -> Result<bool, BpfError> {
        const { assert!(WORDS <= MAX_PROBES) };
        let ours = || self.0.iter().step_by(Self::STRIDE);
        let addrs = ours().map(|word| std::ptr::from_ref(word) as u64);
        let call = machine.call(WHAT_WORDS, std::process::id());
        let slots = runner.probe(call, addrs).map_err(unread)?;
        Ok(slots.iter().zip(ours()).all(|(slot, word)| slot.entry == *word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_base_that_could_be_is_tried_and_no_other() {
        let base = 0xffff_9c40_0000_0000;
        let bases: Vec<u64> = candidates(base + 5 * GIB + 0x1234_5000, 6 * GIB).collect();
        assert!(bases.contains(&base));
        assert_eq!(bases.len(), 7);
        assert!(bases.iter().all(|base| base.is_multiple_of(GIB)));
        assert_eq!(candidates(GIB, 9 * GIB).count(), 2);
    }
}

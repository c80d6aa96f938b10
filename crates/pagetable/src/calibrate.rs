//! The memory layout of this machine: the base of the direct map ([`crate::direct_map`]), the number of
//! levels and the end of memory. Words of our own memory, read through the direct map, must have the values
//! that were written.

use std::hint::black_box;
use std::sync::OnceLock;

use crate::direct_map;
use crate::error::{BpfError, WalkError};
use crate::layout::{Arch, Layout};
use crate::load::failed;
use crate::run::Runner;
use crate::shared::{Call, MAX_PROBES, OP_PROBES, OP_WORDS};

/// Number of words that must match. A single word at a wrong base could be a stale copy of ours.
const WORDS: usize = 4;
/// Attempts: the page of a word may be moved (compaction, collapse) between two reads.
const ATTEMPTS: usize = 3;

/// The parameters for reading page tables on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub layout: Layout,
    pub direct_map: u64,
    pub memory_end: u64,
    /// Start of the array of struct page; 0: unknown.
    pub vmemmap: u64,
}

impl Machine {
    /// A machine of which only architecture and end of memory are known.
    pub(crate) const fn unknown(arch: Arch, memory_end: u64) -> Self {
        Self {
            layout: Layout::new(arch, 4, memory_end),
            direct_map: 0,
            memory_end,
            vmemmap: 0,
        }
    }

    /// Sets a new end of memory.
    pub(crate) const fn set_memory_end(&mut self, memory_end: u64) {
        self.memory_end = memory_end;
        self.layout = Layout::new(self.layout.arch, self.layout.levels, memory_end);
    }

    /// A call with the fields that depend on the machine.
    pub(crate) fn call(&self, op: u32, pid: u32) -> Call {
        let (leaf_mask, leaf_value) = self.layout.leaf_test();
        Call {
            op,
            pid,
            levels: self.layout.levels,
            direct_map: self.direct_map,
            frame_mask: self.layout.frame_mask,
            memory_end: self.memory_end,
            leaf_mask,
            leaf_value,
            accessed_mask: self.layout.accessed_mask(),
            vmemmap: self.vmemmap,
            ..Call::default()
        }
    }
}

/// The base, once it is found: it stays until the next boot, and the kernel may not show it later, when
/// capabilities were dropped.
static DIRECT_MAP: OnceLock<u64> = OnceLock::new();

/// Finds the base of the direct map and the number of levels.
pub(crate) fn calibrate(runner: &mut Runner, arch: Arch, memory_end: u64) -> Result<Machine, BpfError> {
    let words = Words::new();
    let mut machine = Machine::unknown(arch, memory_end);
    let pgd = runner
        .run(machine.call(OP_PROBES, std::process::id()))
        .map_err(own_tables_error)?
        .pgd;
    machine.direct_map = match DIRECT_MAP.get() {
        Some(base) => *base,
        None => direct_map::find(runner, &machine)?,
    };
    for _ in 0..ATTEMPTS {
        for levels in likely_levels(arch, pgd) {
            machine.layout = Layout::new(arch, levels, memory_end);
            if words.read_right(runner, &machine)? {
                DIRECT_MAP.get_or_init(|| machine.direct_map);
                return Ok(machine);
            }
        }
    }
    Err(BpfError::WrongDirectMap {
        base: machine.direct_map,
    })
}

/// With 5 levels, the direct map of x86-64 starts at 0xff11000000000000, below the addresses that 4 levels
/// reach.
fn likely_levels(arch: Arch, pgd: u64) -> Vec<u32> {
    match arch {
        Arch::X86_64 if pgd < 0xffff_8000_0000_0000 => vec![5],
        Arch::X86_64 => vec![4, 5],
        Arch::Aarch64 => vec![4, 3, 5],
    }
}

fn own_tables_error(error: WalkError) -> BpfError {
    failed("reading our own page tables", error)
}

/// Words with values that exist nowhere else, each on its own page.
struct Words(Vec<u64>);

impl Words {
    const STRIDE: usize = 512;

    fn new() -> Self {
        let mut words = vec![0_u64; WORDS * Self::STRIDE];
        let address = words.as_ptr() as u64;
        for (n, word) in words.iter_mut().enumerate().step_by(Self::STRIDE) {
            *word = (address ^ u64::from(std::process::id()) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                + n as u64;
        }
        Self(black_box(words))
    }

    fn read_right(&self, runner: &mut Runner, machine: &Machine) -> Result<bool, BpfError> {
        const { assert!(WORDS <= MAX_PROBES) };
        let words = || self.0.iter().step_by(Self::STRIDE);
        let addrs = words().map(|word| std::ptr::from_ref(word) as u64);
        let call = machine.call(OP_WORDS, std::process::id());
        let slots = runner.probe(call, addrs).map_err(own_tables_error)?;
        Ok(slots.iter().zip(words()).all(|(slot, word)| slot.entry == *word))
    }
}

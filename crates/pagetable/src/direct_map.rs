//! The base of the kernel's direct map of physical memory, from the kernel itself. It is randomised at boot
//! (KASLR). There are two sources, and no address is guessed:
//!
//! 1. The kernel translates an address in the direct map: that of the position of an open file of ours. A
//!    hardware breakpoint on it reports its physical address when lseek(2) writes it. Needs CAP_SYS_ADMIN.
//! 2. The kernel's variable `page_offset_base` (x86-64, arch/x86/mm/kaslr.c), whose address is in
//!    `/proc/kallsyms`. Needs CAP_SYSLOG, and `CONFIG_KALLSYMS_ALL`, as kernels of distributions have it.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use thermo_kernel::{kallsyms, kernel_write};

use crate::calibrate::Machine;
use crate::error::{BpfError, WalkError};
use crate::layout::Arch;
use crate::run::Runner;
use crate::shared::{OP_FILE, OP_KERNEL};

/// The base of the direct map.
pub(crate) fn find(runner: &mut Runner, machine: &Machine) -> Result<u64, BpfError> {
    by_translation(runner, machine).or_else(|translation| {
        by_variable(runner, machine).map_err(|variable| BpfError::NoDirectMap {
            translation,
            variable,
        })
    })
}

/// From the physical address of the position of an open file.
fn by_translation(runner: &mut Runner, machine: &Machine) -> Result<u64, String> {
    let file = memfd_create("thermocline", MemfdFlags::CLOEXEC).map_err(|error| error.to_string())?;
    let mut call = machine.call(OP_FILE, std::process::id());
    call.fd = u32::try_from(file.as_raw_fd()).map_err(|error| error.to_string())?;
    let addr = runner.run(call).map_err(reason)?.file_position;
    if addr == 0 {
        return Err("this kernel's struct file has no known position".to_owned());
    }
    let write = || {
        seek(&file, SeekFrom::Start(8))
            .map(|_| ())
            .map_err(io::Error::from)
    };
    let physical = kernel_write::phys_addr(addr, write).map_err(|error| error.to_string())?;
    base_of(addr, physical)
}

fn base_of(addr: u64, physical: u64) -> Result<u64, String> {
    let base = addr.checked_sub(physical);
    // Kernel addresses have the highest bit set.
    base.filter(|base| base >> 63 == 1 && base.is_multiple_of(4096))
        .ok_or_else(|| {
            format!("the kernel translated {addr:#x} to {physical:#x}, which is not in a direct map")
        })
}

/// From the kernel's variable.
fn by_variable(runner: &mut Runner, machine: &Machine) -> Result<u64, String> {
    if machine.layout.arch != Arch::X86_64 {
        return Err("only kernels for x86-64 have it".to_owned());
    }
    let addr = kallsyms::address(Path::new("/"), "page_offset_base")
        .map_err(|error| error.to_string())?
        .ok_or("no address is shown")?;
    let call = machine.call(OP_KERNEL, std::process::id());
    let slots = runner.probe(call, std::iter::once(addr)).map_err(reason)?;
    match slots {
        [slot] if slot.level == 0 => base_of(slot.entry, 0),
        _ => Err("it could not be read".to_owned()),
    }
}

fn reason(error: WalkError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::load;

    #[test]
    fn base_is_an_aligned_kernel_address() {
        let base = 0xffff_9c40_0000_0000;
        assert_eq!(base_of(base + 0x1234_5678, 0x1234_5678), Ok(base));
        for (addr, physical) in [(base + 8, 0), (0x7fff_0000_0000, 0x1000), (5, 8)] {
            assert!(base_of(addr, physical).is_err(), "{addr:#x} {physical:#x}");
        }
    }

    /// Each source that works on this kernel gives the base that the calibration uses.
    #[test]
    fn sources_agree() {
        let Ok(mut runner) = load()
            .map(Runner::new)
            .inspect_err(|why| eprintln!("SKIP: {why}"))
        else {
            return;
        };
        let machine = Machine::unknown(Arch::X86_64, 1 << 52);
        let sources = [
            by_translation(&mut runner, &machine),
            by_variable(&mut runner, &machine),
        ];
        let mut bases: Vec<u64> = sources.iter().flatten().copied().collect();
        for why in sources.iter().filter_map(|source| source.as_ref().err()) {
            eprintln!("SKIP: {why}");
        }
        let found = find(&mut runner, &machine);
        assert_eq!(found.is_ok(), !bases.is_empty(), "{found:?}");
        bases.extend(found);
        bases.dedup();
        assert!(bases.len() <= 1, "{bases:x?}");
    }
}

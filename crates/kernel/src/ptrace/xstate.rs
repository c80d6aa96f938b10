//! The floating-point and vector registers of a stopped thread, as the XSAVE instruction lays them out.

use std::io;

use super::{Tracee, into};

const NT_X86_XSTATE: usize = 0x202;
/// The largest area there is today has 11,008 bytes (AMX); the kernel tells how much it wrote.
const LARGEST: usize = 1 << 15;

/// How much of an area the components of `features` (one bit each, as in XCR0) take, in bytes: in the layout the
/// kernel shows to programs, each at the place the processor gives it.
#[must_use]
pub fn size_of_features(features: u64) -> usize {
    /// The legacy area and the header, which are always there.
    const LEAST: usize = 576;
    let end = |component: u32| {
        #[allow(
            unused_unsafe,
            reason = "newer compilers hold this instruction for safe, the declared oldest does not"
        )]
        // SAFETY: the instruction is part of x86-64; of a processor without this leaf it answers zeroes.
        let leaf = unsafe { std::arch::x86_64::__cpuid_count(0xd, component) };
        leaf.ebx as usize + leaf.eax as usize
    };
    let extended = (2..63).filter(|component| features & 1 << component != 0);
    extended.map(end).max().unwrap_or(0).max(LEAST)
}

impl Tracee {
    /// Reads the whole area: its size is that of the machine's largest, with parts that are not in use left zero.
    ///
    /// # Errors
    /// `ESRCH` when it is not stopped; `ENODEV` on a processor without XSAVE.
    pub fn xstate(&self) -> io::Result<Vec<u8>> {
        let mut area = vec![0_u8; LARGEST];
        let mut vector = libc::iovec {
            iov_base: area.as_mut_ptr().cast(),
            iov_len: area.len(),
        };
        into(libc::PTRACE_GETREGSET, self.tid(), NT_X86_XSTATE, &mut vector)?;
        area.truncate(vector.iov_len);
        Ok(area)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_extensions_there_are_the_legacy_area_and_the_header() {
        assert_eq!(size_of_features(0), 576);
        assert_eq!(size_of_features(0b11), 576);
        assert!(size_of_features(0b111) >= 576);
    }
}

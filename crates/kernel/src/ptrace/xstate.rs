//! Floating-point and vector registers of a stopped thread, in the layout of the XSAVE instruction.

use std::io;

use super::{Tracee, request_into};

const NT_X86_XSTATE: usize = 0x202;
/// The largest area today has 11,008 bytes (AMX); the kernel returns the size it wrote.
const MAX_AREA: usize = 1 << 15;

/// The size in bytes of the XSAVE area for the components in `features` (one bit each, as in XCR0), in the
/// standard layout that the kernel shows to programs, in which the processor defines the offset of each
/// component.
#[must_use]
pub fn size_of_features(features: u64) -> usize {
    /// The legacy area and the header, which always exist.
    const MIN_AREA: usize = 576;
    let end = |component: u32| {
        #[allow(
            unused_unsafe,
            reason = "__cpuid_count is safe in newer compilers, but not in the minimum supported one"
        )]
        // SAFETY: every x86-64 processor has this instruction; it returns zeroes for an unknown leaf.
        let leaf = unsafe { std::arch::x86_64::__cpuid_count(0xd, component) };
        leaf.ebx as usize + leaf.eax as usize
    };
    let extended = (2..63).filter(|component| features & 1 << component != 0);
    extended.map(end).max().unwrap_or(0).max(MIN_AREA)
}

impl Tracee {
    /// Reads the whole area. It has the size of the largest area of this machine; components that are not in
    /// use are zero.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped; `ENODEV` on a processor without XSAVE.
    pub fn xstate(&self) -> io::Result<Vec<u8>> {
        let mut area = vec![0_u8; MAX_AREA];
        let mut vector = libc::iovec {
            iov_base: area.as_mut_ptr().cast(),
            iov_len: area.len(),
        };
        request_into(libc::PTRACE_GETREGSET, self.tid(), NT_X86_XSTATE, &mut vector)?;
        area.truncate(vector.iov_len);
        Ok(area)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_without_extensions_is_legacy_area_and_header() {
        assert_eq!(size_of_features(0), 576);
        assert_eq!(size_of_features(0b11), 576);
        assert!(size_of_features(0b111) >= 576);
    }
}

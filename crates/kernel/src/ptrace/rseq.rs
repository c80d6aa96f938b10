//! The restartable sequences of a stopped thread (`rseq(2)`).

use std::io;

use thermo_units::Addr;

use super::{Tracee, into};

/// Where a thread keeps what it tells the kernel of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RseqArea {
    /// The address of `struct rseq`.
    pub at: Addr,
}

impl RseqArea {
    /// Where the pointer to the sequence under way stands.
    #[must_use]
    pub const fn pointer(self) -> Addr {
        Addr(self.at.0 + 8)
    }
}

#[derive(Default)]
#[repr(C)]
struct Configuration {
    pointer: u64,
    size: u32,
    signature: u32,
    flags: u32,
    padding: u32,
}

impl Tracee {
    /// Where it keeps them; nothing when it uses none.
    ///
    /// # Errors
    /// `ESRCH` when it is not stopped; `EIO` when the kernel does not tell (before 5.13).
    pub fn rseq(&self) -> io::Result<Option<RseqArea>> {
        const GET_CONFIGURATION: libc::c_uint = 0x420f;
        let mut configuration = Configuration::default();
        into(
            GET_CONFIGURATION,
            self.tid(),
            size_of::<Configuration>(),
            &mut configuration,
        )?;
        let at = Addr(configuration.pointer);
        Ok((at.0 != 0).then_some(RseqArea { at }))
    }
}

//! The restartable sequences of a stopped thread (`rseq(2)`).

use std::io;

use thermo_units::Addr;

use super::{Tracee, request_into};

/// The `struct rseq` area that a thread registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RseqArea {
    /// The address of `struct rseq`.
    pub addr: Addr,
}

impl RseqArea {
    /// The address of the field `rseq_cs`, a pointer to the sequence that is running.
    #[must_use]
    pub const fn rseq_cs(self) -> Addr {
        Addr(self.addr.0 + 8)
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
    /// The registered area; `None` if the thread has none.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped; `EIO` on kernels without the request (before 5.13).
    pub fn rseq(&self) -> io::Result<Option<RseqArea>> {
        const GET_CONFIGURATION: libc::c_uint = 0x420f;
        let mut configuration = Configuration::default();
        request_into(
            GET_CONFIGURATION,
            self.tid(),
            size_of::<Configuration>(),
            &mut configuration,
        )?;
        let addr = Addr(configuration.pointer);
        Ok((addr.0 != 0).then_some(RseqArea { addr }))
    }
}

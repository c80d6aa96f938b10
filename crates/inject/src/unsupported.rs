//! Other processor architectures: every call is refused.

use std::path::Path;

use thermo_kernel::pidfd::PidFd;

use crate::call::{Call, Injected};
use crate::error::InjectError;

/// A ptrace request; there are none on this architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {}

/// Refuses every call.
#[derive(Debug)]
pub struct Injector;

impl Injector {
    /// An injector for the machine at `root`.
    #[must_use]
    pub fn new(_root: &Path) -> Self {
        Self
    }

    /// Refuses the call.
    ///
    /// # Errors
    /// Always [`InjectError::Refused`].
    pub fn madvise(&mut self, _pidfd: &PidFd, pid: u32, _call: Call) -> Result<Injected, InjectError> {
        let why = "injecting a call is supported on x86-64 only";
        Err(InjectError::refused(pid, why))
    }
}

//! Processors for which no frame is known: every call is refused.

use std::path::Path;

use crate::call::{Call, Injected};
use crate::error::InjectError;

/// A request to the kernel, on processors where there are some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {}

/// Refuses every call.
#[derive(Debug)]
pub struct Injector;

impl Injector {
    /// One for the machine at `root`.
    #[must_use]
    pub fn new(_root: &Path) -> Self {
        Self
    }

    /// Refuses.
    ///
    /// # Errors
    /// Always [`InjectError::Refused`].
    pub fn madvise(&mut self, pid: u32, _call: Call) -> Result<Injected, InjectError> {
        let why = "a call of another process is made on x86-64 only";
        Err(InjectError::refused(pid, why))
    }
}

//! Capabilities: the separate privileges of root (capabilities(7)).

use std::fmt;
use std::path::Path;

use crate::proc::ProcError;
use crate::status;

/// One capability. Numbers are those of include/uapi/linux/capability.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Write files regardless of permissions.
    DacOverride = 1,
    /// Read files regardless of permissions.
    DacReadSearch = 2,
    /// Inspect processes of other users.
    SysPtrace = 19,
    /// System administration: swap, zram, mounts. Includes newer capabilities that were split from it.
    SysAdmin = 21,
    /// Change scheduling and memory placement of other processes.
    SysNice = 23,
    /// Read kernel data with BPF programs.
    Perfmon = 38,
    /// Load BPF programs.
    Bpf = 39,
}

impl Capability {
    /// The name, as in man pages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// The effective capabilities of process `pid`.
    ///
    /// # Errors
    /// Fails if the status of the process cannot be read.
    pub fn effective(root: &Path, pid: u32) -> Result<Self, ProcError> {
        status::read(root, pid).map(|status| Self(status.cap_eff))
    }

    /// True if the set contains `capability`, or one that includes it: `CAP_SYS_ADMIN` includes the
    /// capabilities that were split from it, and the right to write any file includes the right to read it.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        let wider = match capability {
            Capability::Bpf | Capability::Perfmon => Capability::SysAdmin,
            Capability::DacReadSearch => Capability::DacOverride,
            only => only,
        };
        self.0 & ((1 << capability as u8) | (1 << wider as u8)) != 0
    }

    /// The members of `wanted` that the set does not contain.
    #[must_use]
    pub fn missing(self, wanted: &[Capability]) -> Vec<Capability> {
        wanted.iter().copied().filter(|&one| !self.has(one)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn wider_capabilities_include_narrower_ones() {
        let admin = Capabilities(1 << 21);
        assert!(admin.has(Capability::Bpf) && !admin.has(Capability::SysPtrace));
        let writer = Capabilities(1 << 1);
        assert!(writer.has(Capability::DacReadSearch) && writer.has(Capability::DacOverride));
        assert!(!Capabilities(1 << 2).has(Capability::DacOverride));
        let wanted = [Capability::Bpf, Capability::SysPtrace, Capability::SysNice];
        assert_eq!(
            admin.missing(&wanted),
            [Capability::SysPtrace, Capability::SysNice]
        );
    }

    #[test]
    fn own_capabilities_are_readable() {
        Capabilities::effective(Path::new("/"), std::process::id()).unwrap();
    }
}

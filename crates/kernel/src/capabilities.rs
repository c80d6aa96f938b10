//! Capabilities: the pieces root's power is made of (capabilities(7)).

use std::fmt;
use std::path::Path;

use crate::proc::ProcError;
use crate::status;

/// One capability. Numbers are those of include/uapi/linux/capability.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Write files whatever their permissions say.
    DacOverride = 1,
    /// Read files whatever their permissions say.
    DacReadSearch = 2,
    /// Look into processes of others.
    SysPtrace = 19,
    /// Administrate: swap, zram, mounts; holds what newer ones were split from.
    SysAdmin = 21,
    /// Change how others are scheduled and where their memory lies.
    SysNice = 23,
    /// Look into the kernel with programs.
    Perfmon = 38,
    /// Load programs.
    Bpf = 39,
}

impl Capability {
    /// The name in manuals.
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
    /// Those process `pid` may use.
    ///
    /// # Errors
    /// When its status cannot be read.
    pub fn effective(root: &Path, pid: u32) -> Result<Self, ProcError> {
        status::read(root, pid).map(|status| Self(status.cap_eff))
    }

    /// True when `capability` is in it, or one that holds it: `CAP_SYS_ADMIN` those that were split from it, and who
    /// may write any file may read it.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        let wider = match capability {
            Capability::Bpf | Capability::Perfmon => Capability::SysAdmin,
            Capability::DacReadSearch => Capability::DacOverride,
            only => only,
        };
        self.0 & ((1 << capability as u8) | (1 << wider as u8)) != 0
    }

    /// Which of `wanted` are not in it.
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
    fn the_administrator_may_load_programs() {
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
    fn ours_can_be_read() {
        Capabilities::effective(Path::new("/"), std::process::id()).unwrap();
    }
}

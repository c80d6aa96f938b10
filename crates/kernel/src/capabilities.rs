//! Capabilities: the separate privileges of root (capabilities(7)).

use std::fmt;
use std::io;
use std::path::Path;

use rustix::thread::{CapabilitySet, CapabilitySets};

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
    /// Act on files of other users as their owner: the kernel pages out their page cache only then.
    Fowner = 3,
    /// Send signals to processes of other users.
    Kill = 5,
    /// Set the groups of a process.
    Setgid = 6,
    /// Set the user of a process.
    Setuid = 7,
    /// Lock more memory than the limit.
    IpcLock = 14,
    /// Inspect processes of other users.
    SysPtrace = 19,
    /// System administration: swap, zram, mounts. Includes newer capabilities that were split from it.
    SysAdmin = 21,
    /// Change scheduling and memory placement of other processes.
    SysNice = 23,
    /// See addresses of the kernel in `/proc/kallsyms`.
    Syslog = 34,
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
            Self::Fowner => "CAP_FOWNER",
            Self::Kill => "CAP_KILL",
            Self::Setgid => "CAP_SETGID",
            Self::Setuid => "CAP_SETUID",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::Syslog => "CAP_SYSLOG",
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

    /// The set of `members`.
    #[must_use]
    pub fn of(members: &[Capability]) -> Self {
        Self(members.iter().fold(0, |set, &one| set | 1 << one as u8))
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

/// Drops all capabilities of the calling thread but those of `kept`, for ever: nothing that it executes gets
/// them back. Threads that it starts later have the same set; other threads are not affected. Capabilities
/// of `kept` that it does not have are not added.
///
/// Without `CAP_SETPCAP` the bounding set stays as it is. It gives nothing to a thread that has
/// [`crate::no_new_privs`].
///
/// # Errors
/// None known.
pub fn keep_only(kept: Capabilities) -> io::Result<()> {
    limit_bounding_set(kept)?;
    rustix::thread::clear_ambient_capability_set()?;
    let permitted = rustix::thread::capabilities(None)?.permitted & CapabilitySet::from_bits_retain(kept.0);
    let sets = CapabilitySets {
        effective: permitted,
        permitted,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)?;
    crate::stalled_call::end_idle_threads();
    Ok(())
}

/// Removes all but `kept` from what the calling thread can ever get, if it may.
pub(crate) fn limit_bounding_set(kept: Capabilities) -> io::Result<()> {
    let own = rustix::thread::capabilities(None)?;
    if !own.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    let kept = CapabilitySet::from_bits_retain(kept.0);
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::capability_is_in_bounding_set(one) {
            Ok(true) if !kept.contains(one) => rustix::thread::remove_capability_from_bounding_set(one)?,
            Ok(_) => {}
            // Behind the last capability that this kernel knows.
            Err(_) => break,
        }
    }
    Ok(())
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
    fn thread_keeps_only_what_is_named() {
        // Capabilities belong to a thread, so those of other tests stay.
        let (kept, was) = std::thread::spawn(|| {
            let was = rustix::thread::capabilities(None).unwrap();
            keep_only(Capabilities::of(&[Capability::SysNice, Capability::Kill])).unwrap();
            (rustix::thread::capabilities(None).unwrap(), was)
        })
        .join()
        .unwrap();
        let named = CapabilitySet::SYS_NICE | CapabilitySet::KILL;
        assert_eq!(kept.permitted, was.permitted & named);
        assert_eq!(kept.effective, kept.permitted);
        assert_eq!(kept.inheritable, CapabilitySet::empty());
    }

    #[test]
    fn own_capabilities_are_readable() {
        Capabilities::effective(Path::new("/"), std::process::id()).unwrap();
    }
}

//! `/proc/PID/status`: whose a process is, and its memory by kind (proc_pid_status(5)).

use std::path::Path;

use thermo_units::Bytes;

use crate::file::{self, FileError};
use crate::proc::{self, ProcError};

/// The fields we use, of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The process: another number than the one asked for when that names one of its threads.
    pub tgid: u32,
    /// The user it acts as.
    pub euid: u32,
    /// Its effective capabilities, one bit each.
    pub cap_eff: u64,
    /// Resident; `None` when it has no address space (kernel threads, processes that ended).
    pub vm_rss: Option<Bytes>,
    /// The most it was ever resident.
    pub vm_hwm: Bytes,
    /// Resident and anonymous.
    pub rss_anon: Bytes,
    /// Swapped out.
    pub vm_swap: Bytes,
    /// Locked into memory.
    pub vm_lck: Bytes,
}

/// Reads it for process `pid`.
///
/// # Errors
/// [`ProcError::Gone`] when the process has ended.
pub fn read(root: &Path, pid: u32) -> Result<Status, ProcError> {
    let text = proc::text(root, pid, "status")?;
    let path = proc::dir(root, pid).join("status");
    parse(&text)
        .ok_or_else(|| FileError::malformed(&path, &text, "the lines proc_pid_status(5) describes").into())
}

pub(crate) fn parse(text: &str) -> Option<Status> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let mut status = Status {
        tgid: field("Tgid")?.parse().ok()?,
        euid: field("Uid")?.split_ascii_whitespace().nth(1)?.parse().ok()?,
        cap_eff: u64::from_str_radix(field("CapEff")?, 16).ok()?,
        ..Status::default()
    };
    for (name, bytes) in file::sizes(text) {
        match name {
            "VmRSS" => status.vm_rss = Some(bytes),
            "VmHWM" => status.vm_hwm = bytes,
            "RssAnon" => status.rss_anon = bytes,
            "VmSwap" => status.vm_swap = bytes,
            "VmLck" => status.vm_lck = bytes,
            _ => {}
        }
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    const HEAD: &str =
        "Name:\tredis server\nTgid:\t5\nUid:\t1000\t33\t1000\t1000\nCapEff:\t0000000000200000\n";

    #[test]
    fn memory_is_there_only_with_an_address_space() {
        let status = parse(HEAD).unwrap();
        assert_eq!((status.euid, status.vm_rss), (33, None));
        let status = parse(&format!("{HEAD}VmRSS:\t    2048 kB\nVmSwap:\t       4 kB\n")).unwrap();
        assert_eq!(
            (status.vm_rss, status.vm_swap),
            (Some(Bytes::mib(2)), Bytes::kib(4))
        );
        assert_eq!(status.cap_eff, 1 << 21);
    }

    #[test]
    fn something_else_is_no_status() {
        assert_eq!(parse("hello\n"), None);
    }
}

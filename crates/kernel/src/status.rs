//! `/proc/PID/status`: owner and memory of a process (proc_pid_status(5)).

use std::path::Path;

use thermo_units::Bytes;

use crate::file::{self, FileError};
use crate::node;
use crate::proc::{self, ProcError};

/// The fields that are used, of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The process id. It differs from the requested id if that is the id of a thread.
    pub tgid: u32,
    /// The effective user.
    pub euid: u32,
    /// Its effective capabilities, one bit each.
    pub cap_eff: u64,
    /// Resident memory; `None` without an address space (kernel threads, ended processes).
    pub vm_rss: Option<Bytes>,
    /// Peak resident memory.
    pub vm_hwm: Bytes,
    /// Resident anonymous memory.
    pub rss_anon: Bytes,
    /// Swapped-out memory.
    pub vm_swap: Bytes,
    /// Locked memory.
    pub vm_lck: Bytes,
    /// Memory in hugetlb pages, which the kernel does not count as resident.
    pub hugetlb: Bytes,
}

/// Reads the status of process `pid`.
///
/// # Errors
/// [`ProcError::Gone`] if the process has ended.
pub fn read(root: &Path, pid: u32) -> Result<Status, ProcError> {
    let text = proc::text(root, pid, "status")?;
    let path = proc::dir(root, pid).join("status");
    parse(&text).ok_or_else(|| FileError::malformed(&path, &text, "a text as in proc_pid_status(5)").into())
}

/// The memory nodes that process `pid` may use (its cpuset); `None` on kernels without cpusets.
///
/// # Errors
/// [`ProcError::Gone`] if the process has ended.
pub fn allowed_nodes(root: &Path, pid: u32) -> Result<Option<Vec<u32>>, ProcError> {
    let text = proc::text(root, pid, "status")?;
    let list = text
        .lines()
        .find_map(|line| line.strip_prefix("Mems_allowed_list:"));
    Ok(list.and_then(node::parse_list))
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
            "HugetlbPages" => status.hugetlb = bytes,
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
    fn vm_rss_is_none_without_address_space() {
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
    fn allowed_nodes_are_those_of_the_cpuset() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("proc/7");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(
            dir.join("status"),
            format!("{HEAD}Mems_allowed:\t3\nMems_allowed_list:\t0-1\n"),
        )
        .unwrap();
        assert_eq!(allowed_nodes(root.path(), 7).unwrap(), Some(vec![0, 1]));
        std::fs::write(dir.join("status"), HEAD).unwrap();
        assert_eq!(allowed_nodes(root.path(), 7).unwrap(), None);
    }

    #[test]
    fn malformed_status_is_refused() {
        assert_eq!(parse("hello\n"), None);
    }
}

//! Moves the pages of a process between memory nodes, and asks on which node they are (`move_pages(2)`).

use std::io;

use thermo_units::Addr;

use crate::stalled_call::{self, Wait};

/// The most pages for one call. Each call first drains the LRU caches of all CPUs, so that small calls are
/// slow; large calls delay a cancel.
pub const MAX_PAGES: usize = 16_384;

/// Move only pages that no other process maps (include/uapi/linux/mempolicy.h; not in libc's Rust bindings).
const MPOL_MF_MOVE: i32 = 1 << 1;

/// What the kernel says of one page: the node it is on, or the reason why it is not known or was not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct PageStatus(i32);

impl PageStatus {
    /// The kernel did not come to this page, or moved it together with others of which some failed: it writes
    /// no status then.
    pub const UNSET: Self = Self(i32::MIN);

    /// The status with this number: a node, or a negative error number.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Self {
        Self(raw)
    }

    /// The node of the page.
    #[must_use]
    pub fn node(self) -> Option<u32> {
        u32::try_from(self.0).ok()
    }

    /// The error number: `ENOENT` (absent), `EACCES` (other processes map it too), `EBUSY` (in use by the
    /// kernel at the moment), `EFAULT` (not mapped, or the zero page), `ENOMEM` (no free memory on the node).
    #[must_use]
    pub const fn errno(self) -> Option<i32> {
        if self.0 >= 0 || self.0 == Self::UNSET.0 {
            None
        } else {
            Some(-self.0)
        }
    }
}

/// Asks on which nodes the `pages` of process `pid` are. One status for each page goes to `statuses`, which
/// is emptied first.
///
/// # Errors
/// `ESRCH` if there is no such process, `EPERM` without the right to ptrace-read it, `ENOSYS` on kernels
/// without NUMA, `TimedOut` if the process does not answer ([`crate::stalled_call`]).
pub fn query(pid: u32, pages: &[Addr], statuses: &mut Vec<PageStatus>) -> io::Result<()> {
    statuses.clear();
    statuses.resize(pages.len(), PageStatus::UNSET);
    call(pid, pages, None, statuses).map(|_| ())
}

/// Moves each of the `pages` of process `pid` to its node in `nodes`, unless other processes map it too. A
/// page stands for the folio it belongs to: give one address of each huge page, otherwise the kernel reports
/// the others as busy. One status for each page goes to `statuses`, which is emptied first; pages whose move
/// failed are often [`PageStatus::UNSET`], so that [`query`] is what tells.
///
/// Returns the number of pages that were not moved, as the kernel counts them, 0 if all went well. The kernel
/// stops at a group of pages that it could not move completely, so that later ones were not tried.
///
/// # Errors
/// `EACCES` if the cpuset of the process forbids a node, `ENODEV` if a node is not there or has no memory,
/// `ENOMEM` if a node has no free memory, `ESRCH`, `EPERM`, `ENOSYS`, `TimedOut` as for [`query`].
pub fn move_pages(
    pid: u32,
    pages: &[Addr],
    nodes: &[u32],
    statuses: &mut Vec<PageStatus>,
) -> io::Result<usize> {
    statuses.clear();
    statuses.resize(pages.len(), PageStatus::UNSET);
    if pages.len() != nodes.len() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let nodes: Result<Vec<i32>, _> = nodes.iter().map(|node| i32::try_from(*node)).collect();
    let nodes = nodes.map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    call(pid, pages, Some(nodes), statuses)
}

fn call(
    pid: u32,
    pages: &[Addr],
    nodes: Option<Vec<i32>>,
    statuses: &mut Vec<PageStatus>,
) -> io::Result<usize> {
    let (pages, mut found) = (pages.to_vec(), statuses.clone());
    let (rest, found) = stalled_call::run(pid, Wait::Unkillable, move || {
        let rest = call_now(pid, &pages, nodes.as_deref(), &mut found);
        (rest, found)
    })?;
    *statuses = found;
    rest
}

/// `nodes`, if given, and `statuses` have one entry for each of `pages`.
fn call_now(
    pid: u32,
    pages: &[Addr],
    nodes: Option<&[i32]>,
    statuses: &mut [PageStatus],
) -> io::Result<usize> {
    let addrs: Vec<*mut libc::c_void> = pages
        .iter()
        .map(|page| std::ptr::without_provenance_mut(page.0 as usize))
        .collect();
    // SAFETY: `addrs` and `nodes` are read and `statuses` is written, by as many entries as `addrs` has; all
    // live through the call. `PageStatus` is a transparent i32. The addresses are those of the other process.
    // If the process is ours, moving a page does not change its contents or address.
    let rest = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            addrs.len(),
            addrs.as_ptr(),
            nodes.map_or(std::ptr::null(), <[i32]>::as_ptr),
            statuses.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    usize::try_from(rest).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    /// Pages of ours: 8 that were written, then one that is not mapped.
    fn pages(memory: &[u8]) -> Vec<Addr> {
        let start = (memory.as_ptr() as u64).next_multiple_of(4096);
        (0..8)
            .map(|nth| Addr(start + (nth << 12)))
            .chain([Addr(0x1000)])
            .collect()
    }

    #[test]
    fn status_is_node_or_error_number() {
        assert_eq!(PageStatus::from_raw(3).node(), Some(3));
        assert_eq!(PageStatus::from_raw(3).errno(), None);
        assert_eq!(PageStatus::from_raw(-13).errno(), Some(libc::EACCES));
        assert_eq!(PageStatus::from_raw(-13).node(), None);
        assert_eq!(
            (PageStatus::UNSET.node(), PageStatus::UNSET.errno()),
            (None, None)
        );
    }

    #[test]
    fn query_and_move_report_each_page() {
        let memory = vec![1_u8; 16 << 12];
        let pages = pages(&memory);
        let mut statuses = Vec::new();
        if let Err(error) = query(std::process::id(), &pages, &mut statuses) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
            eprintln!("SKIP: this kernel has no memory nodes");
            return;
        }
        let nodes: Vec<u32> = statuses[..8]
            .iter()
            .map(|status| status.node().unwrap())
            .collect();
        assert!(statuses[8].errno().is_some(), "{:?}", statuses[8]);
        // Moving pages to the node they are on changes nothing.
        let failed = move_pages(std::process::id(), &pages[..8], &nodes, &mut statuses).unwrap();
        assert_eq!(failed, 0);
        assert!(
            statuses
                .iter()
                .zip(&nodes)
                .all(|(status, node)| status.node() == Some(*node))
        );
        assert!(memory.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn missing_node_and_process_are_refused() {
        let memory = vec![1_u8; 16 << 12];
        let pages = pages(&memory);
        let mut statuses = Vec::new();
        let refused = |pid, nodes: &[u32], statuses: &mut Vec<PageStatus>| {
            move_pages(pid, &pages[..1], nodes, statuses)
                .unwrap_err()
                .raw_os_error()
        };
        let nowhere = refused(std::process::id(), &[1023], &mut statuses);
        assert!(
            [Some(libc::ENODEV), Some(libc::ENOSYS)].contains(&nowhere),
            "{nowhere:?}"
        );
        assert_eq!(
            refused(std::process::id(), &[u32::MAX], &mut statuses),
            Some(libc::ENODEV)
        );
        assert_eq!(
            refused(std::process::id(), &[], &mut statuses),
            Some(libc::EINVAL)
        );
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let gone = refused(child.id(), &[0], &mut statuses);
        assert!(
            [Some(libc::ESRCH), Some(libc::ENOSYS)].contains(&gone),
            "{gone:?}"
        );
    }
}

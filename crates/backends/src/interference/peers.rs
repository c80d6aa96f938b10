//! Instances of thermo announce themselves to each other.
//!
//! An instance that monitors binds a socket to an abstract name with its pid. The name needs no directory,
//! and disappears with the process however it ends. No instance connects to the socket. The targets of
//! another instance are seen by the pidfds that it holds, which identify a process even if its pid was
//! reused.
//!
//! Instances in different network namespaces (most containers) do not see each other.

use std::collections::BTreeSet;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use thermo_kernel::{net_unix, pidfd};

/// Prefix of the names; the pid and a serial number follow.
pub(super) const PREFIX: &str = "thermocline/monitors/";
/// Maximum number of targets that a warning lists; of more only the count is shown.
const MAX_LISTED: usize = 3;

/// While this exists, other instances see that this process monitors. Does nothing if no socket is available.
#[derive(Debug)]
pub struct Announcement {
    _socket: Option<UnixDatagram>,
}

impl Announcement {
    /// Announces that this process monitors others.
    #[must_use]
    pub fn make() -> Self {
        static NTH: AtomicU32 = AtomicU32::new(0);
        let nth = NTH.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}/{nth}", std::process::id());
        let address = SocketAddr::from_abstract_name(name);
        Self {
            _socket: address.and_then(|address| UnixDatagram::bind_addr(&address)).ok(),
        }
    }
}

/// Another instance that monitors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its pid.
    pub(super) pid: u32,
    /// The processes it holds; `None` if we may not read them.
    holds: Option<BTreeSet<u32>>,
}

/// The other instances on the machine at `root` (`/`), ascending by pid.
pub(super) fn peers(root: &Path) -> Vec<Peer> {
    let names = net_unix::abstract_names(root, PREFIX).unwrap_or_default();
    let pid = |name: &String| name.strip_prefix(PREFIX)?.split('/').next()?.parse().ok();
    let pids: BTreeSet<u32> = names.iter().filter_map(pid).collect();
    let others = pids.into_iter().filter(|pid| *pid != std::process::id());
    others
        .map(|pid| Peer {
            pid,
            holds: pidfd::held_processes(root, pid).ok(),
        })
        .collect()
}

impl Peer {
    /// The warning for an instance with targets `ours`; `None` if this instance monitors none of them.
    pub(super) fn warning(&self, ours: &BTreeSet<u32>) -> Option<String> {
        let pid = self.pid;
        let Some(holds) = &self.holds else {
            return Some(format!(
                "another thermo (pid {pid}) monitors processes, and we may not see which. If both monitor the same \
                 process, each clears accessed bits before the other sees them: run both as one user, or end one"
            ));
        };
        let shared: Vec<u32> = holds.intersection(ours).copied().collect();
        let named: Vec<String> = shared.iter().take(MAX_LISTED).map(u32::to_string).collect();
        let which = match shared.len() {
            0 => return None,
            1 => format!("our target {}", named[0]),
            count if count <= MAX_LISTED => format!("our targets {}", named.join(", ")),
            count => format!("{count} of our targets ({}, ...)", named.join(", ")),
        };
        Some(format!(
            "another thermo (pid {pid}) also monitors {which}, so each clears accessed bits before the other sees \
             them, and both report accessed memory as idle. End one, or use the recording of one for both"
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    #[test]
    fn announcement_exists_until_dropped() {
        let count = || {
            let ours = format!("{PREFIX}{}/", std::process::id());
            net_unix::abstract_names(Path::new("/"), &ours).unwrap().len()
        };
        let before = count();
        let both = [Announcement::make(), Announcement::make()];
        assert_eq!(count(), before + 2);
        drop(both);
        assert_eq!(count(), before);
        let us = std::process::id();
        assert!(peers(Path::new("/")).iter().all(|peer| peer.pid != us));
    }

    #[test]
    fn peers_finds_processes_that_others_hold() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        fs::create_dir_all(proc.join("net")).unwrap();
        fs::create_dir_all(proc.join("50/fdinfo")).unwrap();
        fs::write(proc.join("50/fdinfo/7"), "pos:\t0\nPid:\t600\n").unwrap();
        fs::write(proc.join("50/fdinfo/8"), "pos:\t0\nPid:\t-1\n").unwrap();
        let line = |pid: u32| format!("0: 2 0 0 2 01 17 @{PREFIX}{pid}/0\n");
        fs::write(proc.join("net/unix"), line(50) + &line(50) + &line(60)).unwrap();
        let holds = Some(BTreeSet::from([600]));
        let expected = [Peer { pid: 50, holds }, Peer { pid: 60, holds: None }];
        assert_eq!(peers(root.path()), expected);
        let ours = BTreeSet::from([601]);
        assert_eq!(expected[0].warning(&ours), None);
        assert!(expected[1].warning(&ours).unwrap().contains("may not see"));
    }

    #[test]
    fn warning_lists_few_targets_and_counts_many() {
        let holds = |pids: &[u32]| Peer {
            pid: 9,
            holds: Some(pids.iter().copied().collect()),
        };
        let ours: BTreeSet<u32> = (1..=9).collect();
        let warning = |pids: &[u32]| holds(pids).warning(&ours).unwrap();
        assert!(warning(&[3, 90]).contains("our target 3,"));
        assert!(warning(&[3, 4]).contains("our targets 3, 4,"));
        assert!(warning(&[1, 2, 3, 4]).contains("4 of our targets (1, 2, 3, ...)"));
    }
}

//! Instances of ours tell each other that they look.
//!
//! Who looks binds a socket to an abstract name with its process number. It belongs to no folder and is gone with the
//! process, however that ended. Nobody connects to it: whom an instance watches is seen by the descriptors it holds its
//! targets by, which name the process itself and not a number that may have passed to another.
//!
//! Instances in other network namespaces (most containers) do not see each other.

use std::collections::BTreeSet;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use thermo_kernel::{net_unix, pidfd};

/// What the names begin with; the process and a number of its own follow.
pub(super) const PREFIX: &str = "thermocline/looks/";
/// Targets that are named in a sentence; of more only the count is told.
const NAMED: usize = 3;

/// As long as it is kept, other instances see that we look. Where no socket can be had, it is nothing.
#[derive(Debug)]
pub struct Announcement {
    _socket: Option<UnixDatagram>,
}

impl Announcement {
    /// Announces that this process looks at others.
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

/// Another instance that looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its process.
    pub(super) pid: u32,
    /// The processes it holds; `None` when we may not know.
    holds: Option<BTreeSet<u32>>,
}

/// The other instances that look, on the machine at `root` (`/`), ascending.
pub(super) fn peers(root: &Path) -> Vec<Peer> {
    let names = net_unix::abstract_names(root, PREFIX).unwrap_or_default();
    let pid = |name: &String| name.strip_prefix(PREFIX)?.split('/').next()?.parse().ok();
    let pids: BTreeSet<u32> = names.iter().filter_map(pid).collect();
    let others = pids.into_iter().filter(|pid| *pid != std::process::id());
    others
        .map(|pid| Peer {
            pid,
            holds: pidfd::held_by(root, pid).ok(),
        })
        .collect()
}

impl Peer {
    /// What to say of it to whoever watches `ours`; nothing when it watches none of these.
    pub(super) fn sentence(&self, ours: &BTreeSet<u32>) -> Option<String> {
        let pid = self.pid;
        let Some(holds) = &self.holds else {
            return Some(format!(
                "another thermo (pid {pid}) looks at processes, and we may not know at which. If they are ours, each \
                 takes accessed marks off before the other sees them: run both as one user, or end one"
            ));
        };
        let both: Vec<u32> = holds.intersection(ours).copied().collect();
        let named: Vec<String> = both.iter().take(NAMED).map(u32::to_string).collect();
        let which = match both.len() {
            0 => return None,
            1 => format!("our target {}", named[0]),
            count if count <= NAMED => format!("our targets {}", named.join(", ")),
            count => format!("{count} of our targets ({}, …)", named.join(", ")),
        };
        Some(format!(
            "another thermo (pid {pid}) watches {which}, too: each takes accessed marks off before the other sees \
             them, and both find memory idle that is not. End one, or let one record and both read that"
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;

    #[test]
    fn an_announcement_is_there_until_it_is_dropped() {
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
    fn whom_others_hold_is_found_and_who_hides_it_is_suspected() {
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
        assert_eq!(expected[0].sentence(&ours), None);
        assert!(expected[1].sentence(&ours).unwrap().contains("may not know"));
    }

    #[test]
    fn few_targets_are_named_and_many_counted() {
        let holds = |pids: &[u32]| Peer {
            pid: 9,
            holds: Some(pids.iter().copied().collect()),
        };
        let ours: BTreeSet<u32> = (1..=9).collect();
        let said = |pids: &[u32]| holds(pids).sentence(&ours).unwrap();
        assert!(said(&[3, 90]).contains("our target 3,"));
        assert!(said(&[3, 4]).contains("our targets 3, 4,"));
        assert!(said(&[1, 2, 3, 4]).contains("4 of our targets (1, 2, 3, …)"));
    }
}

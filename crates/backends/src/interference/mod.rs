//! Detects interference: other users of accessed bits, as far as the host shows them.
//!
//! If another program clears an accessed bit first, the access is missed. In-kernel DAMON and the idle-page
//! bitmap record the bits they clear in a folio flag, which tracker `pte` reads where it can; those that
//! exist before monitoring starts are reported by the host probe. Other programs leave no record, so only a
//! warning is possible: another thermo that monitors the same target (`peers.rs`), and kernel reclaim
//! (`reclaim.rs`). A program that writes to `clear_refs` cannot be detected.
//!
//! A virtual machine clears no bits, but accesses by its guest set none (`kvm.rs`).
//!
//! All are checked at the start and once a minute, less often if that takes long, and each is reported once.

mod kvm;
mod peers;
mod reclaim;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thermo_engine::TargetId;
use thermo_engine::ops::Probe;
use thermo_engine::scan::ScanChunk;
use thermo_kernel::{clock, damon};
use thermo_targets::Processes;
use thermo_units::Nanos;

pub use peers::Announcement;

use self::kvm::VmTargets;
use self::peers::{Peer, peers};
use self::reclaim::Reclaim;
use crate::tracker::Tracker;

/// Minimum interval between checks.
const CHECK_INTERVAL: Nanos = Nanos::secs(60);
/// Checks take at most this part of the time of one CPU: they read files of each target, and of each target
/// of another thermo.
const CHECK_DIVISOR: u64 = 1000;

/// Known interference.
#[derive(Debug)]
pub struct Interference {
    root: PathBuf,
    next: Nanos,
    /// Other instances of thermo that were reported.
    peers: BTreeSet<u32>,
    /// Whether the control files of in-kernel DAMON may be read.
    reads_damon_files: bool,
    /// Known threads of in-kernel DAMON; `None` before the first check.
    kdamonds: Option<BTreeSet<u32>>,
    reclaim: Reclaim,
    vm_targets: VmTargets,
}

impl Interference {
    /// Nothing is known yet about the machine at `root` (`/`).
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            next: Nanos::ZERO,
            peers: BTreeSet::new(),
            reads_damon_files: true,
            kdamonds: None,
            reclaim: Reclaim::new(root),
            vm_targets: VmTargets::new(root),
        }
    }

    /// Like [`Interference::new`], but does not read the control files of in-kernel DAMON. For a process that
    /// serves files in their place, which would wait for itself.
    #[must_use]
    pub fn without_damon_files(root: &Path) -> Self {
        Self {
            reads_damon_files: false,
            ..Self::new(root)
        }
    }

    /// Checks, if a check is due, and returns one warning for each new interference with monitoring of
    /// `targets` by `tracker`. New targets are checked at once for virtual machines.
    pub fn take_warnings(&mut self, targets: &Processes, tracker: &dyn Tracker) -> Vec<String> {
        let (now, began) = (clock::monotonic(), clock::thread_cpu());
        let is_due = now >= self.next;
        let mut warnings = match tracker.sees_guests() {
            true => Vec::new(),
            false => self.vm_targets.check(targets, is_due),
        };
        if is_due {
            warnings.extend(self.check(targets, tracker.reads_young_flags()));
            let cost = clock::thread_cpu().saturating_sub(began);
            self.next = now.saturating_add(CHECK_INTERVAL.max(cost * CHECK_DIVISOR));
        }
        warnings
    }

    /// Marks as unknown those of `probes` (sorted by target) that found memory idle that a guest may have
    /// accessed.
    pub fn mark_unknown(&self, probes: &mut [Probe]) {
        self.vm_targets.mark_unknown(probes);
    }

    /// Like [`Interference::mark_unknown`], for a scanned chunk of target `id`.
    pub fn mark_pages_unknown(&self, id: TargetId, chunk: &mut ScanChunk) {
        self.vm_targets.mark_pages_unknown(id, chunk);
    }

    /// Checks for new interference and returns one warning for each. `reads_young_flags`: the tracker sees
    /// bits that in-kernel DAMON cleared.
    fn check(&mut self, targets: &Processes, reads_young_flags: bool) -> Vec<String> {
        let mut warnings = self.new_peers(targets);
        warnings.extend(self.new_kdamonds(reads_young_flags));
        warnings.extend(self.reclaim.check(targets));
        warnings
    }

    fn new_peers(&mut self, targets: &Processes) -> Vec<String> {
        let targets: BTreeSet<u32> = targets.values().map(|process| process.pid).collect();
        let warning = |peer: &Peer| {
            let text = peer.warning(&targets)?;
            self.peers.insert(peer.pid).then_some(text)
        };
        peers(&self.root).iter().filter_map(warning).collect()
    }

    fn new_kdamonds(&mut self, reads_young_flags: bool) -> Vec<String> {
        let read = || damon::read(&self.root).ok().flatten();
        let running = self
            .reads_damon_files
            .then(read)
            .flatten()
            .unwrap_or_default()
            .kdamonds;
        let running = running.iter().filter(|kdamond| kdamond.running);
        let now: BTreeSet<u32> = running.filter_map(|kdamond| kdamond.pid).collect();
        // Threads that ran at the start are named in the reason of the host probe.
        let known = self.kdamonds.get_or_insert_with(|| now.clone());
        let new = now.into_iter().filter(|pid| known.insert(*pid));
        let effect = effect_of_damon(reads_young_flags);
        new.map(|pid| {
            format!("in-kernel DAMON (pid {pid}) has started and also clears accessed bits: {effect}")
        })
        .collect()
    }
}

/// Effect of in-kernel DAMON on the results.
pub(crate) const fn effect_of_damon(reads_young_flags: bool) -> &'static str {
    if reads_young_flags {
        "the bits it cleared are read from the folio's young flag"
    } else {
        "pages whose bits it cleared are unknown, not idle"
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;
    use thermo_engine::TargetId;

    use thermo_targets::Process;

    fn put(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn kdamond_is_reported_when_it_starts_later() {
        let root = tempfile::tempdir().unwrap();
        let dir = "sys/kernel/mm/damon/admin/kdamonds";
        put(root.path(), &format!("{dir}/nr_kdamonds"), "1\n");
        put(root.path(), &format!("{dir}/0/state"), "on\n");
        put(root.path(), &format!("{dir}/0/pid"), "77\n");
        let no_targets = Processes::new();
        let mut interference = Interference::new(root.path());
        assert!(
            interference.check(&no_targets, false).is_empty(),
            "the host probe reported it"
        );
        put(root.path(), &format!("{dir}/0/pid"), "78\n");
        let warnings = interference.check(&no_targets, false);
        assert!(
            warnings.len() == 1
                && warnings[0].contains("(pid 78)")
                && warnings[0].contains("unknown, not idle"),
            "{warnings:?}"
        );
        assert!(interference.check(&no_targets, false).is_empty());
        put(root.path(), &format!("{dir}/0/pid"), "79\n");
        let warnings = interference.check(&no_targets, true);
        assert!(
            warnings.len() == 1 && warnings[0].contains("(pid 79)") && warnings[0].contains("young flag"),
            "{warnings:?}"
        );
    }

    #[test]
    fn other_thermo_is_reported_if_it_shares_target() {
        let root = tempfile::tempdir().unwrap();
        let us = std::process::id();
        put(
            root.path(),
            "proc/net/unix",
            &format!("head\n0: 2 0 0 2 01 17 @{}4242/0\n", peers::PREFIX),
        );
        put(root.path(), "proc/4242/fdinfo/3", "Pid:\t1\nNSpid:\t1\n");
        let processes = Processes::from([(TargetId(0), Process::open(TargetId(0), us).unwrap())]);
        let mut interference = Interference::new(root.path());
        assert!(
            interference.check(&processes, false).is_empty(),
            "it monitors other processes"
        );
        put(root.path(), "proc/4242/fdinfo/4", &format!("Pid:\t{us}\n"));
        let warnings = interference.check(&processes, false);
        assert!(
            warnings.len() == 1
                && warnings[0].contains("(pid 4242)")
                && warnings[0].contains(&us.to_string()),
            "{warnings:?}"
        );
        assert!(interference.check(&processes, false).is_empty());
    }
}

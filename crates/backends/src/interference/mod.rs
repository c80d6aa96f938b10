//! Who else takes accessed marks off while we look, as far as the machine shows it.
//!
//! What another takes off before we see it is an access that we miss. In-kernel DAMON and the idle-page bitmap keep what
//! they found in a flag of the folio, which the tracker `pte` reads where it can; those that were there before are told
//! by the probe of the host. The rest keeps nothing, so that all that can be done is to say so: another thermo that watches
//! one of our targets (`peers.rs`), and the kernel's own search for memory to reclaim (`reclaim.rs`). Who writes to
//! `clear_refs` leaves no trace.
//!
//! A virtual machine takes nothing off, but what it touches leaves no mark that we could see (`kvm.rs`).
//!
//! All are looked up at the start and once a minute, and each is told once.

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

use self::kvm::Guests;
use self::peers::{Peer, peers};
use self::reclaim::Reclaim;
use crate::tracker::Tracker;

/// How often others are looked up.
const EVERY: Nanos = Nanos::secs(60);

/// What is known of others.
#[derive(Debug)]
pub struct Interference {
    root: PathBuf,
    next: Nanos,
    /// Other instances of ours that were told of.
    peers: BTreeSet<u32>,
    /// Whether the kernel's DAMON can be asked who runs.
    asks_damon: bool,
    /// The threads of in-kernel DAMON that are known; none before the first look.
    kdamonds: Option<BTreeSet<u32>>,
    reclaim: Reclaim,
    guests: Guests,
}

impl Interference {
    /// Nobody is known on the machine at `root` (`/`).
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            next: Nanos::ZERO,
            peers: BTreeSet::new(),
            asks_damon: true,
            kdamonds: None,
            reclaim: Reclaim::new(root),
            guests: Guests::new(root),
        }
    }

    /// The same, where the control files of in-kernel DAMON are covered by our own: whoever serves those must not wait
    /// for their answer.
    #[must_use]
    pub fn behind_control_files(root: &Path) -> Self {
        Self {
            asks_damon: false,
            ..Self::new(root)
        }
    }

    /// When it is time to look again, a sentence for each that is new beside `tracker`'s looking at `targets`. Of new
    /// targets it is found out at once whether they run virtual machines.
    pub fn take_warnings(&mut self, targets: &Processes, tracker: &dyn Tracker) -> Vec<String> {
        let now = clock::monotonic();
        let is_due = now >= self.next;
        let mut news = match tracker.sees_guests() {
            true => Vec::new(),
            false => self.guests.look(targets, is_due),
        };
        if is_due {
            self.next = now.saturating_add(EVERY);
            news.extend(self.look(targets, tracker.sees_marks_taken()));
        }
        news
    }

    /// Makes unknown which of `probes`, sorted by target, found memory idle that a virtual machine may have touched.
    pub fn mark_unknown(&self, probes: &mut [Probe]) {
        self.guests.mark_unknown(probes);
    }

    /// The same of what a sweep of target `id` found.
    pub fn mark_pages_unknown(&self, id: TargetId, piece: &mut ScanChunk) {
        self.guests.mark_pages_unknown(id, piece);
    }

    /// Looks who there is beside us, and returns a sentence for each that is new. `sees_taken`: the tracker sees marks
    /// that in-kernel DAMON took.
    fn look(&mut self, targets: &Processes, sees_taken: bool) -> Vec<String> {
        let mut news = self.new_peers(targets);
        news.extend(self.new_kdamonds(sees_taken));
        news.extend(self.reclaim.look(targets));
        news
    }

    fn new_peers(&mut self, targets: &Processes) -> Vec<String> {
        let ours: BTreeSet<u32> = targets.values().map(|process| process.pid).collect();
        let told = |peer: &Peer| {
            let text = peer.sentence(&ours)?;
            self.peers.insert(peer.pid).then_some(text)
        };
        peers(&self.root).iter().filter_map(told).collect()
    }

    fn new_kdamonds(&mut self, sees_taken: bool) -> Vec<String> {
        let read = || damon::read(&self.root).ok().flatten();
        let running = self.asks_damon.then(read).flatten().unwrap_or_default().kdamonds;
        let running = running.iter().filter(|kdamond| kdamond.running);
        let now: BTreeSet<u32> = running.filter_map(|kdamond| kdamond.pid).collect();
        // Those of the beginning are in the reason why this tracker was taken.
        let known = self.kdamonds.get_or_insert_with(|| now.clone());
        let new = now.into_iter().filter(|pid| known.insert(*pid));
        let what_it_takes = what_damon_takes(sees_taken);
        new.map(|pid| format!("in-kernel DAMON (pid {pid}) looks, too, from now on: {what_it_takes}"))
            .collect()
    }
}

/// What becomes of the accessed marks that in-kernel DAMON takes off.
pub(crate) const fn what_damon_takes(sees_taken: bool) -> &'static str {
    if sees_taken {
        "accessed marks that it took are read in the folio, where it notes them"
    } else {
        "pages whose accessed mark it took are unknown to us, not idle"
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
    fn a_kdamond_is_told_of_when_it_comes_later() {
        let root = tempfile::tempdir().unwrap();
        let dir = "sys/kernel/mm/damon/admin/kdamonds";
        put(root.path(), &format!("{dir}/nr_kdamonds"), "1\n");
        put(root.path(), &format!("{dir}/0/state"), "on\n");
        put(root.path(), &format!("{dir}/0/pid"), "77\n");
        let nobody = Processes::new();
        let mut interference = Interference::new(root.path());
        assert!(
            interference.look(&nobody, false).is_empty(),
            "the probe of the host told of it"
        );
        put(root.path(), &format!("{dir}/0/pid"), "78\n");
        let told = interference.look(&nobody, false);
        assert!(
            told.len() == 1 && told[0].contains("(pid 78)") && told[0].contains("unknown to us"),
            "{told:?}"
        );
        assert!(interference.look(&nobody, false).is_empty());
        put(root.path(), &format!("{dir}/0/pid"), "79\n");
        let told = interference.look(&nobody, true);
        assert!(
            told.len() == 1 && told[0].contains("(pid 79)") && told[0].contains("where it notes them"),
            "{told:?}"
        );
    }

    #[test]
    fn another_thermo_is_told_of_when_it_watches_one_of_ours() {
        let root = tempfile::tempdir().unwrap();
        let us = std::process::id();
        put(
            root.path(),
            "proc/net/unix",
            &format!("head\n0: 2 0 0 2 01 17 @{}4242/0\n", peers::PREFIX),
        );
        put(root.path(), "proc/4242/fdinfo/3", "Pid:\t1\nNSpid:\t1\n");
        let ours = Processes::from([(TargetId(0), Process::open(TargetId(0), us).unwrap())]);
        let mut interference = Interference::new(root.path());
        assert!(interference.look(&ours, false).is_empty(), "it watches others");
        put(root.path(), "proc/4242/fdinfo/4", &format!("Pid:\t{us}\n"));
        let told = interference.look(&ours, false);
        assert!(
            told.len() == 1 && told[0].contains("(pid 4242)") && told[0].contains(&us.to_string()),
            "{told:?}"
        );
        assert!(interference.look(&ours, false).is_empty());
    }
}

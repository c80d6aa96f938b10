//! Tracker `idle`: the kernel's idle-page bitmap, one bit for each physical page, on kernels built with it.
//!
//! **Prepare** looks up the frame of each probe and sets its idle bit. The kernel then clears the accessed
//! bits of all mappings of the frame, so shared memory works too. **Check** reads the bitmap: if the idle bit
//! is clear, any process accessed the frame. A large folio has one bit, that of its first frame. No huge page
//! is split and no page moves on the LRU lists. The kernel checks guests of virtual machines as well.
//!
//! Unknown are frames on no LRU list, and probes whose address maps another frame by now (compaction, copy on
//! write).
//!
//! [`Paddr`] monitors the physical memory of the whole machine by frame.

mod folios;
mod paddr;

use std::path::{Path, PathBuf};

use thermo_engine::ops::{CheckResult, Probe};
use thermo_kernel::FileError;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_targets::{Process, Processes};

pub use paddr::Paddr;

use self::folios::IdleFolios;
use crate::tracker::Tracker;

/// Tracker `idle`.
#[derive(Debug)]
pub struct Idle {
    root: PathBuf,
    folios: IdleFolios,
    /// One for each prepared probe.
    states: Vec<ProbeState>,
}

/// State of a prepared probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeState {
    /// The idle bit of the folio with first frame `head` is set. The probe maps frame `pfn`.
    IdleSet {
        pfn: u64,
        head: u64,
    },
    /// No page is mapped.
    Absent,
    Unknown,
}

impl Idle {
    /// Opens the bitmap of the machine at `root` (`/`).
    ///
    /// # Errors
    /// The kernel has no bitmap, or we are not root.
    pub fn new(root: &Path) -> Result<Self, FileError> {
        Ok(Self {
            folios: IdleFolios::open(root)?,
            root: root.to_owned(),
            states: Vec::new(),
        })
    }

    fn state_of(&self, page: Page) -> ProbeState {
        if !page.is_present() {
            return ProbeState::Absent;
        }
        let found = page.pfn().and_then(|pfn| Some((pfn, self.folios.head_of(pfn)?)));
        found.map_or(ProbeState::Unknown, |(pfn, head)| ProbeState::IdleSet {
            pfn,
            head,
        })
    }

    fn check_one(&self, process: &Process, states: &[ProbeState], probes: &mut [Probe]) {
        let Ok(pagemap) = Pagemap::open(&self.root, process.pid) else {
            return;
        };
        let mut idle_bits = self.folios.reader();
        let pages = pagemap.pages(probes.iter().map(|probe| probe.addr).collect());
        let mut pages = pages.unwrap_or_default().into_iter();
        for (probe, state) in probes.iter_mut().zip(states) {
            // An unreadable entry is unknown, not absent.
            let Some(page) = pages.next().flatten() else {
                probe.result = CheckResult::Unknown;
                continue;
            };
            probe.result = match *state {
                ProbeState::Absent if page.is_present() => CheckResult::Accessed,
                ProbeState::Absent => CheckResult::Idle,
                ProbeState::IdleSet { .. } if !page.is_present() => CheckResult::Idle,
                ProbeState::IdleSet { pfn, head } if page.pfn() == Some(pfn) => match idle_bits.is_idle(head)
                {
                    true => CheckResult::Idle,
                    false => CheckResult::Accessed,
                },
                ProbeState::IdleSet { .. } | ProbeState::Unknown => CheckResult::Unknown,
            };
        }
        // The pid may belong to another process by now; then the entries are not those of the target.
        if !process.is_alive() {
            probes
                .iter_mut()
                .for_each(|probe| probe.result = CheckResult::Unknown);
        }
    }
}

impl Tracker for Idle {
    fn sees_guests(&self) -> bool {
        true
    }

    fn prepare(&mut self, processes: &Processes, probes: &[Probe]) {
        let mut states = Vec::with_capacity(probes.len());
        for group in probes.chunk_by(|a, b| a.target == b.target) {
            let process = group.first().and_then(|probe| processes.get(&probe.target));
            let pagemap = process.and_then(|process| Pagemap::open(&self.root, process.pid).ok());
            let addrs = group.iter().map(|probe| probe.addr).collect();
            let pages = pagemap.and_then(|pagemap| pagemap.pages(addrs).ok());
            let mut pages = pages.unwrap_or_default().into_iter();
            for _ in group {
                let page = pages.next().flatten();
                states.push(page.map_or(ProbeState::Unknown, |page| self.state_of(page)));
            }
        }
        let head = |state: &ProbeState| match state {
            ProbeState::IdleSet { head, .. } => Some(*head),
            ProbeState::Absent | ProbeState::Unknown => None,
        };
        let refused = self.folios.set_idle(states.iter().filter_map(head));
        let was_refused = |state: &&mut ProbeState| head(state).is_some_and(|head| refused.contains(&head));
        states
            .iter_mut()
            .filter(was_refused)
            .for_each(|state| *state = ProbeState::Unknown);
        self.states = states;
    }

    fn check(&mut self, processes: &Processes, probes: &mut [Probe]) {
        let mut first = 0;
        for group in probes.chunk_by_mut(|a, b| a.target == b.target) {
            group
                .iter_mut()
                .for_each(|probe| probe.result = CheckResult::Unknown);
            let process = group.first().and_then(|probe| processes.get(&probe.target));
            if let Some(process) = process {
                let states = self.states.get(first..first + group.len()).unwrap_or_default();
                self.check_one(process, states, group);
            }
            first += group.len();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::fs;
    use std::os::unix::fs::FileExt as _;
    use thermo_engine::TargetId;
    use thermo_units::Addr;

    const PRESENT: u64 = 1 << 63;
    pub(in crate::idle) const LRU: u64 = 1 << 5;
    const HEAD: u64 = 1 << 15;
    const TAIL: u64 = 1 << 16;

    pub(in crate::idle) fn words(path: &Path, words: &[u64]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        fs::write(path, bytes).unwrap();
    }

    /// A fake root on which this process has pages with these `pagemap` entries, and frames have these flags.
    fn machine(pagemap: &[u64], flags: &[u64]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        words(
            &proc.join(std::process::id().to_string()).join("pagemap"),
            pagemap,
        );
        words(&proc.join("kpageflags"), flags);
        words(&proc.join("kpagecount"), flags);
        words(&root.path().join("sys/kernel/mm/page_idle/bitmap"), &[0; 4]);
        root
    }

    fn processes() -> Processes {
        let id = TargetId(0);
        Processes::from([(id, Process::open(id, std::process::id()).unwrap())])
    }

    fn probes(pages: u64) -> Vec<Probe> {
        (0..pages)
            .map(|page| Probe {
                target: TargetId(0),
                addr: Addr(page * 4096),
                result: CheckResult::Unknown,
            })
            .collect()
    }

    /// Clears the idle bit of a frame, as the kernel does after an access.
    pub(in crate::idle) fn clear_idle_bit(root: &Path, pfn: u64) {
        let path = root.join("sys/kernel/mm/page_idle/bitmap");
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut word = [0; 8];
        file.read_exact_at(&mut word, pfn / 64 * 8).unwrap();
        let word = u64::from_ne_bytes(word) & !(1 << (pfn % 64));
        file.write_all_at(&word.to_ne_bytes(), pfn / 64 * 8).unwrap();
    }

    fn seen(probes: &[Probe]) -> Vec<CheckResult> {
        probes.iter().map(|probe| probe.result).collect()
    }

    #[test]
    fn probe_reports_accessed_idle_and_unknown_frames() {
        // Two frames on an LRU list, one on none, and an absent page.
        let pagemap = [PRESENT | 3, PRESENT | 4, PRESENT | 5, 0];
        let root = machine(&pagemap, &[0, 0, 0, LRU, LRU, 0]);
        let (mut tracker, processes) = (Idle::new(root.path()).unwrap(), processes());
        let mut probes = probes(4);
        tracker.prepare(&processes, &probes);
        clear_idle_bit(root.path(), 3);
        tracker.check(&processes, &mut probes);
        assert_eq!(
            seen(&probes),
            [
                CheckResult::Accessed,
                CheckResult::Idle,
                CheckResult::Unknown,
                CheckResult::Idle
            ]
        );
    }

    #[test]
    fn large_folio_has_one_bit() {
        // A folio of four frames from frame 64 on: its bit is in the second word.
        let mut flags = vec![0; 64];
        flags.extend([LRU | HEAD, TAIL, TAIL, TAIL]);
        let root = machine(&[PRESENT | 66, PRESENT | 67], &flags);
        let (mut tracker, processes) = (Idle::new(root.path()).unwrap(), processes());
        let mut probes = probes(2);
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        assert_eq!(seen(&probes), [CheckResult::Idle, CheckResult::Idle]);
        clear_idle_bit(root.path(), 64);
        tracker.check(&processes, &mut probes);
        assert_eq!(seen(&probes), [CheckResult::Accessed, CheckResult::Accessed]);
    }

    #[test]
    fn unreadable_pagemap_is_unknown() {
        let root = machine(&[PRESENT | 1, 0], &[LRU; 4]);
        let (mut tracker, processes) = (Idle::new(root.path()).unwrap(), processes());
        let mut probes = probes(2);
        tracker.prepare(&processes, &probes);
        // A directory can be opened, but not read.
        let pagemap = root.path().join(format!("proc/{}/pagemap", std::process::id()));
        fs::remove_file(&pagemap).unwrap();
        fs::create_dir(&pagemap).unwrap();
        tracker.check(&processes, &mut probes);
        assert_eq!(seen(&probes), [CheckResult::Unknown; 2]);
    }

    #[test]
    fn probe_handles_changed_frame() {
        let root = machine(&[PRESENT | 1, 0, PRESENT | 2], &[LRU; 4]);
        let (mut tracker, processes) = (Idle::new(root.path()).unwrap(), processes());
        let mut probes = probes(3);
        tracker.prepare(&processes, &probes);
        let pagemap = root.path().join(format!("proc/{}/pagemap", std::process::id()));
        words(&pagemap, &[PRESENT | 3, PRESENT | 1, 0]);
        tracker.check(&processes, &mut probes);
        let expected = [CheckResult::Unknown, CheckResult::Accessed, CheckResult::Idle];
        assert_eq!(seen(&probes), expected, "moved, faulted in, paged out");
    }
}

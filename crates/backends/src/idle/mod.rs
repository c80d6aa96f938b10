//! Tracker `idle`: the kernel's idle-page bitmap, per physical page, on kernels built with it.
//!
//! **Prepare** looks up the frame behind each probe and marks it idle: the kernel takes the accessed marks off all that
//! map it, so that shared memory can be told of, too. **Check** asks the bitmap: a frame that is not idle any more was
//! touched, by whoever maps it. A large folio has one bit, that of its first frame; looking splits nothing and moves
//! nothing on the LRU lists. The kernel asks virtual machines as well.
//!
//! What cannot be told is unknown: frames on no LRU list, and probes behind which another frame lies by now (moved by
//! compaction, copied on write).
//!
//! [`Paddr`] looks at the frames themselves, all of the machine's.

mod folios;
mod paddr;

use std::path::{Path, PathBuf};

use thermo_engine::ops::{Probe, Seen};
use thermo_kernel::FileError;
use thermo_kernel::pagemap::{Page, Pagemap};
use thermo_targets::{Process, Processes};

pub use paddr::Paddr;

use self::folios::Folios;
use crate::tracker::Tracker;

/// The tracker.
#[derive(Debug)]
pub struct Idle {
    root: PathBuf,
    folios: Folios,
    /// One for each probe last prepared.
    marks: Vec<Mark>,
}

/// What was found behind a probe when it was prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Frame `pfn`, which is of the folio that begins at `head`.
    Set {
        pfn: u64,
        head: u64,
    },
    /// No page.
    Absent,
    Unknown,
}

impl Idle {
    /// Opens the bitmap of the machine at `root` (`/`).
    ///
    /// # Errors
    /// The kernel has none, or we are not root.
    pub fn new(root: &Path) -> Result<Self, FileError> {
        Ok(Self {
            folios: Folios::open(root)?,
            root: root.to_owned(),
            marks: Vec::new(),
        })
    }

    fn mark_of(&self, page: Page) -> Mark {
        if !page.is_present() {
            return Mark::Absent;
        }
        let found = page.pfn().and_then(|pfn| Some((pfn, self.folios.head_of(pfn)?)));
        found.map_or(Mark::Unknown, |(pfn, head)| Mark::Set { pfn, head })
    }

    fn check_one(&self, process: &Process, marks: &[Mark], probes: &mut [Probe]) {
        let Ok(pagemap) = Pagemap::open(&self.root, process.pid) else {
            return;
        };
        let mut look = self.folios.look();
        for (probe, mark) in probes.iter_mut().zip(marks) {
            // An entry that cannot be read is not one without a page.
            let Ok(page) = pagemap.page(probe.addr) else {
                probe.seen = Seen::Unknown;
                continue;
            };
            probe.seen = match *mark {
                Mark::Absent if page.is_present() => Seen::Accessed,
                Mark::Absent => Seen::Idle,
                Mark::Set { .. } if !page.is_present() => Seen::Idle,
                Mark::Set { pfn, head } if page.pfn() == Some(pfn) => match look.is_idle(head) {
                    true => Seen::Idle,
                    false => Seen::Accessed,
                },
                Mark::Set { .. } | Mark::Unknown => Seen::Unknown,
            };
        }
        // A number that was given to another process in the meantime: what was read is not the target's.
        if !process.is_alive() {
            probes.iter_mut().for_each(|probe| probe.seen = Seen::Unknown);
        }
    }
}

impl Tracker for Idle {
    fn sees_guests(&self) -> bool {
        true
    }

    fn prepare(&mut self, processes: &Processes, probes: &[Probe]) {
        let mut marks = Vec::with_capacity(probes.len());
        for group in probes.chunk_by(|a, b| a.target == b.target) {
            let process = group.first().and_then(|probe| processes.get(&probe.target));
            let pagemap = process.and_then(|process| Pagemap::open(&self.root, process.pid).ok());
            for probe in group {
                let page = pagemap.as_ref().and_then(|pagemap| pagemap.page(probe.addr).ok());
                marks.push(page.map_or(Mark::Unknown, |page| self.mark_of(page)));
            }
        }
        let head = |mark: &Mark| match mark {
            Mark::Set { head, .. } => Some(*head),
            Mark::Absent | Mark::Unknown => None,
        };
        let refused = self.folios.mark(marks.iter().filter_map(head));
        let was_refused = |mark: &&mut Mark| head(mark).is_some_and(|head| refused.contains(&head));
        marks
            .iter_mut()
            .filter(was_refused)
            .for_each(|mark| *mark = Mark::Unknown);
        self.marks = marks;
    }

    fn check(&mut self, processes: &Processes, probes: &mut [Probe]) {
        let mut first = 0;
        for group in probes.chunk_by_mut(|a, b| a.target == b.target) {
            group.iter_mut().for_each(|probe| probe.seen = Seen::Unknown);
            let process = group.first().and_then(|probe| processes.get(&probe.target));
            if let Some(process) = process {
                let marks = self.marks.get(first..first + group.len()).unwrap_or_default();
                self.check_one(process, marks, group);
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

    /// A machine on which our own process has pages 0.. backed as `pagemap` says, by frames of these flags.
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
                seen: Seen::Unknown,
            })
            .collect()
    }

    /// What the kernel does when it finds the frame touched.
    pub(in crate::idle) fn touched(root: &Path, pfn: u64) {
        let path = root.join("sys/kernel/mm/page_idle/bitmap");
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut word = [0; 8];
        file.read_exact_at(&mut word, pfn / 64 * 8).unwrap();
        let word = u64::from_ne_bytes(word) & !(1 << (pfn % 64));
        file.write_all_at(&word.to_ne_bytes(), pfn / 64 * 8).unwrap();
    }

    fn seen(probes: &[Probe]) -> Vec<Seen> {
        probes.iter().map(|probe| probe.seen).collect()
    }

    #[test]
    fn touched_frames_are_accessed_the_others_idle_and_the_rest_unknown() {
        // Two frames on a list, one on none, and no page.
        let pagemap = [PRESENT | 3, PRESENT | 4, PRESENT | 5, 0];
        let root = machine(&pagemap, &[0, 0, 0, LRU, LRU, 0]);
        let (mut tracker, processes) = (Idle::new(root.path()).unwrap(), processes());
        let mut probes = probes(4);
        tracker.prepare(&processes, &probes);
        touched(root.path(), 3);
        tracker.check(&processes, &mut probes);
        assert_eq!(
            seen(&probes),
            [Seen::Accessed, Seen::Idle, Seen::Unknown, Seen::Idle]
        );
    }

    #[test]
    fn a_large_folio_has_one_mark() {
        // A folio of four frames, from the 64th on: its marks are in the second word.
        let mut flags = vec![0; 64];
        flags.extend([LRU | HEAD, TAIL, TAIL, TAIL]);
        let root = machine(&[PRESENT | 66, PRESENT | 67], &flags);
        let (mut tracker, processes) = (Idle::new(root.path()).unwrap(), processes());
        let mut probes = probes(2);
        tracker.prepare(&processes, &probes);
        tracker.check(&processes, &mut probes);
        assert_eq!(seen(&probes), [Seen::Idle, Seen::Idle]);
        touched(root.path(), 64);
        tracker.check(&processes, &mut probes);
        assert_eq!(seen(&probes), [Seen::Accessed, Seen::Accessed]);
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let root = machine(&[PRESENT | 1, 0], &[LRU; 4]);
        let (mut tracker, processes) = (Idle::new(root.path()).unwrap(), processes());
        let mut probes = probes(2);
        tracker.prepare(&processes, &probes);
        // A folder can be opened, but not read.
        let pagemap = root.path().join(format!("proc/{}/pagemap", std::process::id()));
        fs::remove_file(&pagemap).unwrap();
        fs::create_dir(&pagemap).unwrap();
        tracker.check(&processes, &mut probes);
        assert_eq!(seen(&probes), [Seen::Unknown; 2]);
    }

    #[test]
    fn what_lies_behind_an_address_may_change() {
        let root = machine(&[PRESENT | 1, 0, PRESENT | 2], &[LRU; 4]);
        let (mut tracker, processes) = (Idle::new(root.path()).unwrap(), processes());
        let mut probes = probes(3);
        tracker.prepare(&processes, &probes);
        let pagemap = root.path().join(format!("proc/{}/pagemap", std::process::id()));
        words(&pagemap, &[PRESENT | 3, PRESENT | 1, 0]);
        tracker.check(&processes, &mut probes);
        let expected = [Seen::Unknown, Seen::Accessed, Seen::Idle];
        assert_eq!(seen(&probes), expected, "moved, faulted in, paged out");
    }
}

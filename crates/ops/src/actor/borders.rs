//! Whether runs lie in one mapping: what is true of one of them may be of its neighbours there, and tells nothing of other
//! mappings.

use std::path::{Path, PathBuf};

use thermo_core::{Addr, AddrRange};
use thermo_sys::maps::{self, MapsFile};

/// The mappings of a process, looked up as they are needed.
pub(super) struct Borders {
    root: PathBuf,
    pid: u32,
    /// Opened when it is first asked.
    file: Option<MapsFile>,
    /// All there are, where the kernel does not answer for one address.
    all: Option<Vec<AddrRange>>,
    /// The one that was asked for last.
    last: AddrRange,
}

impl Borders {
    /// Those of process `pid` of the machine at `root`.
    pub(super) fn of(root: &Path, pid: u32) -> Self {
        Self {
            root: root.to_owned(),
            pid,
            file: None,
            all: None,
            last: AddrRange::default(),
        }
    }

    /// Whether what lies from `start` to `end` is one mapping's.
    pub(super) fn is_of_one(&mut self, start: Addr, end: Addr) -> bool {
        if !self.last.contains(start) {
            self.last = self.at(start).unwrap_or_default();
        }
        self.last.contains(start) && end <= self.last.end
    }

    fn at(&mut self, addr: Addr) -> Option<AddrRange> {
        if self.all.is_none() {
            if self.file.is_none() {
                self.file = MapsFile::open(&self.root, self.pid).ok();
            }
            if let Some(Ok(found)) = self.file.as_ref().map(|file| file.at(addr)) {
                return found;
            }
            // A process that is gone, or may not be asked, has none: there each run is by itself.
            let all = maps::read(&self.root, self.pid).unwrap_or_default();
            self.all = Some(all.into_iter().map(|mapping| mapping.range).collect());
        }
        let all = self.all.as_ref()?;
        let nth = all.partition_point(|mapping| mapping.end <= addr);
        all.get(nth).filter(|mapping| mapping.contains(addr)).copied()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn what_crosses_a_border_is_of_two() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let text = "1000-3000 rw-p 00000000 00:00 0 \n3000-5000 rw-s 00000000 00:01 9 /dev/zero\n8000-9000 rw-p 00000000 00:00 0 \n";
        std::fs::write(root.path().join("proc/7/maps"), text).unwrap();
        let mut borders = Borders::of(root.path(), 7);
        for (start, end, one) in [
            (0x1000, 0x3000, true),
            (0x2000, 0x4000, false),
            (0x3000, 0x5000, true),
            (0x4000, 0x9000, false),
            (0x6000, 0x7000, false),
            (0x8000, 0x9000, true),
            (0x1000, 0x2000, true),
            (0xa000, 0xb000, false),
        ] {
            assert_eq!(
                borders.is_of_one(Addr(start), Addr(end)),
                one,
                "{start:x}-{end:x}"
            );
        }
        assert!(!Borders::of(root.path(), 8).is_of_one(Addr(0x1000), Addr(0x2000)));
    }
}

//! Which mappings of a process are meant.

use std::path::Path;

use thermo_kernel::maps::{self, Mapping};
use thermo_kernel::proc::ProcError;
use thermo_units::AddrRange;

/// Which mappings are meant. The default is all but devices' and the kernel's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// What of them lies here.
    pub range: Option<AddrRange>,
    /// Those whose name holds one of these words (`[heap]`, `libc.so`); empty: any name, or none.
    pub names: Vec<String>,
}

impl Selection {
    /// What of the mappings of process `pid` of the machine at `root` (`/`) is meant, ascending, each by itself.
    ///
    /// # Errors
    /// The process is gone, or may not be looked at.
    pub fn ranges(&self, root: &Path, pid: u32) -> Result<Vec<AddrRange>, ProcError> {
        let mappings = maps::read(root, pid)?;
        Ok(mappings.iter().filter_map(|mapping| self.of(mapping)).collect())
    }

    fn of(&self, mapping: &Mapping) -> Option<AddrRange> {
        let named = self.names.is_empty() || self.names.iter().any(|name| mapping.name.contains(name));
        let touchable = !mapping.is_device() && !mapping.is_kernel_made();
        if !named || !touchable {
            return None;
        }
        match &self.range {
            Some(range) => mapping.range.intersection(range),
            None => Some(mapping.range),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn process(maps: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        std::fs::write(root.path().join("proc/7/maps"), maps).unwrap();
        root
    }

    #[test]
    fn mappings_are_chosen_by_name_and_place() {
        let root = process(
            "1000-3000 r-xp 00000000 08:01 11 /usr/lib/libc.so.6\n\
             5000-9000 rw-p 00000000 00:00 0 [heap]\n\
             a000-b000 rw-s 00000000 00:05 12 /dev/dri/card0\n\
             c000-d000 r-xp 00000000 00:00 0 [vdso]\n",
        );
        let chosen = |selection: Selection| selection.ranges(root.path(), 7).unwrap();
        let (libc, heap) = (AddrRange::new(0x1000, 0x3000), AddrRange::new(0x5000, 0x9000));
        assert_eq!(chosen(Selection::default()), [libc, heap]);
        let names = vec!["[heap]".to_owned()];
        assert_eq!(chosen(Selection { names, range: None }), [heap]);
        let range = Some(AddrRange::new(0x2000, 0x6000));
        let parts = [AddrRange::new(0x2000, 0x3000), AddrRange::new(0x5000, 0x6000)];
        assert_eq!(
            chosen(Selection {
                range,
                ..Selection::default()
            }),
            parts
        );
    }
}

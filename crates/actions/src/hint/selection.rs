//! Selects mappings of a process.

use std::path::Path;

use thermo_kernel::maps::{self, Mapping};
use thermo_kernel::proc::ProcError;
use thermo_units::AddrRange;

/// Selects mappings of a process. Mappings of devices and of the kernel are never selected; the default
/// selects all others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Only addresses in this range.
    pub range: Option<AddrRange>,
    /// Only mappings whose name contains one of these strings (`[heap]`, `libc.so`); empty: all mappings.
    pub names: Vec<String>,
}

impl Selection {
    /// The selected ranges of process `pid` of the machine at `root` (`/`), ascending, one per mapping.
    ///
    /// # Errors
    /// The process is gone, or its mappings may not be read.
    pub fn ranges(&self, root: &Path, pid: u32) -> Result<Vec<AddrRange>, ProcError> {
        let mappings = maps::read(root, pid)?;
        Ok(mappings
            .iter()
            .filter_map(|mapping| self.select(mapping))
            .collect())
    }

    fn select(&self, mapping: &Mapping) -> Option<AddrRange> {
        let named = self.names.is_empty() || self.names.iter().any(|name| mapping.name.contains(name));
        let selectable = !mapping.is_device() && !mapping.is_special();
        if !named || !selectable {
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
    fn selection_filters_by_name_and_range() {
        let root = process(
            "1000-3000 r-xp 00000000 08:01 11 /usr/lib/libc.so.6\n\
             5000-9000 rw-p 00000000 00:00 0 [heap]\n\
             a000-b000 rw-s 00000000 00:05 12 /dev/dri/card0\n\
             c000-d000 r-xp 00000000 00:00 0 [vdso]\n",
        );
        let selected = |selection: Selection| selection.ranges(root.path(), 7).unwrap();
        let (libc, heap) = (AddrRange::new(0x1000, 0x3000), AddrRange::new(0x5000, 0x9000));
        assert_eq!(selected(Selection::default()), [libc, heap]);
        let names = vec!["[heap]".to_owned()];
        assert_eq!(selected(Selection { names, range: None }), [heap]);
        let range = Some(AddrRange::new(0x2000, 0x6000));
        let parts = [AddrRange::new(0x2000, 0x3000), AddrRange::new(0x5000, 0x6000)];
        assert_eq!(
            selected(Selection {
                range,
                ..Selection::default()
            }),
            parts
        );
    }
}

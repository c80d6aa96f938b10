//! Free memory of the machine, compared with a watermark.

use std::path::{Path, PathBuf};

use thermo_kernel::meminfo;
use thermo_units::{Bytes, Nanos};

use super::{Source, SourceError};

/// Monitors the memory available without swapping (`MemAvailable`).
#[derive(Debug)]
pub struct FreeMemory {
    root: PathBuf,
    min: Bytes,
}

impl FreeMemory {
    /// Pressure: less than `min` is available.
    ///
    /// # Errors
    /// `/proc/meminfo` cannot be read.
    pub fn new(root: &Path, min: Bytes) -> Result<Self, SourceError> {
        meminfo::read(root)?;
        Ok(Self {
            root: root.to_owned(),
            min,
        })
    }
}

impl Source for FreeMemory {
    fn name(&self) -> String {
        format!(
            "free memory below {} ({})",
            self.min,
            self.root.join("proc/meminfo").display()
        )
    }

    fn check(&mut self, _now: Nanos) -> Result<Option<String>, SourceError> {
        let available = meminfo::read(&self.root)?.available;
        Ok((available < self.min).then(|| format!("{available} available, less than {}", self.min)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn free_memory_reports_pressure_below_watermark() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let path = root.path().join("proc/meminfo");
        std::fs::write(&path, "MemTotal: 100 kB\nMemAvailable: 10 kB\n").unwrap();
        let mut source = FreeMemory::new(root.path(), Bytes::kib(10)).unwrap();
        assert_eq!(source.check(Nanos::ZERO).unwrap(), None);
        std::fs::write(&path, "MemTotal: 100 kB\nMemAvailable: 9 kB\n").unwrap();
        let detail = source.check(Nanos::ZERO).unwrap().unwrap();
        assert_eq!(detail, "9.00 KiB available, less than 10.0 KiB");
    }
}

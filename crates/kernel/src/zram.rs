//! zram: a block device in compressed memory, and swap on our own device
//! (Documentation/admin-guide/blockdev/zram.rst).

use std::path::{Path, PathBuf};

use thermo_units::Bytes;

use crate::file::{self, FileError};
use crate::leftovers::{self, Leftover, Note, Until};
use crate::swap;

/// Memory use of a device (`mm_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MmStat {
    /// Uncompressed size of the stored data, with same-filled pages.
    pub orig_data: Bytes,
    /// Compressed size of the stored data; pages stored raw count in full.
    pub compr_data: Bytes,
    /// Memory that the device occupies, with overhead.
    pub mem_used: Bytes,
    /// Number of same-filled pages: they occupy no memory.
    pub same_pages: u64,
    /// Number of pages stored raw, because they did not compress.
    pub huge_pages: u64,
}

/// True if devices can be added (the module is loaded or built in).
#[must_use]
pub fn exists(root: &Path) -> bool {
    root.join("sys/class/zram-control/hot_add").exists()
}

/// The memory that all devices of the machine at `root` occupy; zero if there are none.
///
/// # Errors
/// Fails if a device that still exists cannot be read.
pub fn mem_used(root: &Path) -> Result<Bytes, FileError> {
    total(root).map(|stat| stat.mem_used)
}

/// The memory use of all devices of the machine at `root`; zero if there are none.
///
/// # Errors
/// Fails if a device that still exists cannot be read.
pub fn total(root: &Path) -> Result<MmStat, FileError> {
    let mut total = MmStat::default();
    for zram in devices(root) {
        match zram.mm_stat(root) {
            Ok(stat) => {
                total.orig_data += stat.orig_data;
                total.mem_used += stat.mem_used;
            }
            // The device was removed meanwhile.
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// The number of writes that all devices of the machine at `root` have refused since they were added: the
/// limit of memory was reached (`mem_limit`), or no memory was free. `None` if there is no device, or if one
/// cannot be read.
#[must_use]
pub fn failed_writes(root: &Path) -> Option<u64> {
    let failed = |zram: Zram| {
        let text = file::text(&zram.file(root, "io_stat")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let devices = devices(root);
    (!devices.is_empty()).then(|| devices.into_iter().map(failed).sum())?
}

/// All devices of the machine at `root`. Without block devices there is no zram either.
fn devices(root: &Path) -> Vec<Zram> {
    let Ok(devices) = std::fs::read_dir(root.join("sys/block")) else {
        return Vec::new();
    };
    let id_of = |name: &str| name.strip_prefix("zram").and_then(|id| id.parse().ok());
    let ids = devices.filter_map(|device| id_of(device.ok()?.file_name().to_str()?));
    ids.map(|id| Zram { id }).collect()
}

/// A zram device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zram {
    /// Its number: `/dev/zramN`.
    pub id: u32,
}

impl Zram {
    /// Adds a device: reading `hot_add` adds one.
    ///
    /// # Errors
    /// Fails if the module is not loaded (`modprobe zram`), or without permission.
    pub fn add(root: &Path) -> Result<Self, FileError> {
        let id = file::number(&root.join("sys/class/zram-control/hot_add"))?;
        Ok(Self {
            id: u32::try_from(id).unwrap_or(u32::MAX),
        })
    }

    /// The device node.
    #[must_use]
    pub fn device(self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.id))
    }

    fn file(self, root: &Path, name: &str) -> PathBuf {
        root.join(format!("sys/block/zram{}", self.id)).join(name)
    }

    /// Sets the capacity, in uncompressed bytes. Memory is used only as the device fills.
    ///
    /// # Errors
    /// Fails if the device has a size already.
    pub fn set_size(self, root: &Path, size: Bytes) -> Result<(), FileError> {
        file::write(&self.file(root, "disksize"), &size.0.to_string())
    }

    /// Limits the memory that the device may take; zero: no limit. A full device refuses writes: the pages
    /// stay in the swap cache.
    ///
    /// # Errors
    /// Fails if the device no longer exists.
    pub fn set_mem_limit(self, root: &Path, limit: Bytes) -> Result<(), FileError> {
        file::write(&self.file(root, "mem_limit"), &limit.0.to_string())
    }

    /// The memory use of the device.
    ///
    /// # Errors
    /// Fails if the device no longer exists.
    pub fn mm_stat(self, root: &Path) -> Result<MmStat, FileError> {
        let path = self.file(root, "mm_stat");
        let text = file::text(&path)?;
        let fields: Vec<u64> = text
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [orig, compressed, used, more @ ..] = fields.as_slice() else {
            return Err(FileError::malformed(&path, text.trim(), "three numbers or more"));
        };
        Ok(MmStat {
            orig_data: Bytes(*orig),
            compr_data: Bytes(*compressed),
            mem_used: Bytes(*used),
            // Old kernels lack the last columns: huge_pages came with Linux 4.19.
            same_pages: more.get(2).copied().unwrap_or(0),
            huge_pages: more.get(4).copied().unwrap_or(0),
        })
    }

    /// The names of the compression algorithms that the device can use, and the one in use
    /// (`comp_algorithm`). The latter is `None` if the kernel marks none.
    ///
    /// # Errors
    /// Fails if the device no longer exists.
    pub fn algorithms(self, root: &Path) -> Result<(Vec<String>, Option<String>), FileError> {
        let text = file::text(&self.file(root, "comp_algorithm"))?;
        let unmarked = |word: &str| word.trim_matches(['[', ']']).to_owned();
        let current = text.split_ascii_whitespace().find(|word| word.starts_with('['));
        let names = text.split_ascii_whitespace().map(unmarked).collect();
        Ok((names, current.map(unmarked)))
    }

    /// Selects the compression algorithm by the kernel's name, such as `lzo-rle`. Only before the size is
    /// set.
    ///
    /// # Errors
    /// Fails if the kernel lacks the algorithm, or if the device has a size already.
    pub fn set_algorithm(self, root: &Path, name: &str) -> Result<(), FileError> {
        file::write(&self.file(root, "comp_algorithm"), name)
    }

    /// Discards the contents and the size.
    ///
    /// # Errors
    /// Fails while the device is in use.
    pub fn reset(self, root: &Path) -> Result<(), FileError> {
        file::write(&self.file(root, "reset"), "1")
    }

    /// Removes the device.
    ///
    /// # Errors
    /// Fails while the device is in use.
    pub fn remove(self, root: &Path) -> Result<(), FileError> {
        file::write(
            &root.join("sys/class/zram-control/hot_remove"),
            &self.id.to_string(),
        )
    }
}

/// Swap on our own zram device. [`ZramSwap::remove`] removes it. Otherwise dropping it removes it, and prints
/// errors to stderr. A note lists it in case the process is killed.
#[derive(Debug)]
pub struct ZramSwap {
    zram: Zram,
    root: PathBuf,
    is_enabled: bool,
    removed: bool,
    note: Option<Note>,
}

impl ZramSwap {
    /// Adds a device of capacity `size`, and enables it as swap with the highest priority.
    ///
    /// # Errors
    /// Fails if one of the steps fails; the steps before it are undone.
    pub fn create(root: &Path, size: Bytes) -> Result<Self, FileError> {
        // Before the device exists: this process may be killed in between.
        let note = leftovers::note_change(root, "zram-swap", unused_leftover(next(root)))?;
        let zram = Zram::add(root)?;
        // From here on an error drops the guard, which undoes the previous steps.
        let mut guard = Self {
            zram,
            root: root.to_owned(),
            is_enabled: false,
            removed: false,
            note: None,
        };
        let noted = note.write(&[swap_leftover(zram)]);
        guard.note = Some(note);
        noted?;
        zram.set_size(root, size)?;
        swap::format(&zram.device(), size)?;
        swap::on(&zram.device(), 32_767)?;
        guard.is_enabled = true;
        Ok(guard)
    }

    /// The device.
    #[must_use]
    pub const fn zram(&self) -> Zram {
        self.zram
    }

    /// The memory use of the device.
    ///
    /// # Errors
    /// Fails if the device no longer exists.
    pub fn mm_stat(&self) -> Result<MmStat, FileError> {
        self.zram.mm_stat(&self.root)
    }

    /// Reads the contents back to memory, and removes the device.
    ///
    /// # Errors
    /// Fails if memory does not suffice; the device then stays in use.
    pub fn remove(mut self) -> Result<(), FileError> {
        self.removed = true;
        let removed = self.try_remove();
        if removed.is_err() {
            self.note.take().into_iter().for_each(Note::keep);
        }
        removed
    }

    fn try_remove(&self) -> Result<(), FileError> {
        if self.is_enabled {
            swap::off(&self.zram.device())?;
        }
        file::while_busy(|| self.zram.reset(&self.root))?;
        file::while_busy(|| self.zram.remove(&self.root))
    }
}

impl Drop for ZramSwap {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        if let Err(err) = self.try_remove() {
            self.note.take().into_iter().for_each(Note::keep);
            let (device, undo) = (self.zram.device(), undo_commands(self.zram));
            crate::message!(
                "cannot remove the swap on {}: {err}. Remove it with: {undo}",
                device.display()
            );
        }
    }
}

/// The shell commands that undo [`ZramSwap::create`].
fn undo_commands(zram: Zram) -> String {
    let (device, id) = (zram.device(), zram.id);
    format!(
        "swapoff {}; echo {id} > /sys/class/zram-control/hot_remove",
        device.display()
    )
}

/// The device that `hot_add` adds next: the kernel takes the lowest free number.
fn next(root: &Path) -> Zram {
    let is_free = |id: &u32| !root.join(format!("sys/block/zram{id}")).exists();
    Zram {
        id: (0..).find(is_free).unwrap_or_default(),
    }
}

/// The entry for a device that is about to be added. Its command does no harm if another program added the
/// device: the kernel removes none that is in use.
fn unused_leftover(zram: Zram) -> Leftover {
    let (device, id) = (zram.device(), zram.id);
    let description = format!(
        "{}, not in use: `echo {id} > /sys/class/zram-control/hot_remove` removes it",
        device.display()
    );
    let until = Until::RemovalOf(device);
    Leftover { until, description }
}

/// The entry for a device that is there.
fn swap_leftover(zram: Zram) -> Leftover {
    let (device, undo) = (zram.device(), undo_commands(zram));
    let description = format!("swap on {}: `{undo}` removes it", device.display());
    let until = Until::RemovalOf(device);
    Leftover { until, description }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("sys/class/zram-control")).unwrap();
        std::fs::create_dir_all(root.path().join("sys/block/zram3")).unwrap();
        std::fs::write(root.path().join("sys/class/zram-control/hot_add"), "3\n").unwrap();
        root
    }

    #[test]
    fn device_is_added_and_read() {
        let root = machine();
        assert!(exists(root.path()));
        let zram = Zram::add(root.path()).unwrap();
        assert_eq!(zram.device(), Path::new("/dev/zram3"));
        let text = "  4096      64   12288        0    12288        5        0        0        0\n";
        std::fs::write(root.path().join("sys/block/zram3/mm_stat"), text).unwrap();
        let stat = zram.mm_stat(root.path()).unwrap();
        assert_eq!((stat.orig_data, stat.mem_used), (Bytes(4096), Bytes(12288)));
        assert_eq!(
            (stat.compr_data, stat.same_pages, stat.huge_pages),
            (Bytes(64), 5, 0)
        );
    }

    #[test]
    fn marked_algorithm_is_current() {
        let root = machine();
        let zram = Zram { id: 3 };
        std::fs::write(
            root.path().join("sys/block/zram3/comp_algorithm"),
            "lzo [lz4] zstd \n",
        )
        .unwrap();
        let (names, current) = zram.algorithms(root.path()).unwrap();
        assert_eq!(names, ["lzo", "lz4", "zstd"]);
        assert_eq!(current.as_deref(), Some("lz4"));
    }

    #[test]
    fn device_is_noted_before_it_is_added() {
        let root = machine();
        std::fs::create_dir_all(root.path().join("sys/block/zram0")).unwrap();
        let left = unused_leftover(next(root.path()));
        assert_eq!(left.until, Until::RemovalOf("/dev/zram1".into()));
        assert!(left.description.contains("`echo 1 > "), "{}", left.description);
        if !leftovers::folder(root.path()).is_some_and(|folder| folder.starts_with(root.path())) {
            println!("SKIP: without root, the notes are outside the folder of this test");
            return;
        }
        // Where no note can be written, no device is added.
        std::fs::write(root.path().join("run"), "no folder").unwrap();
        let error = ZramSwap::create(root.path(), Bytes::mib(1)).unwrap_err();
        assert!(error.to_string().contains("run/thermocline"), "{error}");
    }

    #[test]
    fn mem_used_sums_all_devices() {
        let root = machine();
        assert_eq!(
            mem_used(root.path()).unwrap(),
            Bytes::ZERO,
            "a device that is being removed"
        );
        let block = root.path().join("sys/block");
        for (name, text) in [
            ("zram3", "9 9 4096 0 0 0\n"),
            ("zram10", "9 9 8192 0 0 0\n"),
            ("vda", ""),
        ] {
            std::fs::create_dir_all(block.join(name)).unwrap();
            std::fs::write(block.join(name).join("mm_stat"), text).unwrap();
        }
        assert_eq!(mem_used(root.path()).unwrap(), Bytes(12288));
        assert_eq!(mem_used(Path::new("/nowhere")).unwrap(), Bytes::ZERO);
    }

    #[test]
    fn create_without_module_names_missing_file() {
        let root = tempfile::tempdir().unwrap();
        let message = ZramSwap::create(root.path(), Bytes::mib(1))
            .unwrap_err()
            .to_string();
        assert!(!exists(root.path()) && message.contains("hot_add"), "{message}");
    }
}

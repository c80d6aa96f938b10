//! zram: a block device in compressed memory, and swap on one of our own (Documentation/admin-guide/blockdev/zram.rst).

use std::path::{Path, PathBuf};

use thermo_units::Bytes;

use crate::file::{self, FileError};
use crate::leftovers::{self, Leftover, Note};
use crate::swap;

/// What a device holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MmStat {
    /// Stored in it.
    pub orig_data: Bytes,
    /// What it takes of the machine's memory, all told.
    pub mem_used: Bytes,
}

/// True when devices can be added (the module is loaded or built in).
#[must_use]
pub fn exists(root: &Path) -> bool {
    root.join("sys/class/zram-control/hot_add").exists()
}

/// What all devices of the machine at `root` take of its memory; nothing where there is none.
///
/// # Errors
/// When one that stays there does not tell.
pub fn mem_used(root: &Path) -> Result<Bytes, FileError> {
    // Without block devices there is no zram either.
    let Ok(devices) = std::fs::read_dir(root.join("sys/block")) else {
        return Ok(Bytes::ZERO);
    };
    let number = |name: &str| name.strip_prefix("zram").and_then(|id| id.parse().ok());
    let ids = devices.filter_map(|device| number(device.ok()?.file_name().to_str()?));
    let mut all = 0;
    for id in ids {
        match (Zram { id }).mm_stat(root) {
            Ok(stat) => all += stat.mem_used.0,
            // It was taken away meanwhile.
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Bytes(all))
}

/// A zram device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zram {
    /// Its number: `/dev/zramN`.
    pub id: u32,
}

impl Zram {
    /// Adds a device. Reading `hot_add` is what adds it.
    ///
    /// # Errors
    /// When the module is not loaded (`modprobe zram`), or we may not.
    pub fn add(root: &Path) -> Result<Self, FileError> {
        let id = file::number(&root.join("sys/class/zram-control/hot_add"))?;
        Ok(Self {
            id: u32::try_from(id).unwrap_or(u32::MAX),
        })
    }

    /// The device's file.
    #[must_use]
    pub fn device(self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.id))
    }

    fn file(self, root: &Path, name: &str) -> PathBuf {
        root.join(format!("sys/block/zram{}", self.id)).join(name)
    }

    /// Sets how much can be stored in it, uncompressed. Memory is taken only as it fills.
    ///
    /// # Errors
    /// When it has a size already.
    pub fn set_size(self, root: &Path, size: Bytes) -> Result<(), FileError> {
        file::write(&self.file(root, "disksize"), &size.0.to_string())
    }

    /// What it holds.
    ///
    /// # Errors
    /// When it is gone.
    pub fn mm_stat(self, root: &Path) -> Result<MmStat, FileError> {
        let path = self.file(root, "mm_stat");
        let text = file::text(&path)?;
        let fields: Vec<u64> = text
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [orig, _compressed, used, ..] = fields.as_slice() else {
            return Err(FileError::malformed(&path, text.trim(), "three numbers or more"));
        };
        let (orig_data, mem_used) = (Bytes(*orig), Bytes(*used));
        Ok(MmStat { orig_data, mem_used })
    }

    /// Throws away what it holds, and its size.
    ///
    /// # Errors
    /// While it is in use.
    pub fn reset(self, root: &Path) -> Result<(), FileError> {
        file::write(&self.file(root, "reset"), "1")
    }

    /// Takes the device away.
    ///
    /// # Errors
    /// While it is in use.
    pub fn remove(self, root: &Path) -> Result<(), FileError> {
        file::write(
            &root.join("sys/class/zram-control/hot_remove"),
            &self.id.to_string(),
        )
    }
}

/// Swap on a zram device of our own. It is given back by [`ZramSwap::remove`]; when that was not called, dropping it
/// tries and complains on stderr. A note tells of it should we be killed.
#[derive(Debug)]
pub struct ZramSwap {
    zram: Zram,
    root: PathBuf,
    on: bool,
    removed: bool,
    note: Option<Note>,
}

impl ZramSwap {
    /// Adds a device that can hold `size`, and swaps to it before any other space.
    ///
    /// # Errors
    /// When one of the steps fails; those before it are undone.
    pub fn create(root: &Path, size: Bytes) -> Result<Self, FileError> {
        let zram = Zram::add(root)?;
        // From here on a failure drops the guard, which undoes what was done.
        let mut guard = Self {
            zram,
            root: root.to_owned(),
            on: false,
            removed: false,
            note: note(root, zram),
        };
        zram.set_size(root, size)?;
        swap::format(&zram.device(), size)?;
        swap::on(&zram.device(), 32_767)?;
        guard.on = true;
        Ok(guard)
    }

    /// The device.
    #[must_use]
    pub const fn zram(&self) -> Zram {
        self.zram
    }

    /// What it holds.
    ///
    /// # Errors
    /// When it is gone.
    pub fn mm_stat(&self) -> Result<MmStat, FileError> {
        self.zram.mm_stat(&self.root)
    }

    /// Brings back to memory what lies in it, and takes the device away.
    ///
    /// # Errors
    /// When memory is too short to take it back; the device stays in use then.
    pub fn remove(mut self) -> Result<(), FileError> {
        self.removed = true;
        let removed = self.try_remove();
        if removed.is_err() {
            self.note.take().into_iter().for_each(Note::stay);
        }
        removed
    }

    fn try_remove(&self) -> Result<(), FileError> {
        if self.on {
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
            self.note.take().into_iter().for_each(Note::stay);
            let (device, back) = (self.zram.device(), give_back(self.zram));
            eprintln!(
                "the swap on {} is left behind: {err}. Give it back with: {back}",
                device.display()
            );
        }
    }
}

/// The commands that undo what [`ZramSwap::create`] does.
fn give_back(zram: Zram) -> String {
    let (device, id) = (zram.device(), zram.id);
    format!(
        "swapoff {}; echo {id} > /sys/class/zram-control/hot_remove",
        device.display()
    )
}

/// Noted as soon as there is a device. A machine without a place for notes is no reason not to go on.
fn note(root: &Path, zram: Zram) -> Option<Note> {
    let folder = leftovers::folder(root)?;
    let note = Note::new(root, &folder, "zram-swap").ok()?;
    let (device, back) = (zram.device(), give_back(zram));
    let what = format!("swap on {}: `{back}` gives it back", device.display());
    note.say(&[Leftover { within: None, what }]).ok()?;
    Some(note)
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
    fn a_device_is_added_and_asked() {
        let root = machine();
        assert!(exists(root.path()));
        let zram = Zram::add(root.path()).unwrap();
        assert_eq!(zram.device(), Path::new("/dev/zram3"));
        let text = "  4096      64   12288        0    12288        5        0        0        0\n";
        std::fs::write(root.path().join("sys/block/zram3/mm_stat"), text).unwrap();
        let stat = zram.mm_stat(root.path()).unwrap();
        assert_eq!((stat.orig_data, stat.mem_used), (Bytes(4096), Bytes(12288)));
    }

    #[test]
    fn the_memory_of_all_devices_is_summed_up() {
        let root = machine();
        assert_eq!(
            mem_used(root.path()).unwrap(),
            Bytes::ZERO,
            "one that is just going"
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
    fn without_the_module_the_missing_file_is_named() {
        let root = tempfile::tempdir().unwrap();
        let told = ZramSwap::create(root.path(), Bytes::mib(1))
            .unwrap_err()
            .to_string();
        assert!(!exists(root.path()) && told.contains("hot_add"), "{told}");
    }
}

//! Notes of system state that a killed (`kill -9`) process leaves behind, such as swap on zram or huge-page
//! flags.
//!
//! A feature that changes system state keeps a [`Note`] of it, a small file in [`folder`]. The note is
//! removed when it is dropped, unless [`Note::keep`] was called. [`find_orphaned`] returns the notes whose
//! writers died. Nothing is undone here: a note holds sentences that say what to do. Each entry can
//! name a process or a mount with which the change ends.
//!
//! Format: a head line `thermo-leftovers 1 KIND PID STARTTIME` of the writer, then one line for each entry:
//! `PID STARTTIME sentence`, `mount MOUNTPOINT sentence`, `device PATH sentence` or `- - sentence`. The file
//! is always replaced as a whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::file::FileError;
use crate::mountinfo::{self, MountPoint};
use crate::stat::{self, Stat};

const HEAD: &str = "thermo-leftovers 1";
/// Extension of a note that is not complete yet.
const UNFINISHED: &str = "new";

/// A process, identified by pid and start time, so that reuse of the pid is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId {
    /// Its pid.
    pub pid: u32,
    /// Its start time in clock ticks since boot.
    pub starttime: u64,
}

impl ProcessId {
    /// The live process that has `pid` now.
    #[must_use]
    pub fn read(root: &Path, pid: u32) -> Option<Self> {
        let stat = stat::read(root, pid).ok().filter(Stat::process_lives)?;
        let starttime = stat.starttime;
        Some(Self { pid, starttime })
    }

    /// Whether the process still exists. True where that cannot be read.
    #[must_use]
    pub fn lives(&self, root: &Path) -> bool {
        match stat::read(root, self.pid) {
            Ok(stat) => stat.process_lives() && stat.starttime == self.starttime,
            Err(error) => !error.is_gone(),
        }
    }

    fn parse(pid: &str, starttime: &str) -> Option<Self> {
        Some(Self {
            pid: pid.parse().ok()?,
            starttime: starttime.parse().ok()?,
        })
    }
}

/// How long a change stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// Until someone undoes it.
    Undone,
    /// Until this process exits.
    ExitOf(ProcessId),
    /// Until nothing is mounted at this directory.
    Unmount(MountPoint),
    /// Until this device node is gone. Its path has no blanks.
    RemovalOf(PathBuf),
}

impl Until {
    /// The two words that begin an entry's line.
    fn words(&self) -> String {
        match self {
            Self::Undone => "- -".to_owned(),
            Self::ExitOf(id) => format!("{} {}", id.pid, id.starttime),
            Self::Unmount(point) => format!("mount {point}"),
            Self::RemovalOf(device) => format!("device {}", device.display()),
        }
    }

    fn parse(first: &str, second: &str) -> Self {
        match (first, ProcessId::parse(first, second)) {
            ("mount", _) => Self::Unmount(MountPoint::from_escaped(second)),
            ("device", _) => Self::RemovalOf(PathBuf::from(second)),
            (_, Some(id)) => Self::ExitOf(id),
            _ => Self::Undone,
        }
    }

    /// Whether the change has ended. False where that cannot be read.
    fn is_over(&self, root: &Path) -> bool {
        match self {
            Self::Undone => false,
            Self::ExitOf(id) => !id.lives(root),
            Self::Unmount(point) => mountinfo::is_mounted(root, point).is_ok_and(|mounted| !mounted),
            Self::RemovalOf(device) => {
                let path = root.join(device.strip_prefix("/").unwrap_or(device));
                path.try_exists().is_ok_and(|exists| !exists)
            }
        }
    }
}

/// One change that would stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// How long it stays.
    pub until: Until,
    /// One line: the change, and how to undo it.
    pub description: String,
}

/// A note of the changes that are in effect. The file is removed when the note is dropped.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
    head: String,
    is_kept: bool,
}

/// A note whose writer died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanedNote {
    /// The file. Remove it when everything is undone.
    pub path: PathBuf,
    /// The feature that wrote it.
    pub kind: String,
    /// The process that wrote it.
    pub writer: ProcessId,
    /// The changes still in effect, as sentences.
    pub leftovers: Vec<String>,
}

/// The folder of notes: `/run/thermocline` for root, the session's runtime folder for others; `None` without
/// one.
#[must_use]
pub fn folder(root: &Path) -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(root.join("run/thermocline"));
    }
    std::env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("thermocline"))
}

impl Note {
    /// A note of feature `kind` (letters and dashes) in `folder`, by this process. The file is created by the
    /// first [`Note::write`].
    ///
    /// # Errors
    /// Fails if the folder cannot be created.
    pub fn new(root: &Path, folder: &Path, kind: &str) -> Result<Self, FileError> {
        static NOTES: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(folder).map_err(|error| FileError::new(folder, error))?;
        let pid = std::process::id();
        let starttime = ProcessId::read(root, pid).map_or(0, |owner| owner.starttime);
        let nr = NOTES.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            path: folder.join(format!("{kind}-{pid}-{nr}")),
            head: format!("{HEAD} {kind} {pid} {starttime}\n"),
            is_kept: false,
        })
    }

    /// Replaces the contents by `leftovers`; removes the file if `leftovers` is empty.
    ///
    /// # Errors
    /// Fails if the file cannot be written; the previous contents then remain.
    pub fn write(&self, leftovers: &[Leftover]) -> Result<(), FileError> {
        if leftovers.is_empty() {
            self.remove_file();
            return Ok(());
        }
        let line = |leftover: &Leftover| {
            let description = leftover.description.replace('\n', " ");
            format!("{} {description}\n", leftover.until.words())
        };
        let text: String = std::iter::once(self.head.clone())
            .chain(leftovers.iter().map(line))
            .collect();
        let new = self.path.with_extension(UNFINISHED);
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path));
        written.map_err(|error| FileError::new(&self.path, error))
    }

    /// Drops the note but keeps the file, because the changes could not be undone.
    pub fn keep(mut self) {
        self.is_kept = true;
    }

    fn remove_file(&self) {
        let removed = fs::remove_file(&self.path);
        if removed.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
            // A note without entries is removed by the next reader. If this fails, too, changes that were
            // undone are reported after our exit, which is harmless.
            let _ = fs::write(&self.path, &self.head);
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if !self.is_kept {
            self.remove_file();
        }
    }
}

/// A note of one change by feature `kind`, to be written before the change is made.
///
/// # Errors
/// No note can be written. The change must then not be made: nothing would list it after a kill.
pub fn note_change(root: &Path, kind: &str, change: Leftover) -> Result<Note, FileError> {
    let folder = folder(root).ok_or_else(|| FileError::Io {
        path: "$XDG_RUNTIME_DIR/thermocline".into(),
        source: std::io::Error::other("XDG_RUNTIME_DIR is not set, so there is no folder for notes"),
    })?;
    let note = Note::new(root, &folder, kind)?;
    note.write(&[change])?;
    Ok(note)
}

/// The notes in `folder` whose writers died, with the entries that are still in effect. Notes without such
/// entries are removed.
#[must_use]
pub fn find_orphaned(root: &Path, folder: &Path) -> Vec<OrphanedNote> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let (unfinished, paths): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| is_unfinished(path));
    for path in unfinished.iter().filter(|path| !is_written_now(root, path)) {
        // Another process may have removed it already.
        let _ = fs::remove_file(path);
    }
    let mut all = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let Some(note) = parse(root, path, &text).filter(|note| !note.writer.lives(root)) else {
            continue;
        };
        if note.leftovers.is_empty() {
            // Another process may have removed it already.
            let _ = fs::remove_file(&note.path);
        } else {
            all.push(note);
        }
    }
    all
}

/// Whether this is a new version of a note. Its writer makes a change only after the version has become the
/// note.
fn is_unfinished(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == UNFINISHED)
}

/// Whether the process lives whose pid is in the name. The contents may be incomplete.
fn is_written_now(root: &Path, path: &Path) -> bool {
    let stem = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let pid = stem.rsplit('-').nth(1).and_then(|pid| pid.parse().ok());
    pid.is_some_and(|pid| ProcessId::read(root, pid).is_some())
}

fn parse(root: &Path, path: PathBuf, text: &str) -> Option<OrphanedNote> {
    let mut lines = text.lines();
    let words: Vec<&str> = lines
        .next()?
        .strip_prefix(HEAD)?
        .split_ascii_whitespace()
        .collect();
    let [kind, pid, starttime] = words[..] else {
        return None;
    };
    let entry = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let (first, second, sentence) = (parts.next()?, parts.next()?, parts.next()?);
        let is_over = Until::parse(first, second).is_over(root);
        (!is_over).then(|| sentence.to_owned())
    };
    Some(OrphanedNote {
        path,
        kind: kind.to_owned(),
        writer: ProcessId::parse(pid, starttime)?,
        leftovers: lines.filter_map(entry).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn unfinished_note_of_killed_writer_is_removed() {
        let (root, dir) = (Path::new("/"), tempfile::tempdir().unwrap());
        let own = format!("flags-{}-0.new", std::process::id());
        // Larger than any pid.
        let killed = ["flags-4194305-0.new", "zram-swap-4194305-script.new", "flags.new"];
        for name in killed.iter().copied().chain([own.as_str()]) {
            fs::write(dir.path().join(name), "thermo-lef").unwrap();
        }
        assert_eq!(find_orphaned(root, dir.path()), []);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert!(dir.path().join(own).exists());
    }

    fn leftover(until: Until, description: &str) -> Leftover {
        Leftover {
            until,
            description: description.to_owned(),
        }
    }

    #[test]
    fn entry_of_device_ends_with_the_device() {
        let (root, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let until = Until::RemovalOf("/dev/zram3".into());
        let text = format!("{HEAD} zram-swap 4194305 1\n{} a device\n", until.words());
        fs::create_dir(root.path().join("dev")).unwrap();
        let device = root.path().join("dev/zram3");
        fs::write(&device, "").unwrap();
        let note = dir.path().join("zram-swap-4194305-0");
        fs::write(&note, text).unwrap();
        assert_eq!(find_orphaned(root.path(), dir.path())[0].leftovers, ["a device"]);
        fs::remove_file(device).unwrap();
        assert_eq!(find_orphaned(root.path(), dir.path()), []);
        assert!(!note.exists());
    }

    #[test]
    fn process_whose_state_cannot_be_read_counts_as_alive() {
        let root = tempfile::tempdir().unwrap();
        let process = ProcessId { pid: 7, starttime: 1 };
        assert!(!process.lives(root.path()));
        fs::create_dir_all(root.path().join("proc/7/stat")).unwrap();
        assert!(process.lives(root.path()));
    }

    #[test]
    fn note_exists_until_dropped_unless_kept() {
        let (root, dir) = (Path::new("/"), tempfile::tempdir().unwrap());
        let note = Note::new(root, dir.path(), "flags").unwrap();
        note.write(&[leftover(Until::Undone, "a flag stays")]).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(find_orphaned(root, dir.path()), [], "the writer is alive");
        note.write(&[]).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        note.write(&[leftover(Until::Undone, "a flag stays")]).unwrap();
        drop(note);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let note = Note::new(root, dir.path(), "flags").unwrap();
        note.write(&[leftover(Until::Undone, "a flag stays")]).unwrap();
        note.keep();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn orphaned_note_lists_changes_still_in_effect() {
        let (root, dir) = (Path::new("/"), tempfile::tempdir().unwrap());
        let us = ProcessId::read(root, std::process::id()).unwrap();
        let later = us.starttime + 1;
        let text = format!(
            "{HEAD} flags {} {later}\n{} {} one\n{} {later} two\n- - three\n",
            us.pid, us.pid, us.starttime, us.pid
        );
        fs::write(dir.path().join("flags-1-0"), text).unwrap();
        fs::write(dir.path().join("other"), "something else\n").unwrap();
        let all = find_orphaned(root, dir.path());
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].kind.as_str(), &all[0].leftovers),
            ("flags", &vec!["one".to_owned(), "three".to_owned()])
        );
        let over = format!("{HEAD} flags {} {later}\n{} {later} two\n", us.pid, us.pid);
        fs::write(dir.path().join("flags-1-0"), over).unwrap();
        assert_eq!(find_orphaned(root, dir.path()), []);
        assert!(!dir.path().join("flags-1-0").exists(), "no entry is left");
        assert!(dir.path().join("other").exists());
    }

    #[test]
    fn mount_is_left_until_unmounted() {
        let (root, notes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mounts = root.path().join("proc/self/mountinfo");
        fs::create_dir_all(mounts.parent().unwrap()).unwrap();
        let point = MountPoint::new(Path::new("/run/my damon"));
        let note = Note::new(root.path(), notes.path(), "fs-mount").unwrap();
        note.write(&[leftover(Until::Unmount(point), "a mount")]).unwrap();
        note.keep();
        let is_found = || !find_orphaned(root.path(), notes.path()).is_empty();
        assert!(is_found(), "without a list of mounts it may be mounted");
        let mount = "40 29 0:36 / /run/my\\040damon rw,nosuid - fuse.thermo thermo rw\n";
        fs::write(&mounts, mount).unwrap();
        assert!(is_found());
        fs::write(&mounts, "29 1 8:1 / / rw - ext4 /dev/sda1 rw\n").unwrap();
        assert!(!is_found());
        assert_eq!(fs::read_dir(notes.path()).unwrap().count(), 0);
    }
}

//! What a `kill -9` of us leaves behind, noted down before it can happen.
//!
//! Whoever switches something on keeps a [`Note`] of it, a small file in [`folder`], which is gone when the note is
//! dropped, unless it is told to [`stay`](Note::stay). [`found`] tells the notes whose writers died without doing so. Nothing is undone here: a note has the
//! sentences a person needs, and names the process within which a thing lives, so that it is over with that.
//!
//! A note is a text: a head `thermo-leftovers 1 KIND PID STARTTIME` of the writer, then a line for each thing,
//! `PID STARTTIME sentence` or `- - sentence`. It is replaced as a whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::file::FileError;
use crate::stat::{self, Stat};

const HEAD: &str = "thermo-leftovers 1";

/// A process, named for good by its number and when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since boot.
    pub starttime: u64,
}

impl Owner {
    /// The process `pid` there is now.
    #[must_use]
    pub fn of(root: &Path, pid: u32) -> Option<Self> {
        let stat = stat::read(root, pid).ok().filter(Stat::process_lives)?;
        let starttime = stat.starttime;
        Some(Self { pid, starttime })
    }

    /// Whether it lives.
    #[must_use]
    pub fn lives(&self, root: &Path) -> bool {
        Self::of(root, self.pid).as_ref() == Some(self)
    }

    fn parse(pid: &str, starttime: &str) -> Option<Self> {
        Some(Self {
            pid: pid.parse().ok()?,
            starttime: starttime.parse().ok()?,
        })
    }
}

/// One thing that would be left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The process with which it ends; `None` when it stays until somebody undoes it.
    pub within: Option<Owner>,
    /// What it is, and the way out: one line.
    pub what: String,
}

/// A note of what we have switched on. It is taken away when dropped.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
    head: String,
    stays: bool,
}

/// The note of a writer that died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The file, to be removed when all is undone.
    pub path: PathBuf,
    /// Which feature wrote it.
    pub kind: String,
    /// Who did.
    pub writer: Owner,
    /// What is left.
    pub left: Vec<String>,
}

/// Where notes are: `/run/thermocline` for root, the folder of the session for others; nothing without one.
#[must_use]
pub fn folder(root: &Path) -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(root.join("run/thermocline"));
    }
    std::env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("thermocline"))
}

impl Note {
    /// A note of feature `kind` (letters and dashes) in `folder`, by this process. There is no file until something is
    /// said.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(root: &Path, folder: &Path, kind: &str) -> Result<Self, FileError> {
        static NOTES: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(folder).map_err(|error| FileError::new(folder, error))?;
        let us = std::process::id();
        let starttime = Owner::of(root, us).map_or(0, |owner| owner.starttime);
        let nr = NOTES.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            path: folder.join(format!("{kind}-{us}-{nr}")),
            head: format!("{HEAD} {kind} {us} {starttime}\n"),
            stays: false,
        })
    }

    /// Notes that `left` is what would be left now, in place of what was noted before.
    ///
    /// # Errors
    /// When it cannot be written; then what was noted before stands.
    pub fn say(&self, left: &[Leftover]) -> Result<(), FileError> {
        if left.is_empty() {
            self.clear();
            return Ok(());
        }
        let line = |thing: &Leftover| {
            let within = thing
                .within
                .map_or("- -".to_owned(), |of| format!("{} {}", of.pid, of.starttime));
            format!("{within} {}\n", thing.what.replace('\n', " "))
        };
        let text: String = std::iter::once(self.head.clone())
            .chain(left.iter().map(line))
            .collect();
        let new = self.path.with_extension("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path));
        written.map_err(|error| FileError::new(&self.path, error))
    }

    /// Ends it, but lets stand what it says: it could not be undone.
    pub fn stay(mut self) {
        self.stays = true;
    }

    fn clear(&self) {
        // It may never have been there; one that stays is told of as long as we live no more.
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if !self.stays {
            self.clear();
        }
    }
}

/// The notes in `folder` whose writers died, with what is still there of what they noted. Those of which nothing is
/// left are removed.
#[must_use]
pub fn found(root: &Path, folder: &Path) -> Vec<Found> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let Some(note) = parse(root, path, &text).filter(|note| !note.writer.lives(root)) else {
            continue;
        };
        if note.left.is_empty() {
            // Another look may have removed it already.
            let _ = fs::remove_file(&note.path);
        } else {
            all.push(note);
        }
    }
    all
}

fn parse(root: &Path, path: PathBuf, text: &str) -> Option<Found> {
    let mut lines = text.lines();
    let words: Vec<&str> = lines
        .next()?
        .strip_prefix(HEAD)?
        .split_ascii_whitespace()
        .collect();
    let [kind, pid, starttime] = words[..] else {
        return None;
    };
    let thing = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let (pid, starttime, what) = (parts.next()?, parts.next()?, parts.next()?);
        let is_over = Owner::parse(pid, starttime).is_some_and(|within| !within.lives(root));
        (!is_over).then(|| what.to_owned())
    };
    Some(Found {
        path,
        kind: kind.to_owned(),
        writer: Owner::parse(pid, starttime)?,
        left: lines.filter_map(thing).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn thing(within: Option<Owner>, what: &str) -> Leftover {
        Leftover {
            within,
            what: what.to_owned(),
        }
    }

    #[test]
    fn a_note_lasts_as_long_as_it_is_kept_and_its_writer_is_no_leftover() {
        let (root, dir) = (Path::new("/"), tempfile::tempdir().unwrap());
        let note = Note::new(root, dir.path(), "flags").unwrap();
        note.say(&[thing(None, "a flag stays")]).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(found(root, dir.path()), [], "we live");
        note.say(&[]).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        note.say(&[thing(None, "a flag stays")]).unwrap();
        drop(note);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let note = Note::new(root, dir.path(), "flags").unwrap();
        note.say(&[thing(None, "a flag stays")]).unwrap();
        note.stay();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_dead_writer_left_is_told_until_its_process_is_gone_too() {
        let (root, dir) = (Path::new("/"), tempfile::tempdir().unwrap());
        let us = Owner::of(root, std::process::id()).unwrap();
        let later = us.starttime + 1;
        let text = format!(
            "{HEAD} flags {} {later}\n{} {} one\n{} {later} two\n- - three\n",
            us.pid, us.pid, us.starttime, us.pid
        );
        fs::write(dir.path().join("flags-1-0"), text).unwrap();
        fs::write(dir.path().join("other"), "something else\n").unwrap();
        let all = found(root, dir.path());
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].kind.as_str(), &all[0].left),
            ("flags", &vec!["one".to_owned(), "three".to_owned()])
        );
        let over = format!("{HEAD} flags {} {later}\n{} {later} two\n", us.pid, us.pid);
        fs::write(dir.path().join("flags-1-0"), over).unwrap();
        assert_eq!(found(root, dir.path()), []);
        assert!(!dir.path().join("flags-1-0").exists(), "nothing is left of it");
        assert!(dir.path().join("other").exists());
    }
}

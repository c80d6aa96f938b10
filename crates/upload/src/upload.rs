//! Moves files from the spool to the store, one after the other.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use thermo_term::interrupt;
use thermo_units::Bytes;

use crate::spool::Spool;
use crate::store::Store;

/// Wait after the first failure. Each further one doubles it.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// The request to end is looked for so often.
const POLL: Duration = Duration::from_millis(100);

/// Moves files.
pub struct Uploader {
    spool: Spool,
    store: Store,
    failures: Failures,
}

/// Failures in a row.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    last: String,
}

impl Failures {
    /// Adds a failure. Returns the wait until the next try, and whether the reason is a new one.
    fn add(&mut self, why: String) -> (Duration, bool) {
        let factor = 1 << self.count.min(16);
        let wait = SHORTEST_WAIT.saturating_mul(factor).min(LONGEST_WAIT);
        self.count += 1;
        let is_new = self.last != why;
        self.last = why;
        (wait, is_new)
    }
}

/// Files that were moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Moved {
    files: u64,
    bytes: u64,
}

impl Uploader {
    /// Moves files from `spool` to `store`.
    pub fn new(spool: Spool, store: Store) -> Self {
        Self {
            spool,
            store,
            failures: Failures::default(),
        }
    }

    /// Moves all files that wait now. Returns how many are left, after the first failure was reported.
    ///
    /// # Errors
    /// The spool cannot be read.
    pub fn move_all(&mut self) -> anyhow::Result<usize> {
        let (_, result) = self.move_waiting();
        if let Err(why) = result {
            thermo_kernel::message!("thermo-upload: {why}");
        }
        let left = self.spool.waiting().context("cannot read the files that wait")?;
        Ok(left.len())
    }

    /// Uploads until interrupted, scanning every `every`.
    pub fn run(&mut self, every: Duration) {
        while !interrupt::requested() {
            let (moved, result) = self.move_waiting();
            let wait = match result {
                Ok(()) => {
                    if std::mem::take(&mut self.failures).count > 0 {
                        thermo_kernel::message!("thermo-upload: {} takes files again", self.store.address());
                    }
                    every
                }
                Err(why) => {
                    let (wait, is_new) = self.failures.add(why);
                    if is_new {
                        let why = &self.failures.last;
                        thermo_kernel::message!("thermo-upload: {why}; files wait, and it is tried again");
                    }
                    wait
                }
            };
            if moved.files > 0 {
                let (files, bytes) = (moved.files, Bytes(moved.bytes));
                thermo_kernel::message!(
                    "thermo-upload: {files} files, {bytes}, moved to {}",
                    self.store.address()
                );
            }
            rest(wait);
        }
    }

    /// Moves the files that wait, the oldest first, until one fails.
    fn move_waiting(&self) -> (Moved, Result<(), String>) {
        let mut moved = Moved::default();
        let result = self.try_to_move(&mut moved);
        (moved, result)
    }

    fn try_to_move(&self, moved: &mut Moved) -> Result<(), String> {
        let of_spool = |error| format!("cannot read the files that wait: {error}");
        for file in self.spool.waiting().map_err(of_spool)? {
            if interrupt::requested() {
                break;
            }
            let Some(content) = self.spool.read(&file).map_err(of_spool)? else {
                continue;
            };
            self.store.put(&file.name, content.bytes.clone())?;
            moved.files += 1;
            moved.bytes += content.bytes.len() as u64;
            let remove = self.spool.remove(&file, &content);
            remove.map_err(|error| format!("cannot remove {}, which is stored: {error}", file.name))?;
        }
        Ok(())
    }
}

/// Waits, at most until interrupted.
fn rest(time: Duration) {
    let end = Instant::now() + time;
    while !interrupt::requested() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        thread::sleep(left.min(POLL));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::fs;

    use super::*;
    use crate::store::Address;

    const FILE: &str = "date=2026-11-02/cluster=a/n.1.v1.parquet";

    fn uploader(to: &std::path::Path) -> (tempfile::TempDir, Uploader) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "rows").unwrap();
        let spool = Spool::open(folder.path()).unwrap();
        let store = Store::open(&Address::Folder(to.to_owned()), None, false).unwrap();
        (folder, Uploader::new(spool, store))
    }

    #[test]
    fn files_are_moved() {
        let to = tempfile::tempdir().unwrap();
        let (from, mut uploader) = uploader(to.path());
        let (moved, result) = uploader.move_waiting();
        assert_eq!((moved, result), (Moved { files: 1, bytes: 4 }, Ok(())));
        assert_eq!(fs::read_to_string(to.path().join(FILE)).unwrap(), "rows");
        assert_eq!(fs::read_dir(from.path()).unwrap().count(), 0);
        assert_eq!(uploader.move_all().unwrap(), 0);
    }

    #[test]
    fn file_stays_when_the_store_fails() {
        let to = tempfile::tempdir().unwrap();
        let (from, mut uploader) = uploader(to.path());
        // A file is where the store needs a folder.
        fs::write(to.path().join("date=2026-11-02"), "").unwrap();
        assert_eq!(uploader.move_all().unwrap(), 1);
        assert_eq!(fs::read_to_string(from.path().join(FILE)).unwrap(), "rows");
        fs::remove_file(to.path().join("date=2026-11-02")).unwrap();
        assert_eq!(uploader.move_all().unwrap(), 0);
        assert_eq!(fs::read_to_string(to.path().join(FILE)).unwrap(), "rows");
    }

    #[test]
    fn waits_double_up_to_five_minutes() {
        let mut failures = Failures::default();
        let waits: Vec<u64> = (0..12).map(|_| failures.add("away".into()).0.as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert!(!failures.add("away".into()).1);
        assert!(failures.add("full".into()).1);
    }
}

//! For tests: root folders that know one process, by the entries of its pagemap.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;

use tempfile::TempDir;
use thermo_kernel::pagemap::Pagemap;

/// The number of the process.
pub(crate) const PID: u32 = 7;

/// A folder in which the pagemap of [`PID`] has so many `pages`, each with the `entry` of its number.
pub(crate) fn root(pages: u64, entry: impl Fn(u64) -> u64) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let process = root.path().join(format!("proc/{PID}"));
    let entries: Vec<u8> = (0..pages).flat_map(|page| entry(page).to_ne_bytes()).collect();
    fs::create_dir_all(&process).unwrap();
    fs::write(process.join("pagemap"), entries).unwrap();
    root
}

/// The same, opened; an open file outlives its folder.
pub(crate) fn pagemap(pages: u64, entry: impl Fn(u64) -> u64) -> Pagemap {
    Pagemap::open(root(pages, entry).path(), PID).unwrap()
}

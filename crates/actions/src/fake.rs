//! Test support: a root folder with one process and its pagemap.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;

use tempfile::TempDir;
use thermo_kernel::pagemap::Pagemap;

/// The process id.
pub(crate) const PID: u32 = 7;

/// Makes a root folder where the pagemap of [`PID`] has `pages` entries, computed by `entry` from the page
/// number.
pub(crate) fn root(pages: u64, entry: impl Fn(u64) -> u64) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let process = root.path().join(format!("proc/{PID}"));
    let entries: Vec<u8> = (0..pages).flat_map(|page| entry(page).to_ne_bytes()).collect();
    fs::create_dir_all(&process).unwrap();
    fs::write(process.join("pagemap"), entries).unwrap();
    root
}

/// The same pagemap, opened. The open file outlives its folder.
pub(crate) fn pagemap(pages: u64, entry: impl Fn(u64) -> u64) -> Pagemap {
    Pagemap::open(root(pages, entry).path(), PID).unwrap()
}

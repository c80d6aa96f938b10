//! For tests: root folders that tell how short memory is.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::Path;

use thermo_kernel::psi;

/// Has tasks of the machine at `root` have lost so many microseconds to memory since boot.
pub(crate) fn lose_time(root: &Path, us: u64) {
    let file = psi::system_file(root);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(
        file,
        format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n"),
    )
    .unwrap();
}

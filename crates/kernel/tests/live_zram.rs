//! Swap on our own zram device: created and removed without a trace.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use thermo_kernel::zram::ZramSwap;
use thermo_kernel::{leftovers, swap, zram};
use thermo_units::Bytes;

/// Whether a note lists zram swap of this process.
fn is_noted(root: &Path) -> bool {
    let Some(Ok(notes)) = leftovers::folder(root).map(std::fs::read_dir) else {
        return false;
    };
    let ours = format!("zram-swap-{}-", std::process::id());
    let mut names = notes.flatten().map(|note| note.file_name());
    names.any(|name| name.to_string_lossy().starts_with(&ours))
}

#[test]
fn zram_swap_is_created_and_removed() {
    let root = Path::new("/");
    if !zram::exists(root) {
        eprintln!("SKIP: cannot add zram devices (the module is not loaded)");
        return;
    }
    let own = match ZramSwap::create(root, Bytes::mib(16)) {
        Ok(own) => own,
        Err(err) => {
            eprintln!("SKIP: cannot create swap on zram: {err}");
            return;
        }
    };
    let device = own.zram().device();
    let in_use = || swap::read(root).unwrap().iter().any(|swap| swap.path == device);
    assert!(in_use() && is_noted(root));
    own.mm_stat().unwrap();
    own.remove().unwrap();
    assert!(!in_use() && !is_noted(root));
}

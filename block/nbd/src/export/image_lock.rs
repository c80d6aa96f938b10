//! Locks against other programs that use the same image. They are compatible with QEMU's
//! (`block/file-posix.c`).
//!
//! A program holds a shared lock of byte 100 + N for each permission N that it uses, and of byte 200 + N for
//! each that it grants to nobody else. It locks first and checks then, so two programs that start together
//! cannot both succeed. The locks end with the export, and with the process.

use std::fs::File;
use std::io;

use thermo_kernel::ofd_lock;

const USED: u32 = 100;
const DENIED: u32 = 200;

/// Permissions: `BLK_PERM_CONSISTENT_READ`, `BLK_PERM_WRITE` and `BLK_PERM_RESIZE` of QEMU.
const READ: u32 = 0;
const WRITE: u32 = 1;
const RESIZE: u32 = 3;

/// Locks an image for reading, or for reading and writing. Nobody else may write to it then. Returns false if
/// another open file is in conflict.
pub(super) fn lock(file: &File, read_only: bool) -> io::Result<bool> {
    let used = if read_only { &[READ][..] } else { &[READ, WRITE] };
    let denied = &[WRITE, RESIZE][..];
    let bytes = |base, permissions: &[u32]| permissions.iter().map(|one| base + one).collect::<Vec<_>>();
    for byte in [bytes(USED, used), bytes(DENIED, denied)].concat() {
        ofd_lock::share(file, byte)?;
    }
    for byte in [bytes(DENIED, used), bytes(USED, denied)].concat() {
        if ofd_lock::is_locked_elsewhere(file, byte)? {
            return Ok(false);
        }
    }
    Ok(true)
}

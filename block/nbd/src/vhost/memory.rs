//! Guest memory that cannot end the server.
//!
//! The server maps the files that a virtual machine shares. An access to a page that its file does not have
//! any more raises SIGBUS, which ends the server and with it the disks of all other machines. So the files
//! must be unable to lose pages.

use rustix::fs::{SealFlags, fcntl_get_seals, fstatfs};
use vm_memory::{GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion as _};

/// `HUGETLBFS_MAGIC` (statfs(2)).
const HUGETLBFS: u64 = 0x9584_58f6;

/// Guest memory was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum MemoryError {
    #[error(
        "its memory may shrink, which would end the server. Use sealed memory (QEMU: memory-backend-memfd), or --allow-unsealed-memory"
    )]
    Unsealed,
    #[error("its memory has {len} bytes from {offset} of a file that is shorter. Share memory that exists")]
    TooShort { offset: u64, len: u64 },
    #[error(
        "its memory has huge pages, of which the machine may run out, which would end the server. Use memory-backend-memfd without hugetlb, or --allow-unsealed-memory"
    )]
    HugePages,
}

/// Whether no region can lose pages while it is mapped.
pub(super) fn check(memory: &GuestMemoryMmap) -> Result<(), MemoryError> {
    for region in memory.iter() {
        let at = region.file_offset().ok_or(MemoryError::Unsealed)?;
        let (file, offset, len) = (at.file(), at.start(), region.len());
        let seals = fcntl_get_seals(file).map_err(|_| MemoryError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::Unsealed);
        }
        let file_len = file.metadata().map_or(0, |found| found.len());
        if offset.checked_add(len).is_none_or(|end| end > file_len) {
            return Err(MemoryError::TooShort { offset, len });
        }
        // A page of a shared mapping is allocated at its first access.
        if fstatfs(file).is_ok_and(|found| u64::try_from(found.f_type) == Ok(HUGETLBFS)) {
            return Err(MemoryError::HugePages);
        }
    }
    Ok(())
}

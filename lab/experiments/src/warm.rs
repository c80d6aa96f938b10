//! Warm memory: on a virtual machine, free pages may have been given back to the host, and the first run after a
//! big free pays for getting them again. So memory is touched and freed before each run.

use std::hint::black_box;
use std::path::Path;

use thermo_kernel::meminfo;
use thermo_units::{Bytes, PAGE_SIZE};

/// What stays untouched, so that warming never pushes anybody out.
const LEAVE: u64 = 512 << 20;
/// Taken and held together, in pieces: one large piece could not be taken where memory is in part in use.
const PIECE: u64 = 64 << 20;

/// Touches and frees `size` of memory, or what is available less 512 MiB. Returns what was touched.
#[must_use]
pub fn warm(size: Bytes) -> Bytes {
    let free = meminfo::read(Path::new("/")).unwrap_or_default().available;
    let size = size.0.min(free.0.saturating_sub(LEAVE));
    let page = usize::try_from(PAGE_SIZE).unwrap_or(4096);
    let pieces: Vec<Vec<u8>> = (0..size / PIECE)
        .map(|_| {
            let mut piece = vec![0u8; usize::try_from(PIECE).unwrap_or(0)];
            piece.iter_mut().step_by(page).for_each(|byte| *byte = 1);
            piece
        })
        .collect();
    Bytes(black_box(&pieces).len() as u64 * PIECE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_touched_than_asked_for() {
        assert!(warm(Bytes::mib(130)) <= Bytes::mib(130));
        assert_eq!(warm(Bytes::ZERO), Bytes::ZERO);
    }
}

//! Warms memory before a run. On a virtual machine, free pages may have been returned to the host, and the
//! first run that allocates them again is slower. So memory is touched and freed before each run.

use std::hint::black_box;
use std::path::Path;

use thermo_kernel::meminfo;
use thermo_units::{Bytes, PAGE_SIZE};

/// Available memory that stays untouched, so that warming does not cause reclaim.
const RESERVE: u64 = 512 << 20;
/// Size of one allocation. A single large allocation could fail when memory is partly in use.
const CHUNK: u64 = 64 << 20;

/// Touches and frees `size` bytes of memory, at most the available memory minus 512 MiB. Returns the touched
/// bytes.
#[must_use]
pub fn warm(size: Bytes) -> Bytes {
    let free = meminfo::read(Path::new("/")).unwrap_or_default().available;
    let size = size.0.min(free.0.saturating_sub(RESERVE));
    let page = usize::try_from(PAGE_SIZE).unwrap_or(4096);
    let chunks: Vec<Vec<u8>> = (0..size / CHUNK)
        .map(|_| {
            let mut chunk = vec![0u8; usize::try_from(CHUNK).unwrap_or(0)];
            chunk.iter_mut().step_by(page).for_each(|byte| *byte = 1);
            chunk
        })
        .collect();
    Bytes(black_box(&chunks).len() as u64 * CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_touches_at_most_requested_size() {
        assert!(warm(Bytes::mib(130)) <= Bytes::mib(130));
        assert_eq!(warm(Bytes::ZERO), Bytes::ZERO);
    }
}

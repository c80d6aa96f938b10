//! Holes of an export, as far as its file system reports them (`SEEK_DATA`, `SEEK_HOLE`).

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::Export;
use crate::protocol::reply::Extent;

impl Export {
    /// Whether the range is a hole, as far as the file system reports.
    pub(crate) fn is_hole(&self, offset: u64, length: u64) -> bool {
        match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => data >= offset + length,
            // ENXIO: no data until the end. Other errors: unknown.
            Err(errno) => errno == Errno::NXIO,
        }
    }

    /// The allocation of a range, as at most `most` extents. If the storage does not report holes, all is
    /// allocated.
    pub(crate) fn extents(&self, offset: u64, length: u32, most: usize) -> Vec<Extent> {
        let end = offset + u64::from(length);
        let mut extents = Vec::new();
        let mut at = offset;
        while at < end && extents.len() < most {
            let (next, is_hole) = self.extent_at(at, end);
            let length = u32::try_from(next - at).unwrap_or(u32::MAX);
            extents.push(Extent { length, is_hole });
            at = next;
        }
        extents
    }

    // The end of the extent at `at`, and whether it is a hole.
    fn extent_at(&self, at: u64, end: u64) -> (u64, bool) {
        let seek = |from| seek(&self.file, from);
        match seek(SeekFrom::Data(at)) {
            Ok(data) if data > at => (data.min(end), true),
            Ok(_) => {
                let hole = seek(SeekFrom::Hole(at)).unwrap_or(end);
                (hole.clamp(at + 1, end), false)
            }
            Err(Errno::NXIO) => (end, true),
            Err(_) => (end, false),
        }
    }
}

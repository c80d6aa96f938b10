//! Features and configuration space of the virtio block device (virtio 1.2, section 5.2).

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::export::Export;

/// Bytes of a sector. All addresses are in sectors, independent of the block size.
pub(super) const SECTOR: u64 = 512;
/// Maximum number of data segments in a request.
pub(super) const MAX_SEGMENTS: u32 = 126;
/// Maximum number of ranges in one discard or write-zeroes request.
pub(super) const MAX_RANGES: u32 = 32;
/// Maximum sectors in one such range: 1 GiB, so that no range occupies a thread for long.
pub(super) const MAX_RANGE_SECTORS: u32 = 1 << 21;
/// Number of queues. By default, no VMM uses more queues than virtual CPUs.
pub(super) const QUEUES: u16 = 64;

/// Features of all disks. Others depend on whether the disk is read-only.
const FEATURES: [u32; 8] = [
    VIRTIO_F_VERSION_1,
    VIRTIO_RING_F_INDIRECT_DESC,
    VIRTIO_RING_F_EVENT_IDX,
    VIRTIO_BLK_F_SEG_MAX,
    VIRTIO_BLK_F_BLK_SIZE,
    VIRTIO_BLK_F_TOPOLOGY,
    VIRTIO_BLK_F_FLUSH,
    VIRTIO_BLK_F_MQ,
];

/// The offered features, as a bit mask.
pub(super) fn features(export: &Export) -> u64 {
    let changes = if export.is_read_only() {
        1 << VIRTIO_BLK_F_RO
    } else {
        1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES
    };
    FEATURES.iter().fold(changes, |bits, feature| bits | 1 << feature)
}

/// Whether the driver negotiated FLUSH. Without it, every write must be on stable storage before its reply.
pub(super) const fn has_flush(acked: u64) -> bool {
    acked & 1 << VIRTIO_BLK_F_FLUSH != 0
}

/// `struct virtio_blk_config`, up to write-zeroes. A partial sector at the end of the export is not exposed.
pub(super) fn config_space(export: &Export) -> Vec<u8> {
    // Physical blocks of 4 KiB (2^3 sectors), alignment offset 0, minimum I/O size 8 sectors.
    let topology = [3, 0, 8, 0, 0, 0, 0, 0];
    let (no_limit, no_geometry) = ([0; 4], [0; 4]);
    let (written_back, unused) = (1, 0);
    let may_unmap = [1, 0, 0, 0];
    [
        &(export.size() / SECTOR).to_le_bytes()[..],
        &no_limit,
        &MAX_SEGMENTS.to_le_bytes(),
        &no_geometry,
        &512_u32.to_le_bytes(),
        &topology,
        &[written_back, unused],
        &QUEUES.to_le_bytes(),
        &MAX_RANGE_SECTORS.to_le_bytes(),
        &MAX_RANGES.to_le_bytes(),
        &8_u32.to_le_bytes(),
        &MAX_RANGE_SECTORS.to_le_bytes(),
        &MAX_RANGES.to_le_bytes(),
        &may_unmap,
    ]
    .concat()
}

/// `size` bytes of the configuration space from `offset`. Newer drivers read beyond its end, which reads as
/// zeros.
pub(super) fn read_config(config_space: &[u8], offset: u32, size: u32) -> Vec<u8> {
    let byte = |at: u32| {
        offset
            .checked_add(at)
            .and_then(|at| config_space.get(at as usize))
    };
    (0..size).map(|at| byte(at).copied().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_units::Bytes;

    #[test]
    fn config_space_has_standard_layout() {
        let export = Export::memory("x", Bytes(1_000_000), false).unwrap();
        let config_space = config_space(&export);
        assert_eq!(config_space.len(), 60);
        let word = |at: u32| u32::from_le_bytes(read_config(&config_space, at, 4).try_into().unwrap());
        assert_eq!((word(0), word(4)), (1953, 0), "whole sectors");
        assert_eq!((word(12), word(20)), (MAX_SEGMENTS, 512));
        assert_eq!(word(32) >> 16, u32::from(QUEUES));
        assert_eq!((word(36), word(40), word(44)), (MAX_RANGE_SECTORS, MAX_RANGES, 8));
        assert_eq!((word(48), word(52), word(56)), (MAX_RANGE_SECTORS, MAX_RANGES, 1));
    }

    #[test]
    fn config_space_reads_zeros_beyond_end() {
        assert_eq!(read_config(&[1, 2, 3], 1, 4), [2, 3, 0, 0]);
        assert_eq!(read_config(&[1, 2, 3], u32::MAX, 2), [0, 0]);
    }

    #[test]
    fn read_only_disk_offers_no_write_features() {
        let read_only = Export::memory("x", Bytes::mib(1), true).unwrap();
        let writable = Export::memory("x", Bytes::mib(1), false).unwrap();
        let difference = features(&read_only) ^ features(&writable);
        assert_eq!(
            difference,
            1 << VIRTIO_BLK_F_RO | 1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES
        );
        assert!(has_flush(features(&writable)) && !has_flush(0));
    }
}

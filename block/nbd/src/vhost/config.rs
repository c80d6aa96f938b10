//! What a virtual machine is told of its disk: the features, and the configuration space (virtio 1.2, section 5.2).

use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::export::Export;

/// Bytes of a sector, whatever the block size: the unit of all addresses.
pub(super) const SECTOR: u64 = 512;
/// Parts of a request that hold data.
pub(super) const MOST_SEGMENTS: u32 = 126;
/// Ranges that one discard or write-zeroes may name.
pub(super) const MOST_RANGES: u32 = 32;
/// Sectors that one such range may have: 1 GiB, so that none keeps a thread for long.
pub(super) const MOST_RANGE_SECTORS: u32 = 1 << 21;
/// Queues that a machine may use: no VMM asks for more by itself than the machine has processors.
pub(super) const QUEUES: u16 = 64;

/// The features all disks have, before the two that depend on whether it may be written.
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

/// The features that are offered, a bit each.
pub(super) fn features(export: &Export) -> u64 {
    let changes = if export.is_read_only() {
        1 << VIRTIO_BLK_F_RO
    } else {
        1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES
    };
    FEATURES.iter().fold(changes, |bits, feature| bits | 1 << feature)
}

/// True when the machine flushes by itself; else every write has to be on stable storage before it is answered.
pub(super) const fn flushes(acked: u64) -> bool {
    acked & 1 << VIRTIO_BLK_F_FLUSH != 0
}

/// `struct virtio_blk_config`, up to write-zeroes. What is shorter than a sector at the end of the export is not shown.
pub(super) fn space(export: &Export) -> Vec<u8> {
    // Physical blocks of 4 KiB (2^3 sectors) that begin with the disk, and the smallest transfer that is done well.
    let topology = [3, 0, 8, 0, 0, 0, 0, 0];
    let (no_limit, no_geometry) = ([0; 4], [0; 4]);
    let (written_back, unused) = (1, 0);
    let may_unmap = [1, 0, 0, 0];
    [
        &(export.size() / SECTOR).to_le_bytes()[..],
        &no_limit,
        &MOST_SEGMENTS.to_le_bytes(),
        &no_geometry,
        &512_u32.to_le_bytes(),
        &topology,
        &[written_back, unused],
        &QUEUES.to_le_bytes(),
        &MOST_RANGE_SECTORS.to_le_bytes(),
        &MOST_RANGES.to_le_bytes(),
        &8_u32.to_le_bytes(),
        &MOST_RANGE_SECTORS.to_le_bytes(),
        &MOST_RANGES.to_le_bytes(),
        &may_unmap,
    ]
    .concat()
}

/// `size` bytes of it from `offset` on. Newer machines ask for more than there is; that reads as zeros.
pub(super) fn part(space: &[u8], offset: u32, size: u32) -> Vec<u8> {
    let byte = |at: u32| offset.checked_add(at).and_then(|at| space.get(at as usize));
    (0..size).map(|at| byte(at).copied().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_units::Bytes;

    #[test]
    fn the_space_has_the_layout_of_the_standard() {
        let export = Export::memory("x", Bytes(1_000_000), false).unwrap();
        let space = space(&export);
        assert_eq!(space.len(), 60);
        let word = |at: u32| u32::from_le_bytes(part(&space, at, 4).try_into().unwrap());
        assert_eq!((word(0), word(4)), (1953, 0), "whole sectors");
        assert_eq!((word(12), word(20)), (MOST_SEGMENTS, 512));
        assert_eq!(word(32) >> 16, u32::from(QUEUES));
        assert_eq!(
            (word(36), word(40), word(44)),
            (MOST_RANGE_SECTORS, MOST_RANGES, 8)
        );
        assert_eq!(
            (word(48), word(52), word(56)),
            (MOST_RANGE_SECTORS, MOST_RANGES, 1)
        );
    }

    #[test]
    fn beyond_its_end_are_zeros() {
        assert_eq!(part(&[1, 2, 3], 1, 4), [2, 3, 0, 0]);
        assert_eq!(part(&[1, 2, 3], u32::MAX, 2), [0, 0]);
    }

    #[test]
    fn what_may_not_be_written_offers_no_way_to() {
        let read_only = Export::memory("x", Bytes::mib(1), true).unwrap();
        let writable = Export::memory("x", Bytes::mib(1), false).unwrap();
        let differ = features(&read_only) ^ features(&writable);
        assert_eq!(
            differ,
            1 << VIRTIO_BLK_F_RO | 1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES
        );
        assert!(flushes(features(&writable)) && !flushes(0));
    }
}

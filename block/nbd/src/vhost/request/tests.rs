#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use thermo_pool::{Pool, Pools, Settings};
use thermo_units::Bytes;
use virtio_queue::desc::RawDescriptor;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::mock::MockSplitQueue;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use crate::vhost::config::MAX_SEGMENTS;

/// Guest memory layout: the queue at 0, then header, ranges, status, and data at `DATA`.
const MEMORY: usize = 4 << 20;
const HEADER_AT: u64 = 0x8000;
const RANGES_AT: u64 = 0x9000;
const STATUS_AT: u64 = 0xa000;
const DATA: u64 = 1 << 20;
/// Initial status byte, to detect whether it was written.
const UNWRITTEN: u8 = 0xee;
const WRITABLE: u16 = 2;
const QUEUE: u16 = 256;
const DISK: u64 = 2 << 20;
const BUDGET: u64 = 1 << 20;

struct Guest {
    memory: GuestMemoryMmap,
    export: Export,
    pools: Pools,
    pool: Pool,
    counters: Counters,
}

impl Guest {
    fn new(read_only: bool) -> Self {
        let pools = Pools::new(Bytes(BUDGET), Settings::default());
        let pool = pools.open("x", Bytes(CHUNK_SIZE as u64)).unwrap();
        Self {
            memory: GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)]).unwrap(),
            export: Export::memory("a disk with a long name", Bytes(DISK + 100), read_only).unwrap(),
            pools,
            pool,
            counters: Counters::default(),
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    fn header(&self, kind: u32, sector: u64) {
        self.put(
            HEADER_AT,
            &[&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat(),
        );
    }

    // Sends a request of `parts` (address, length, flags). `corrupt` may change the queue first.
    fn submit_with(
        &self,
        parts: &[(u64, u32, u16)],
        corrupt: impl Fn(&MockSplitQueue<GuestMemoryMmap>),
    ) -> (u32, u8) {
        self.put(STATUS_AT, &[UNWRITTEN]);
        let queue = MockSplitQueue::new(&self.memory, QUEUE);
        let parts: Vec<_> = parts
            .iter()
            .map(|&(addr, len, flags)| RawDescriptor::from(Descriptor::new(addr, len, flags, 0)))
            .collect();
        let chain = queue.build_desc_chain(&parts).unwrap();
        corrupt(&queue);
        let disk = Disk {
            export: &self.export,
            writes_through: true,
            counters: &self.counters,
        };
        let written = Chain::read(&self.memory, chain).map_or(0, |chain| {
            disk.execute(chain, &mut |len| self.pool.try_acquire(len))
        });
        (written, self.get(STATUS_AT, 1)[0])
    }

    fn submit(&self, parts: &[(u64, u32, u16)]) -> (u32, u8) {
        self.submit_with(parts, |_| {})
    }

    // Sends a request with `ranges` as data.
    fn change_ranges(&self, kind: u32, ranges: &[(u64, u32, u32)]) -> u8 {
        self.header(kind, 0);
        let bytes: Vec<u8> = ranges
            .iter()
            .flat_map(|(sector, count, flags)| {
                [
                    &sector.to_le_bytes()[..],
                    &count.to_le_bytes(),
                    &flags.to_le_bytes(),
                ]
                .concat()
            })
            .collect();
        self.put(RANGES_AT, &bytes);
        let len = u32::try_from(bytes.len()).unwrap();
        self.submit(&[header_part(), (RANGES_AT, len, 0), status_part()])
            .1
    }
}

fn header_part() -> (u64, u32, u16) {
    (HEADER_AT, 16, 0)
}

fn status_part() -> (u64, u32, u16) {
    (STATUS_AT, 1, WRITABLE)
}

const OK: u8 = VIRTIO_BLK_S_OK as u8;
const IOERR: u8 = VIRTIO_BLK_S_IOERR as u8;
const UNSUPP: u8 = VIRTIO_BLK_S_UNSUPP as u8;

#[test]
fn write_then_read_with_any_segmentation() {
    let guest = Guest::new(false);
    let bytes: Vec<u8> = (0..600 << 10).map(|at| (at % 251) as u8).collect();
    guest.put(DATA, &bytes);
    guest.header(VIRTIO_BLK_T_OUT, 8);
    let whole = u32::try_from(bytes.len()).unwrap();
    // The header in two segments, the data in four, one of odd length and one empty.
    let parts = [
        (HEADER_AT, 5, 0),
        (HEADER_AT + 5, 11, 0),
        (DATA, 4096, 0),
        (DATA + 4096, 0, 0),
        (DATA + 4096, 300_001, 0),
        (DATA + 304_097, whole - 304_097, 0),
        status_part(),
    ];
    assert_eq!(guest.submit(&parts), (1, OK));
    guest.put(DATA, &vec![0; bytes.len()]);
    guest.header(VIRTIO_BLK_T_IN, 8);
    // The last data segment also holds the status byte.
    guest.put(DATA + u64::from(whole), &[UNWRITTEN]);
    let (written, _) = guest.submit(&[
        header_part(),
        (DATA, 777, WRITABLE),
        (DATA + 777, whole - 776, WRITABLE),
    ]);
    assert_eq!(written, whole + 1);
    assert!(guest.get(DATA, bytes.len()) == bytes);
    assert_eq!(guest.get(DATA + u64::from(whole), 1), [OK]);
    assert!(guest.pools.usage().peak.0 <= BUDGET);
    assert_eq!(guest.counters.written.load(Ordering::Relaxed), u64::from(whole));
}

#[test]
fn get_id_returns_name_and_flush_succeeds() {
    let guest = Guest::new(true);
    guest.header(VIRTIO_BLK_T_GET_ID, 0);
    assert_eq!(
        guest.submit(&[header_part(), (DATA, 20, WRITABLE), status_part()]),
        (21, OK)
    );
    assert_eq!(guest.get(DATA, 20), b"a disk with a long n");
    assert_eq!(
        guest.submit(&[header_part(), (DATA, 3, WRITABLE), status_part()]),
        (4, OK)
    );
    guest.header(VIRTIO_BLK_T_FLUSH, 0);
    assert_eq!(guest.submit(&[header_part(), status_part()]), (1, OK));
}

#[test]
fn requests_outside_disk_fail() {
    let guest = Guest::new(false);
    let last = DISK / SECTOR - 1;
    for (sector, len, status) in [
        (last, 512, OK),
        (last, 1024, IOERR),
        (last + 1, 512, IOERR),
        (u64::MAX, 512, IOERR),
        (u64::MAX / SECTOR, 512, IOERR),
        (0, 511, IOERR),
        (0, 0, OK),
    ] {
        guest.header(VIRTIO_BLK_T_IN, sector);
        let read = guest.submit(&[header_part(), (DATA, len, WRITABLE), status_part()]);
        guest.header(VIRTIO_BLK_T_OUT, sector);
        let write = guest.submit(&[header_part(), (DATA, len, 0), status_part()]);
        assert_eq!((read.1, write.1), (status, status), "{sector} {len}");
    }
}

#[test]
fn read_only_disk_rejects_changes() {
    let guest = Guest::new(true);
    guest.header(VIRTIO_BLK_T_OUT, 0);
    assert_eq!(
        guest.submit(&[header_part(), (DATA, 512, 0), status_part()]).1,
        IOERR
    );
    assert_eq!(guest.change_ranges(VIRTIO_BLK_T_DISCARD, &[(0, 1, 0)]), IOERR);
    assert_eq!(
        guest.change_ranges(VIRTIO_BLK_T_WRITE_ZEROES, &[(0, 1, 0)]),
        IOERR
    );
    guest.header(VIRTIO_BLK_T_IN, 0);
    assert_eq!(
        guest
            .submit(&[header_part(), (DATA, 512, WRITABLE), status_part()])
            .1,
        OK
    );
}

#[test]
fn ranges_are_applied_all_or_none() {
    let guest = Guest::new(false);
    guest.export.write(&vec![7; 1 << 20], 0, false).unwrap();
    let byte = |at: u64| {
        let mut byte = [0];
        guest.export.read(&mut byte, at).unwrap();
        byte[0]
    };
    let unmap = VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
    for (kind, ranges, status) in [
        (VIRTIO_BLK_T_DISCARD, vec![(0, 8, 0), (16, 8, 0)], OK),
        (VIRTIO_BLK_T_WRITE_ZEROES, vec![(32, 1, 0), (40, 8, unmap)], OK),
        (VIRTIO_BLK_T_DISCARD, vec![(64, 8, 0), (0, 8, unmap)], UNSUPP),
        (VIRTIO_BLK_T_WRITE_ZEROES, vec![(64, 8, 0), (0, 8, 2)], UNSUPP),
        (
            VIRTIO_BLK_T_WRITE_ZEROES,
            vec![(64, 8, 0), (DISK / SECTOR, 1, 0)],
            IOERR,
        ),
        (
            VIRTIO_BLK_T_WRITE_ZEROES,
            vec![(64, 8, 0), (u64::MAX, u32::MAX, 0)],
            IOERR,
        ),
        (
            VIRTIO_BLK_T_DISCARD,
            vec![(64, 8, 0); MAX_RANGES as usize + 1],
            IOERR,
        ),
        (VIRTIO_BLK_T_DISCARD, vec![], IOERR),
    ] {
        assert_eq!(guest.change_ranges(kind, &ranges), status, "{kind} {ranges:?}");
    }
    let seen: Vec<_> = [0, 8, 16, 24, 32, 33, 40, 48, 64]
        .map(|sector| byte(sector * SECTOR))
        .into();
    assert_eq!(seen, [0, 7, 0, 7, 0, 7, 0, 7, 7]);
}

#[test]
fn invalid_chains_get_error_status_if_possible() {
    let guest = Guest::new(false);
    guest.header(77, 0);
    assert_eq!(guest.submit(&[header_part(), status_part()]), (1, UNSUPP));
    guest.header(VIRTIO_BLK_T_IN, 0);
    let beyond = MEMORY as u64 - 256;
    for parts in [
        // A truncated or missing header.
        &[(HEADER_AT, 15, 0), status_part()][..],
        &[status_part()],
        // Data in memory that is unmapped, or partly so.
        &[header_part(), (1 << 40, 512, WRITABLE), status_part()],
        &[header_part(), (beyond, 512, WRITABLE), status_part()],
        &[header_part(), (u64::MAX - 100, 512, WRITABLE), status_part()],
        // A readable segment after a writable one.
        &[(DATA, 512, WRITABLE), header_part(), status_part()],
    ] {
        assert_eq!(guest.submit(parts).1, IOERR, "{parts:?}");
    }
    for parts in [
        // No valid status byte.
        &[header_part()][..],
        &[header_part(), (DATA, 512, WRITABLE), (STATUS_AT, 1, 0)],
        &[header_part(), (STATUS_AT, 0, WRITABLE)],
        &[header_part(), (1 << 40, 1, WRITABLE)],
    ] {
        assert_eq!(guest.submit(parts), (0, UNWRITTEN), "{parts:?}");
    }
}

#[test]
fn too_long_chain_fails_and_endless_chain_is_returned() {
    let guest = Guest::new(false);
    guest.header(VIRTIO_BLK_T_IN, 0);
    let chain = |segments: u32| {
        let data = (0..u64::from(segments)).map(|at| (DATA + at * 512, 512, WRITABLE));
        let parts = [header_part()].into_iter().chain(data).chain([status_part()]);
        parts.collect::<Vec<_>>()
    };
    assert_eq!(guest.submit(&chain(MAX_SEGMENTS)), (MAX_SEGMENTS * 512 + 1, OK));
    assert_eq!(guest.submit(&chain(MAX_SEGMENTS + 1)), (1, IOERR));
    let next_of_last = |next: u16| {
        let descriptor = Descriptor::new(STATUS_AT, 1, WRITABLE | 1, next);
        move |queue: &MockSplitQueue<GuestMemoryMmap>| {
            queue
                .desc_table()
                .store(2, RawDescriptor::from(descriptor))
                .unwrap();
        }
    };
    for next in [0, 2, QUEUE, u16::MAX] {
        assert_eq!(
            guest.submit_with(&chain(1), next_of_last(next)),
            (0, UNWRITTEN),
            "{next}"
        );
    }
}

fn part() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let addr = prop_oneof![
        4 => DATA..MEMORY as u64 + 4096,
        2 => Just(HEADER_AT),
        1 => any::<u64>(),
    ];
    let len = prop_oneof![4 => 0..2048_u32, 2 => Just(16), 1 => any::<u32>()];
    // NEXT, WRITE, and sometimes INDIRECT or invalid flags.
    let flags = prop_oneof![8 => 0..4_u16, 1 => any::<u16>()];
    (addr, len, flags, 0..10_u16)
}

proptest! {
    #![proptest_config(Config { cases: 300, rng_seed: RngSeed::Fixed(8), failure_persistence: None, ..Config::default() })]
    #[test]
    fn chains_never_panic_or_use_more_than_one_chunk(
        parts in prop::collection::vec(part(), 1..8),
        kind in prop_oneof![0..15_u32, any::<u32>()],
        sector in prop_oneof![0..DISK / SECTOR, any::<u64>()],
    ) {
        let guest = Guest::new(false);
        guest.header(kind, sector);
        let simple: Vec<_> = parts.iter().map(|&(addr, len, flags, _)| (addr, len, flags & 2)).collect();
        guest.submit_with(&simple, |queue| {
            for (at, &(addr, len, flags, next)) in parts.iter().enumerate() {
                let descriptor = RawDescriptor::from(Descriptor::new(addr, len, flags, next));
                queue.desc_table().store(at as u16, descriptor).unwrap();
            }
        });
        prop_assert!(guest.pools.usage().peak.0 <= CHUNK_SIZE as u64);
    }
}

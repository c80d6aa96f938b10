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

use crate::vhost::config::MOST_SEGMENTS;

/// Memory of the guest, and of it: the queue from 0 on, the head, ranges, the status, and from `DATA` on the data.
const MEMORY: usize = 4 << 20;
const HEAD_AT: u64 = 0x8000;
const RANGES_AT: u64 = 0x9000;
const STATUS_AT: u64 = 0xa000;
const DATA: u64 = 1 << 20;
/// What the status is before it is answered.
const UNTOUCHED: u8 = 0xee;
const OURS: u16 = 2;
const QUEUE: u16 = 256;
const DISK: u64 = 2 << 20;
const BUDGET: u64 = 1 << 20;

struct Guest {
    memory: GuestMemoryMmap,
    export: Export,
    pools: Pools,
    pool: Pool,
    counts: Counts,
}

impl Guest {
    fn new(read_only: bool) -> Self {
        let pools = Pools::new(Bytes(BUDGET), Settings::default());
        let pool = pools.open("x", Bytes(CHUNK as u64)).unwrap();
        Self {
            memory: GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)]).unwrap(),
            export: Export::memory("a disk with a long name", Bytes(DISK + 100), read_only).unwrap(),
            pools,
            pool,
            counts: Counts::default(),
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

    fn head(&self, kind: u32, sector: u64) {
        self.put(
            HEAD_AT,
            &[&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat(),
        );
    }

    // Address, length and flags of each part; `change` may then break what was built.
    fn ask_with(
        &self,
        parts: &[(u64, u32, u16)],
        change: impl Fn(&MockSplitQueue<GuestMemoryMmap>),
    ) -> (u32, u8) {
        self.put(STATUS_AT, &[UNTOUCHED]);
        let queue = MockSplitQueue::new(&self.memory, QUEUE);
        let parts: Vec<_> = parts
            .iter()
            .map(|&(addr, len, flags)| RawDescriptor::from(Descriptor::new(addr, len, flags, 0)))
            .collect();
        let chain = queue.build_desc_chain(&parts).unwrap();
        change(&queue);
        let disk = Disk {
            export: &self.export,
            writes_through: true,
            counts: &self.counts,
        };
        let written = Chain::read(&self.memory, chain).map_or(0, |chain| {
            disk.answer(chain, &mut |len| self.pool.try_acquire(len))
        });
        (written, self.get(STATUS_AT, 1)[0])
    }

    fn ask(&self, parts: &[(u64, u32, u16)]) -> (u32, u8) {
        self.ask_with(parts, |_| {})
    }

    // A request whose only data are `ranges`.
    fn change(&self, kind: u32, ranges: &[(u64, u32, u32)]) -> u8 {
        self.head(kind, 0);
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
        self.ask(&[head_part(), (RANGES_AT, len, 0), status_part()]).1
    }
}

fn head_part() -> (u64, u32, u16) {
    (HEAD_AT, 16, 0)
}

fn status_part() -> (u64, u32, u16) {
    (STATUS_AT, 1, OURS)
}

const OK: u8 = VIRTIO_BLK_S_OK as u8;
const IOERR: u8 = VIRTIO_BLK_S_IOERR as u8;
const UNSUPP: u8 = VIRTIO_BLK_S_UNSUPP as u8;

#[test]
fn what_was_written_is_read_however_it_is_cut() {
    let guest = Guest::new(false);
    let bytes: Vec<u8> = (0..600 << 10).map(|at| (at % 251) as u8).collect();
    guest.put(DATA, &bytes);
    guest.head(VIRTIO_BLK_T_OUT, 8);
    let whole = u32::try_from(bytes.len()).unwrap();
    // The head in two, the data in three parts, one of them of an odd length.
    let parts = [
        (HEAD_AT, 5, 0),
        (HEAD_AT + 5, 11, 0),
        (DATA, 4096, 0),
        (DATA + 4096, 0, 0),
        (DATA + 4096, 300_001, 0),
        (DATA + 304_097, whole - 304_097, 0),
        status_part(),
    ];
    assert_eq!(guest.ask(&parts), (1, OK));
    guest.put(DATA, &vec![0; bytes.len()]);
    guest.head(VIRTIO_BLK_T_IN, 8);
    // The status behind the last byte of the data, in one part.
    guest.put(DATA + u64::from(whole), &[UNTOUCHED]);
    let (written, _) = guest.ask(&[head_part(), (DATA, 777, OURS), (DATA + 777, whole - 776, OURS)]);
    assert_eq!(written, whole + 1);
    assert!(guest.get(DATA, bytes.len()) == bytes);
    assert_eq!(guest.get(DATA + u64::from(whole), 1), [OK]);
    assert!(guest.pools.usage().peak.0 <= BUDGET);
    assert_eq!(guest.counts.written.load(Ordering::Relaxed), u64::from(whole));
}

#[test]
fn the_serial_number_is_the_name_and_a_flush_has_no_data() {
    let guest = Guest::new(true);
    guest.head(VIRTIO_BLK_T_GET_ID, 0);
    assert_eq!(
        guest.ask(&[head_part(), (DATA, 20, OURS), status_part()]),
        (21, OK)
    );
    assert_eq!(guest.get(DATA, 20), b"a disk with a long n");
    assert_eq!(guest.ask(&[head_part(), (DATA, 3, OURS), status_part()]), (4, OK));
    guest.head(VIRTIO_BLK_T_FLUSH, 0);
    assert_eq!(guest.ask(&[head_part(), status_part()]), (1, OK));
}

#[test]
fn what_lies_outside_of_the_disk_fails() {
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
        guest.head(VIRTIO_BLK_T_IN, sector);
        let read = guest.ask(&[head_part(), (DATA, len, OURS), status_part()]);
        guest.head(VIRTIO_BLK_T_OUT, sector);
        let write = guest.ask(&[head_part(), (DATA, len, 0), status_part()]);
        assert_eq!((read.1, write.1), (status, status), "{sector} {len}");
    }
}

#[test]
fn what_may_not_be_written_is_not() {
    let guest = Guest::new(true);
    guest.head(VIRTIO_BLK_T_OUT, 0);
    assert_eq!(guest.ask(&[head_part(), (DATA, 512, 0), status_part()]).1, IOERR);
    assert_eq!(guest.change(VIRTIO_BLK_T_DISCARD, &[(0, 1, 0)]), IOERR);
    assert_eq!(guest.change(VIRTIO_BLK_T_WRITE_ZEROES, &[(0, 1, 0)]), IOERR);
    guest.head(VIRTIO_BLK_T_IN, 0);
    assert_eq!(guest.ask(&[head_part(), (DATA, 512, OURS), status_part()]).1, OK);
}

#[test]
fn ranges_are_discarded_or_zeroed_or_none_of_them() {
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
            vec![(64, 8, 0); MOST_RANGES as usize + 1],
            IOERR,
        ),
        (VIRTIO_BLK_T_DISCARD, vec![], IOERR),
    ] {
        assert_eq!(guest.change(kind, &ranges), status, "{kind} {ranges:?}");
    }
    let seen: Vec<_> = [0, 8, 16, 24, 32, 33, 40, 48, 64]
        .map(|sector| byte(sector * SECTOR))
        .into();
    assert_eq!(seen, [0, 7, 0, 7, 0, 7, 0, 7, 7]);
}

#[test]
fn what_is_no_request_is_answered_where_that_can_be() {
    let guest = Guest::new(false);
    guest.head(77, 0);
    assert_eq!(guest.ask(&[head_part(), status_part()]), (1, UNSUPP));
    guest.head(VIRTIO_BLK_T_IN, 0);
    let beyond = MEMORY as u64 - 256;
    for parts in [
        // A head that is cut off, or missing.
        &[(HEAD_AT, 15, 0), status_part()][..],
        &[status_part()],
        // Data where the guest has no memory, or half of them.
        &[head_part(), (1 << 40, 512, OURS), status_part()],
        &[head_part(), (beyond, 512, OURS), status_part()],
        &[head_part(), (u64::MAX - 100, 512, OURS), status_part()],
        // What we read behind what we write.
        &[(DATA, 512, OURS), head_part(), status_part()],
    ] {
        assert_eq!(guest.ask(parts).1, IOERR, "{parts:?}");
    }
    for parts in [
        // No place for the status.
        &[head_part()][..],
        &[head_part(), (DATA, 512, OURS), (STATUS_AT, 1, 0)],
        &[head_part(), (STATUS_AT, 0, OURS)],
        &[head_part(), (1 << 40, 1, OURS)],
    ] {
        assert_eq!(guest.ask(parts), (0, UNTOUCHED), "{parts:?}");
    }
}

#[test]
fn a_chain_that_is_too_long_is_answered_and_one_without_an_end_given_back() {
    let guest = Guest::new(false);
    guest.head(VIRTIO_BLK_T_IN, 0);
    let chain = |segments: u32| {
        let data = (0..u64::from(segments)).map(|at| (DATA + at * 512, 512, OURS));
        let parts = [head_part()].into_iter().chain(data).chain([status_part()]);
        parts.collect::<Vec<_>>()
    };
    assert_eq!(guest.ask(&chain(MOST_SEGMENTS)), (MOST_SEGMENTS * 512 + 1, OK));
    assert_eq!(guest.ask(&chain(MOST_SEGMENTS + 1)), (1, IOERR));
    let next_of_last = |next: u16| {
        let descriptor = Descriptor::new(STATUS_AT, 1, OURS | 1, next);
        move |queue: &MockSplitQueue<GuestMemoryMmap>| {
            queue
                .desc_table()
                .store(2, RawDescriptor::from(descriptor))
                .unwrap();
        }
    };
    for next in [0, 2, QUEUE, u16::MAX] {
        assert_eq!(
            guest.ask_with(&chain(1), next_of_last(next)),
            (0, UNTOUCHED),
            "{next}"
        );
    }
}

fn part() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let addr = prop_oneof![
        4 => DATA..MEMORY as u64 + 4096,
        2 => Just(HEAD_AT),
        1 => any::<u64>(),
    ];
    let len = prop_oneof![4 => 0..2048_u32, 2 => Just(16), 1 => any::<u32>()];
    // Next, ours, and sometimes a table elsewhere.
    let flags = prop_oneof![8 => 0..4_u16, 1 => any::<u16>()];
    (addr, len, flags, 0..10_u16)
}

proptest! {
    #![proptest_config(Config { cases: 300, rng_seed: RngSeed::Fixed(8), failure_persistence: None, ..Config::default() })]
    #[test]
    fn no_chain_makes_it_panic_or_take_more_than_a_piece(
        parts in prop::collection::vec(part(), 1..8),
        kind in prop_oneof![0..15_u32, any::<u32>()],
        sector in prop_oneof![0..DISK / SECTOR, any::<u64>()],
    ) {
        let guest = Guest::new(false);
        guest.head(kind, sector);
        let simple: Vec<_> = parts.iter().map(|&(addr, len, flags, _)| (addr, len, flags & 2)).collect();
        guest.ask_with(&simple, |queue| {
            for (at, &(addr, len, flags, next)) in parts.iter().enumerate() {
                let descriptor = RawDescriptor::from(Descriptor::new(addr, len, flags, next));
                queue.desc_table().store(at as u16, descriptor).unwrap();
            }
        });
        prop_assert!(guest.pools.usage().peak.0 <= CHUNK as u64);
    }
}

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
use super::*;
use crate::reader::Unread;

/// Memory whose contents follow from the address. Process 1 has zeros, process 2 random bytes, process 3 text
/// in every other page, process 4 has ended.
#[derive(Default)]
struct Fake {
    read: Vec<(u32, u64)>,
}

impl PageReader for Fake {
    fn read(&mut self, pid: u32, addr: Addr, page: &mut Page) -> Result<(), Unread> {
        self.read.push((pid, addr.0));
        let mut rng = Rng::new(addr.0);
        match pid {
            1 => page.fill(0),
            2 => page.fill_with(|| rng.next_u64() as u8),
            3 if (addr.0 / PAGE_SIZE).is_multiple_of(2) => {
                for (nth, chunk) in page.chunks_exact_mut(8).enumerate() {
                    let words = [b"sampled ", b"memory, ", b"of pages", b"is read "];
                    chunk.copy_from_slice(words[rng.below(4) as usize]);
                    chunk[7] = nth as u8;
                }
            }
            3 => return Err(Unread::NotPresent),
            _ => return Err(Unread::ProcessEnded),
        }
        Ok(())
    }
}

fn stratum(pid: u32, pages: u64, bytes_pages: u64) -> Stratum<u32> {
    let start = u64::from(pid) << 30;
    Stratum {
        key: pid,
        bytes: Bytes(bytes_pages * PAGE_SIZE),
        candidates: vec![Candidate {
            pid,
            range: AddrRange::new(start + 1, start + (pages + 1) * PAGE_SIZE + 1),
        }],
    }
}

fn run(strata: &[Stratum<u32>], seed: u64) -> (Compressibility<u32>, Fake) {
    let (mut fake, settings) = (Fake::default(), SampleSettings::default());
    let found = sample(strata, &mut fake, &SampleSettings { seed, ..settings }).unwrap();
    (found, fake)
}

#[test]
fn strata_are_weighted_by_bytes() {
    let (found, _) = run(&[stratum(1, 9000, 3000), stratum(2, 9000, 1000)], 1);
    assert_eq!(found.total.nr_read, 400);
    assert_eq!(found.strata[0].summary.nr_read, 300);
    let same = found.total.same_filled.unwrap();
    assert!((same.mean - 0.75).abs() < 1e-9, "{same:?}");
    assert_eq!(found.total.algorithms.len(), 3);
    for result in &found.total.algorithms {
        assert!((result.stored.mean - 0.25).abs() < 1e-9, "{result:?}");
        assert!((result.raw.mean - 0.25).abs() < 1e-9, "{result:?}");
        assert!(result.cpu_per_page.is_some());
    }
    assert_eq!(found.strata[0].summary.algorithms[0].cpu_per_page, None);
    assert!(found.cpu.0 > 0);
}

#[test]
fn pages_not_in_memory_are_replaced_and_counted() {
    let (found, _) = run(&[stratum(3, 4000, 2000)], 2);
    let total = &found.total;
    assert_eq!(total.nr_read, 400);
    assert!(total.unread.not_present > 300, "{:?}", total.unread);
    let lz4 = total.algorithms[0];
    assert!(lz4.stored.mean > 0.1 && lz4.stored.mean < 1.0, "{lz4:?}");
}

#[test]
fn ended_process_has_no_estimate() {
    let (found, _) = run(&[stratum(1, 100, 100), stratum(4, 100, 100)], 3);
    let gone = &found.strata[1].summary;
    assert_eq!((gone.nr_read, gone.unread.process_ended), (0, 100));
    assert!(gone.same_filled.is_none() && gone.algorithms.is_empty());
    assert_eq!(found.total.bytes, Bytes(200 * PAGE_SIZE));
    assert_eq!(found.total.bytes_sampled, Bytes(100 * PAGE_SIZE));
    assert_eq!(found.total.same_filled.unwrap().mean, 1.0);
}

#[test]
fn no_page_is_read_twice() {
    let (found, fake) = run(&[stratum(1, 5, 5), stratum(2, 1, 0), stratum(3, 0, 9)], 4);
    assert_eq!(
        found.strata.iter().map(|s| s.summary.nr_read).collect::<Vec<_>>(),
        [5, 0, 0]
    );
    let distinct: BTreeSet<_> = fake.read.iter().collect();
    assert_eq!(distinct.len(), fake.read.len());
    assert!(fake.read.iter().all(|(_, addr)| addr % PAGE_SIZE == 0));
}

#[test]
fn small_stratum_gets_its_minimum() {
    let (found, _) = run(&[stratum(1, 100_000, 100_000), stratum(2, 50, 50)], 5);
    assert_eq!(found.strata[1].summary.nr_read, 8);
}

#[test]
fn equal_seed_reads_equal_pages() {
    let strata = [stratum(1, 9000, 9000), stratum(2, 9000, 9000)];
    let read = |seed| run(&strata, seed).1.read;
    assert_eq!(read(7), read(7));
    assert_ne!(read(7), read(8));
}

#[test]
fn share_of_pages_with_a_property_is_estimated() {
    // Of process 1 every page has it, of process 2 every fourth; process 3 has every other page in memory,
    // and process 4 none.
    let strata = [1, 2, 3, 4].map(|pid| stratum(pid, 9000, 3000));
    let settings = SampleSettings {
        nr_pages: 4000,
        ..SampleSettings::default()
    };
    let found = sample_share(&strata, &settings, |pid, addr| {
        let page = addr.0 / PAGE_SIZE;
        match pid {
            1 => Some(true),
            2 => Some(page.is_multiple_of(4)),
            3 => page.is_multiple_of(2).then_some(false),
            _ => None,
        }
    });
    let found: Vec<_> = found
        .iter()
        .map(|share| (share.key, share.nr_pages, share.share))
        .collect();
    assert_eq!(
        found.iter().map(|share| (share.0, share.1)).collect::<Vec<_>>(),
        [(1, 1000), (2, 1000), (3, 1000)]
    );
    assert_eq!((found[0].2.mean, found[2].2.mean), (1.0, 0.0));
    assert!(found[1].2.low < 0.25 && found[1].2.high > 0.25, "{found:?}");
}

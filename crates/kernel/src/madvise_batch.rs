//! Advice on many ranges in few system calls, with a result for each range.
//!
//! The kernel stops at the first range that it refuses and returns the number of bytes before it. The next
//! call starts at that range and gets the reason; the batch then continues behind it.

use std::io;

use thermo_units::{AddrRange, Bytes};

use crate::pidfd::PidFd;
use crate::process_madvise::{Advice, MAX_BYTES, MAX_RANGES, process_madvise};
use crate::refusal::{Call, Refusal};

/// The result for one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdviceOutcome {
    /// The whole range was advised.
    Done,
    /// The kernel refused the range with this error number; 0: a part was advised, without an error.
    Refused(i32),
    /// The caller stopped the batch before this range.
    NotTried,
}

impl AdviceOutcome {
    /// True if the reason applies to the whole process: it has ended, may not be given `advice`, or does not
    /// answer.
    #[must_use]
    pub const fn is_process_wide(self, advice: Advice) -> bool {
        let call = Call::Madvise(advice);
        match self {
            Self::Refused(errno) => Refusal { call, errno }.is_process_wide(),
            Self::Done | Self::NotTried => false,
        }
    }
}

/// Gives `advice` on `ranges`, in order, in calls of at most `max_bytes` and of what the kernel accepts.
/// Before each call, `stop` gets the bytes advised so far and returns whether the batch ends there. Returns
/// one outcome for each range.
#[expect(
    clippy::indexing_slicing,
    reason = "next is below the number of ranges; call_len() and whole_ranges() count ranges of their argument"
)]
pub fn madvise_batch(
    pidfd: &PidFd,
    ranges: &[AddrRange],
    advice: Advice,
    max_bytes: Bytes,
    stop: &mut dyn FnMut(Bytes) -> bool,
) -> Vec<AdviceOutcome> {
    let mut outcomes = vec![AdviceOutcome::NotTried; ranges.len()];
    let (mut next, mut advised) = (0, Bytes::ZERO);
    while next < ranges.len() && !stop(advised) {
        let call = &ranges[next..][..call_len(&ranges[next..], max_bytes)];
        let refused = match process_madvise(pidfd, call, advice) {
            Ok(bytes) => {
                let whole = whole_ranges(call, bytes);
                outcomes[next..next + whole].fill(AdviceOutcome::Done);
                advised += call[..whole].iter().map(AddrRange::len).sum::<Bytes>();
                next += whole;
                if whole > 0 {
                    continue;
                }
                AdviceOutcome::Refused(0)
            }
            // Interrupted by a signal before the first range.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => AdviceOutcome::Refused(Refusal::new(Call::Madvise(advice), &error).errno),
        };
        if refused.is_process_wide(advice) {
            outcomes[next..].fill(refused);
            break;
        }
        outcomes[next] = refused;
        next += 1;
    }
    outcomes
}

/// Splits `range` at the borders of `mappings`, which are ascending; `range_of` gives the range of a mapping.
/// The kernel handles a range mapping by mapping and stops at the first that it refuses, so a refused range
/// is advised again in these parts.
pub fn split_by_mapping<'a, M>(
    range: AddrRange,
    mappings: &'a [M],
    range_of: fn(&M) -> AddrRange,
) -> impl Iterator<Item = (&'a M, AddrRange)> {
    let first = mappings.partition_point(|mapping| range_of(mapping).end <= range.start);
    let part = move |mapping: &'a M| Some((mapping, range_of(mapping).intersection(&range)?));
    mappings.iter().skip(first).map_while(part)
}

/// The number of leading `ranges` that fit in one call; at least one, if there is one.
fn call_len(ranges: &[AddrRange], max_bytes: Bytes) -> usize {
    let mut sum = Bytes::ZERO;
    let fits = ranges.iter().take(MAX_RANGES).take_while(|range| {
        sum = Bytes(sum.0.saturating_add(range.len().0));
        sum <= max_bytes.min(MAX_BYTES)
    });
    fits.count().max(ranges.len().min(1))
}

/// The number of leading `ranges` that are completely covered by `advised` bytes.
fn whole_ranges(ranges: &[AddrRange], advised: Bytes) -> usize {
    let mut sum = Bytes::ZERO;
    let whole = ranges.iter().take_while(|range| {
        sum += range.len();
        sum <= advised
    });
    whole.count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn pages(count: u64, each: u64) -> Vec<AddrRange> {
        (0..count)
            .map(|n| AddrRange::new(n * each, (n + 1) * each))
            .collect()
    }

    #[test]
    fn call_len_respects_kernel_and_caller_limits() {
        assert_eq!(call_len(&pages(5000, 4096), MAX_BYTES), 1024);
        assert_eq!(call_len(&pages(5000, 1 << 30), MAX_BYTES), 1);
        assert_eq!(call_len(&pages(1023, 2 << 20), MAX_BYTES), 1023);
        let two_gib = pages(1024, 2 << 20);
        assert_eq!(call_len(&two_gib, MAX_BYTES), 1023, "2 GiB is one page too much");
        assert_eq!(call_len(&two_gib, Bytes::mib(64)), 32);
        assert_eq!(
            call_len(&pages(1, 4 << 30), MAX_BYTES),
            1,
            "the kernel shortens the range itself"
        );
        assert_eq!(call_len(&[], MAX_BYTES), 0);
    }

    #[test]
    fn partly_advised_range_does_not_count() {
        let ranges = pages(3, 8192);
        assert_eq!(whole_ranges(&ranges, Bytes(8192)), 1);
        assert_eq!(whole_ranges(&ranges, Bytes(20000)), 2);
        assert_eq!(whole_ranges(&ranges, Bytes(24576)), 3);
    }

    #[test]
    fn split_by_mapping_cuts_at_mappings_and_skips_holes() {
        let mappings = [(0, 10), (10, 20), (30, 40), (50, 60)].map(|(start, end)| AddrRange::new(start, end));
        let parts = |start, end| {
            Vec::from_iter(
                split_by_mapping(AddrRange::new(start, end), &mappings, |range| *range).map(|(_, part)| part),
            )
        };
        let expected = [(5, 10), (10, 20), (30, 35)].map(|(start, end)| AddrRange::new(start, end));
        assert_eq!(parts(5, 35), expected);
        assert_eq!(parts(22, 28), []);
        assert_eq!(parts(70, 80), []);
    }

    #[test]
    fn batch_continues_after_refusal_until_stopped() {
        let memory = vec![1_u8; 64 << 12];
        let start = (memory.as_ptr() as u64).next_multiple_of(4096);
        let page = |nth: u64| AddrRange::new(start + (nth << 12), start + ((nth + 1) << 12));
        let hole = AddrRange::new(0x1000, 0x2000);
        let ranges = [hole, page(0), page(1), hole, page(2)];
        let ours = PidFd::open(std::process::id()).unwrap();
        let advise = |most, stop: &mut dyn FnMut(Bytes) -> bool| {
            madvise_batch(&ours, &ranges, Advice::Cold, most, stop)
        };
        let outcomes = advise(MAX_BYTES, &mut |_| false);
        if outcomes[0] == AdviceOutcome::Refused(libc::EPERM) {
            assert!(
                outcomes
                    .iter()
                    .all(|outcome| outcome.is_process_wide(Advice::Cold))
            );
            eprintln!("SKIP: process_madvise needs CAP_SYS_NICE");
            return;
        }
        let refused = AdviceOutcome::Refused(libc::ENOMEM);
        let expected = [
            refused,
            AdviceOutcome::Done,
            AdviceOutcome::Done,
            refused,
            AdviceOutcome::Done,
        ];
        assert_eq!(outcomes, expected);
        let outcomes = advise(Bytes(4096), &mut |advised| advised >= Bytes(8192));
        assert_eq!(outcomes[..3], expected[..3]);
        assert_eq!(outcomes[3..], [AdviceOutcome::NotTried; 2]);
        drop(memory);
    }

    #[test]
    fn process_wide_refusal_ends_batch() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = PidFd::open(child.id()).unwrap();
        child.wait().unwrap();
        let mut calls = 0;
        let outcomes = madvise_batch(&gone, &pages(3, 4096), Advice::Cold, Bytes(4096), &mut |_| {
            calls += 1;
            false
        });
        assert_eq!(calls, 1);
        assert!(
            outcomes
                .iter()
                .all(|outcome| outcome.is_process_wide(Advice::Cold)),
            "{outcomes:?}"
        );
    }
}

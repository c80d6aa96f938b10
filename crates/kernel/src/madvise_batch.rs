//! Advice on many ranges in few calls, with a result for each range.
//!
//! The kernel stops at the first range that it refuses and returns the bytes before it. So the next call begins at that
//! range and learns the reason; the batch goes on behind it.

use std::io;
use std::os::fd::BorrowedFd;

use thermo_units::{AddrRange, Bytes};

use crate::process_madvise::{Advice, MAX_BYTES, MAX_RANGES, process_madvise};

/// What became of one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was advised.
    Done,
    /// The kernel refused it with this error number; 0: it advised a part and gave no error.
    Refused(i32),
    /// The caller stopped the batch before it.
    NotTried,
}

impl Outcome {
    /// Whether it was refused for a reason that holds for every range: the process is gone, or may not be advised.
    #[must_use]
    pub const fn is_for_all(self) -> bool {
        matches!(self, Self::Refused(libc::ESRCH | libc::EPERM | libc::ENOSYS))
    }
}

/// Gives `advice` on `ranges`, in order, in calls of at most `most` bytes, and of what the kernel takes. Before each call
/// `stop` is asked, with the bytes advised so far, whether to end the batch there. Returns an outcome for each range.
pub fn madvise_batch(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddrRange],
    advice: Advice,
    most: Bytes,
    stop: &mut dyn FnMut(Bytes) -> bool,
) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::NotTried; ranges.len()];
    let (mut next, mut so_far) = (0, Bytes::ZERO);
    while next < ranges.len() && !stop(so_far) {
        let call = &ranges[next..][..call_len(&ranges[next..], most)];
        let refused = match process_madvise(pidfd, call, advice) {
            Ok(bytes) => {
                let whole = whole_ranges(call, bytes);
                outcomes[next..next + whole].fill(Outcome::Done);
                so_far += call[..whole].iter().map(AddrRange::len).sum::<Bytes>();
                next += whole;
                if whole > 0 {
                    continue;
                }
                Outcome::Refused(0)
            }
            // A signal came before anything was done.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Outcome::Refused(error.raw_os_error().unwrap_or(0)),
        };
        if refused.is_for_all() {
            outcomes[next..].fill(refused);
            break;
        }
        outcomes[next] = refused;
        next += 1;
    }
    outcomes
}

/// What of `range` lies in each of `mappings`, which are ascending and lie where `place` says. The kernel goes through a
/// range mapping by mapping and stops at the first that it refuses, so these parts are what to advise of a refused range.
pub fn parts_in<'a, M>(
    range: AddrRange,
    mappings: &'a [M],
    place: fn(&M) -> AddrRange,
) -> impl Iterator<Item = (&'a M, AddrRange)> {
    let first = mappings.partition_point(|mapping| place(mapping).end <= range.start);
    let part = move |mapping: &'a M| Some((mapping, place(mapping).intersection(&range)?));
    mappings[first..].iter().map_while(part)
}

/// How many of `ranges`, from the first, one call can take; at least one, where there is one.
fn call_len(ranges: &[AddrRange], most: Bytes) -> usize {
    let mut sum = Bytes::ZERO;
    let fits = ranges.iter().take(MAX_RANGES).take_while(|range| {
        sum = Bytes(sum.0.saturating_add(range.len().0));
        sum <= most.min(MAX_BYTES)
    });
    fits.count().max(ranges.len().min(1))
}

/// How many of `ranges`, from the first, were advised whole when `advised` bytes were.
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
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::pidfd::PidFd;

    fn pages(count: u64, each: u64) -> Vec<AddrRange> {
        (0..count)
            .map(|n| AddrRange::new(n * each, (n + 1) * each))
            .collect()
    }

    #[test]
    fn call_takes_what_the_kernel_and_the_caller_allow() {
        assert_eq!(call_len(&pages(5000, 4096), MAX_BYTES), 1024);
        assert_eq!(call_len(&pages(5000, 1 << 30), MAX_BYTES), 1);
        assert_eq!(call_len(&pages(1023, 2 << 20), MAX_BYTES), 1023);
        let two_gib = pages(1024, 2 << 20);
        assert_eq!(call_len(&two_gib, MAX_BYTES), 1023, "2 GiB are a page too many");
        assert_eq!(call_len(&two_gib, Bytes::mib(64)), 32);
        assert_eq!(
            call_len(&pages(1, 4 << 30), MAX_BYTES),
            1,
            "the kernel cuts it short by itself"
        );
        assert_eq!(call_len(&[], MAX_BYTES), 0);
    }

    #[test]
    fn range_half_advised_was_not() {
        let ranges = pages(3, 8192);
        assert_eq!(whole_ranges(&ranges, Bytes(8192)), 1);
        assert_eq!(whole_ranges(&ranges, Bytes(20000)), 2);
        assert_eq!(whole_ranges(&ranges, Bytes(24576)), 3);
    }

    #[test]
    fn parts_are_cut_at_mappings_and_leave_holes_out() {
        let mappings = [(0, 10), (10, 20), (30, 40), (50, 60)].map(|(start, end)| AddrRange::new(start, end));
        let parts = |start, end| {
            Vec::from_iter(
                parts_in(AddrRange::new(start, end), &mappings, |range| *range).map(|(_, part)| part),
            )
        };
        let expected = [(5, 10), (10, 20), (30, 35)].map(|(start, end)| AddrRange::new(start, end));
        assert_eq!(parts(5, 35), expected);
        assert_eq!(parts(22, 28), []);
        assert_eq!(parts(70, 80), []);
    }

    #[test]
    fn batch_goes_on_behind_what_is_refused_until_it_is_stopped() {
        let memory = vec![1_u8; 64 << 12];
        let start = (memory.as_ptr() as u64).next_multiple_of(4096);
        let page = |nth: u64| AddrRange::new(start + (nth << 12), start + ((nth + 1) << 12));
        let hole = AddrRange::new(0x1000, 0x2000);
        let ranges = [hole, page(0), page(1), hole, page(2)];
        let ours = PidFd::open(std::process::id()).unwrap();
        let advise = |most, stop: &mut dyn FnMut(Bytes) -> bool| {
            madvise_batch(ours.as_fd(), &ranges, Advice::Cold, most, stop)
        };
        let outcomes = advise(MAX_BYTES, &mut |_| false);
        if outcomes[0] == Outcome::Refused(libc::EPERM) {
            assert!(outcomes.iter().all(|outcome| outcome.is_for_all()));
            eprintln!("SKIP: process_madvise needs CAP_SYS_NICE");
            return;
        }
        let refused = Outcome::Refused(libc::ENOMEM);
        let expected = [refused, Outcome::Done, Outcome::Done, refused, Outcome::Done];
        assert_eq!(outcomes, expected);
        let outcomes = advise(Bytes(4096), &mut |so_far| so_far >= Bytes(8192));
        assert_eq!(outcomes[..3], expected[..3]);
        assert_eq!(outcomes[3..], [Outcome::NotTried; 2]);
        drop(memory);
    }

    #[test]
    fn reason_that_holds_for_every_range_ends_the_batch() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = PidFd::open(child.id()).unwrap();
        child.wait().unwrap();
        let mut calls = 0;
        let outcomes = madvise_batch(
            gone.as_fd(),
            &pages(3, 4096),
            Advice::Cold,
            Bytes(4096),
            &mut |_| {
                calls += 1;
                false
            },
        );
        assert_eq!(calls, 1);
        assert!(
            outcomes.iter().all(|outcome| outcome.is_for_all()),
            "{outcomes:?}"
        );
    }
}

//! Advice on many small ranges, to clear their accessed marks or else, in few system calls.

use std::os::fd::BorrowedFd;

use thermo_kernel::process_madvise::{Advice, MAX_BYTES, MAX_RANGES, process_madvise};
use thermo_units::{AddrRange, Bytes};

/// How many of `ranges`, from the first, one call can take; at least one, where there is one.
pub(crate) fn call_len(ranges: &[AddrRange]) -> usize {
    let mut sum = Bytes::ZERO;
    let fits = ranges.iter().take(MAX_RANGES).take_while(|range| {
        sum = Bytes(sum.0.saturating_add(range.len().0));
        sum <= MAX_BYTES
    });
    fits.count().max(ranges.len().min(1))
}

/// How many of `ranges`, from the first, were advised whole when `advised` bytes were.
pub(crate) fn whole_ranges(ranges: &[AddrRange], advised: Bytes) -> usize {
    let mut sum = Bytes::ZERO;
    let whole = ranges.iter().take_while(|range| {
        sum += range.len();
        sum <= advised
    });
    whole.count()
}

/// Takes the marks off `ranges`, as [`advise`].
pub(crate) fn clear(pidfd: BorrowedFd<'_>, ranges: &[AddrRange], refused: &mut impl FnMut(usize)) -> bool {
    advise(pidfd, ranges, Advice::Cold, refused)
}

/// Gives `advice` on `ranges`. The kernel stops at the first it refuses; that one is reported by its index to
/// `refused`, and the rest goes on. False: the process is gone, or may not be advised at all.
pub(crate) fn advise(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddrRange],
    advice: Advice,
    refused: &mut impl FnMut(usize),
) -> bool {
    let mut next = 0;
    while next < ranges.len() {
        let call = &ranges[next..][..call_len(&ranges[next..])];
        let advised = match process_madvise(pidfd, call, advice) {
            Ok(bytes) => whole_ranges(call, bytes),
            // A signal came before anything was done.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ESRCH | libc::EPERM | libc::ENOSYS)
                ) =>
            {
                return false;
            }
            Err(_) => 0,
        };
        next += advised;
        if advised < call.len() {
            refused(next);
            next += 1;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(count: u64, each: u64) -> Vec<AddrRange> {
        (0..count)
            .map(|n| AddrRange::new(n * each, (n + 1) * each))
            .collect()
    }

    #[test]
    fn a_call_takes_what_the_kernel_allows() {
        assert_eq!(call_len(&pages(5000, 4096)), 1024);
        assert_eq!(call_len(&pages(5000, 1 << 30)), 1);
        assert_eq!(call_len(&pages(1023, 2 << 20)), 1023);
        assert_eq!(call_len(&pages(1024, 2 << 20)), 1023, "2 GiB are a page too many");
        assert_eq!(
            call_len(&pages(1, 4 << 30)),
            1,
            "the kernel cuts it short by itself"
        );
        assert_eq!(call_len(&[]), 0);
    }

    #[test]
    fn a_range_half_advised_was_not() {
        let ranges = pages(3, 8192);
        assert_eq!(whole_ranges(&ranges, Bytes(8192)), 1);
        assert_eq!(whole_ranges(&ranges, Bytes(20000)), 2);
        assert_eq!(whole_ranges(&ranges, Bytes(24576)), 3);
    }
}

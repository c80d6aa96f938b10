//! Giving advice on long lists of ranges: in calls of the size the kernel takes, past what it refuses, and
//! stopping between calls when asked to.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::maps::{self, Mapping};
use thermo_kernel::process_madvise::{Advice, MAX_BYTES, process_madvise};
use thermo_kernel::status;
use thermo_units::{AddrRange, Bytes};

use super::collapse::HUGE_PAGE;
use super::spans;
use crate::process::Process;
use crate::pte::{call_len, whole_ranges};

/// How much one call works on: for the slow kinds of advice about a tenth of a second's worth, so that a stop is
/// heeded soon.
pub(super) const fn call_bytes(advice: Advice) -> Bytes {
    match advice {
        Advice::PageOut | Advice::Collapse => Bytes::mib(64),
        Advice::Cold | Advice::WillNeed => MAX_BYTES,
    }
}

/// The largest range of a call. For every range in which huge pages are to be made, the kernel first has all processors
/// give up pages that they hold back (`lru_add_drain_all`), which waits for each that is busy. So a few huge pages go in
/// one; where one of them cannot be made, each by itself.
const fn piece_bytes(advice: Advice) -> Bytes {
    match advice {
        Advice::Collapse => Bytes::mib(16),
        _ => call_bytes(advice),
    }
}

/// One giving of advice to one process.
pub(super) struct Advisor<'a> {
    pub root: &'a Path,
    pub process: &'a Process,
    pub advice: Advice,
    /// Asked between calls, with the bytes advised so far: a reason to leave the rest alone.
    pub stop: &'a mut dyn FnMut(Bytes) -> Option<Skip>,
}

impl Advisor<'_> {
    /// Advises `ranges`, in order. Returns what was advised, and counts in `applied` how much that is, and why not
    /// the rest.
    pub(super) fn advise(&mut self, ranges: &[AddrRange], applied: &mut Applied) -> Vec<AddrRange> {
        let mut done = Vec::new();
        let most = call_bytes(self.advice);
        let pieces = spans::cut(ranges, piece_bytes(self.advice));
        let mut next = 0;
        while next < pieces.len() {
            if let Some(why) = (self.stop)(applied.applied) {
                applied.skip(why, spans::sum(&pieces[next..]));
                break;
            }
            let call = &pieces[next..][..self.call_len(&pieces[next..], most)];
            match process_madvise(self.process.pidfd.as_fd(), call, self.advice) {
                Ok(bytes) => {
                    let whole = whole_ranges(call, bytes);
                    applied.applied += spans::sum(&call[..whole]);
                    call[..whole].iter().for_each(|piece| piece.join_onto(&mut done));
                    next += whole;
                    // The kernel never says why it stopped; the next call, which begins there, learns it.
                    if whole == 0 {
                        applied.skip(Skip::Refused, call[0].len());
                        next += 1;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    applied.skip(Skip::TargetGone, spans::sum(&pieces[next..]));
                    break;
                }
                Err(error) => {
                    self.around_what_is_refused(call[0], &error, &mut done, applied);
                    next += 1;
                }
            }
        }
        done
    }

    fn call_len(&self, pieces: &[AddrRange], most: Bytes) -> usize {
        let mut sum = Bytes::ZERO;
        let fits = pieces.iter().take(call_len(pieces)).take_while(|piece| {
            sum += piece.len();
            sum <= most
        });
        fits.count().max(1)
    }

    /// The kernel would not take `range` as a whole: its mappings are advised one by one, and the holes and those
    /// that are refused again are counted by their reasons.
    fn around_what_is_refused(
        &self,
        range: AddrRange,
        error: &io::Error,
        done: &mut Vec<AddrRange>,
        applied: &mut Applied,
    ) {
        if self.advice == Advice::Collapse && range.len() > HUGE_PAGE {
            self.one_by_one(range, done, applied);
            return;
        }
        let in_part = matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOMEM));
        if !in_part || self.advice == Advice::Collapse {
            applied.skip(self.reason(error, None), range.len());
            return;
        }
        let Ok(mappings) = maps::read(self.root, self.process.pid) else {
            applied.skip(Skip::TargetGone, range.len());
            return;
        };
        let mut left = range.len();
        for mapping in &mappings {
            let Some(part) = mapping.range.intersection(&range) else {
                continue;
            };
            left = left.saturating_sub(part.len());
            match process_madvise(self.process.pidfd.as_fd(), &[part], self.advice) {
                // One range is advised whole or not at all.
                Ok(bytes) => {
                    applied.applied += bytes;
                    part.join_onto(done);
                }
                Err(error) => applied.skip(self.reason(&error, Some(mapping)), part.len()),
            }
        }
        applied.skip(Skip::NotPresent, left);
    }

    /// Not all of `range` could be made huge: each 2 MiB of it is tried. Those that were made count at once.
    fn one_by_one(&self, range: AddrRange, done: &mut Vec<AddrRange>, applied: &mut Applied) {
        for unit in spans::cut(&[range], HUGE_PAGE) {
            match process_madvise(self.process.pidfd.as_fd(), &[unit], self.advice) {
                Ok(bytes) if bytes == unit.len() => {
                    applied.applied += bytes;
                    unit.join_onto(done);
                }
                Ok(_) => applied.skip(Skip::Refused, unit.len()),
                Err(error) => applied.skip(self.reason(&error, None), unit.len()),
            }
        }
    }

    fn reason(&self, error: &io::Error, mapping: Option<&Mapping>) -> Skip {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Skip::TargetGone,
            // The mapping went away after we read of it.
            Some(libc::ENOMEM) if self.advice != Advice::Collapse => Skip::NotPresent,
            Some(libc::EINVAL)
                if mapping.is_some_and(|mapping| !mapping.is_device()) && self.has_locked() =>
            {
                Skip::Locked
            }
            Some(libc::EINVAL) => Skip::Unadvisable,
            _ => Skip::Refused,
        }
    }

    /// True when the process has locked memory at all: which of its mappings are is told only by smaps, which
    /// costs more than the answer is worth.
    fn has_locked(&self) -> bool {
        status::read(self.root, self.process.pid).is_ok_and(|status| status.vm_lck > Bytes::ZERO)
    }
}

//! Limits for all hints of one call.

use thermo_kernel::clock;
use thermo_units::{Bytes, Nanos};

use super::result::SkipReason;

/// The limits. The default is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Maximum number of bytes advised.
    pub max_bytes: Option<Bytes>,
    /// Nothing is started later than this after the first hint.
    pub max_time: Option<Nanos>,
    /// Nothing is started once the calling thread has spent this much CPU time.
    pub max_cpu: Option<Nanos>,
}

/// Limits and what was spent of them so far.
#[derive(Debug)]
pub(super) struct Spent {
    limits: Limits,
    advised: Bytes,
    began: Nanos,
    cpu_at_begin: Nanos,
}

impl Spent {
    pub(super) fn begin(limits: Limits) -> Self {
        Self {
            limits,
            advised: Bytes::ZERO,
            began: clock::monotonic(),
            cpu_at_begin: clock::thread_cpu(),
        }
    }

    pub(super) fn spend(&mut self, advised: Bytes) {
        self.advised += advised;
    }

    pub(super) fn bytes_left(&self) -> Option<Bytes> {
        self.limits.max_bytes.map(|max| max.saturating_sub(self.advised))
    }

    /// The limit that is reached, if any. Less than a page of the byte limit counts as reached.
    pub(super) fn exhausted(&self) -> Option<SkipReason> {
        let reached = |limit: Option<Nanos>, now: Nanos, start: Nanos| {
            limit.is_some_and(|limit| now.saturating_sub(start) >= limit)
        };
        if self
            .bytes_left()
            .is_some_and(|left| left < Bytes(thermo_units::PAGE_SIZE))
        {
            Some(SkipReason::ByteLimit)
        } else if reached(self.limits.max_time, clock::monotonic(), self.began) {
            Some(SkipReason::Deadline)
        } else if reached(self.limits.max_cpu, clock::thread_cpu(), self.cpu_at_begin) {
            Some(SkipReason::CpuLimit)
        } else {
            None
        }
    }
}

//! How far hints may go, all together.

use thermo_kernel::clock;
use thermo_units::{Bytes, Nanos};

use super::result::SkipReason;

/// The limits. The default is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// At most so many bytes are advised.
    pub max_bytes: Option<Bytes>,
    /// Nothing is begun later than this after the first hint.
    pub max_time: Option<Nanos>,
    /// Nothing is begun once so much CPU time of the calling thread was spent.
    pub max_cpu: Option<Nanos>,
}

/// What was used up so far.
#[derive(Debug)]
pub(super) struct Account {
    limits: Limits,
    advised: Bytes,
    began: Nanos,
    cpu_at_begin: Nanos,
}

impl Account {
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
        self.limits
            .max_bytes
            .map(|most| most.saturating_sub(self.advised))
    }

    /// The limit that is reached, if one is. Less than a page left is nothing left.
    pub(super) fn exhausted(&self) -> Option<SkipReason> {
        let over = |most: Option<Nanos>, now: Nanos, then: Nanos| {
            most.is_some_and(|most| now.saturating_sub(then) >= most)
        };
        if self
            .bytes_left()
            .is_some_and(|left| left < Bytes(thermo_units::PAGE_SIZE))
        {
            Some(SkipReason::ByteLimit)
        } else if over(self.limits.max_time, clock::monotonic(), self.began) {
            Some(SkipReason::Deadline)
        } else if over(self.limits.max_cpu, clock::thread_cpu(), self.cpu_at_begin) {
            Some(SkipReason::CpuLimit)
        } else {
            None
        }
    }
}

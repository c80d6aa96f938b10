//! What came of a hint.

use thermo_engine::OpsError;
use thermo_engine::ops::{Applied, Skip};
use thermo_units::Bytes;

/// Why bytes of a hint were left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// The actor's reason.
    Skip(Skip),
    /// The byte limit was reached.
    ByteLimit,
    /// The limit of CPU time was reached.
    CpuLimit,
    /// The time was over.
    Deadline,
    /// The action cannot be done here at all.
    Unsupported,
}

impl SkipReason {
    /// The word in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip(skip) => skip.name(),
            Self::ByteLimit => "byte_limit",
            Self::CpuLimit => "cpu_limit",
            Self::Deadline => "deadline",
            Self::Unsupported => "unsupported",
        }
    }
}

/// What came of one hint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hinted {
    /// Bytes of pages that were there and that the kernel took the advice for.
    pub advised: Bytes,
    /// Bytes seen to have changed afterwards; `None` where the action leaves no trace.
    pub changed: Option<Bytes>,
    /// Why not, for the rest; each reason once.
    pub left: Vec<(SkipReason, Bytes)>,
    /// What stands against it altogether.
    pub error: Option<String>,
}

impl Hinted {
    /// One of which nothing is known but what `tell` says.
    pub(super) fn of(tell: impl FnOnce(&mut Self)) -> Self {
        let mut hinted = Self::default();
        tell(&mut hinted);
        hinted
    }

    /// Counts `bytes` as left alone.
    pub(super) fn leave(&mut self, why: SkipReason, bytes: Bytes) {
        if bytes == Bytes::ZERO {
            return;
        }
        match self.left.iter_mut().find(|(known, _)| *known == why) {
            Some((_, sum)) => *sum += bytes,
            None => self.left.push((why, bytes)),
        }
    }

    pub(super) fn fail(&mut self, why: &OpsError, bytes: Bytes) {
        self.error = Some(why.to_string());
        self.leave(SkipReason::Unsupported, bytes);
    }

    pub(super) fn add(&mut self, applied: &Applied) {
        self.advised += applied.applied;
        if let Some(changed) = applied.changed {
            self.changed = Some(self.changed.unwrap_or_default() + changed);
        }
        for (why, bytes) in &applied.skipped {
            self.leave(SkipReason::Skip(*why), *bytes);
            self.error = self.error.take().or_else(|| sentence(*why).map(str::to_owned));
        }
    }
}

/// What the kernel's refusals mean. Other reasons are no errors.
const fn sentence(why: Skip) -> Option<&'static str> {
    match why {
        Skip::TargetGone => Some("the process has ended"),
        Skip::Locked => Some("memory that is locked cannot be advised"),
        Skip::Unadvisable => Some("memory of devices and hugetlb pages cannot be advised"),
        Skip::Refused => Some(
            "the kernel refused: advising other users' processes needs root (CAP_SYS_NICE, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)",
        ),
        _ => None,
    }
}

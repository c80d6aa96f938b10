//! Results of hints.

use thermo_engine::OpsError;
use thermo_engine::ops::{Applied, Skip};
use thermo_units::Bytes;

/// Why bytes of a hint were skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// The actor's reason.
    Skip(Skip),
    /// The byte limit was reached.
    ByteLimit,
    /// The limit of CPU time was reached.
    CpuLimit,
    /// The time limit was reached.
    Deadline,
}

impl SkipReason {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip(skip) => skip.name(),
            Self::ByteLimit => "byte_limit",
            Self::CpuLimit => "cpu_limit",
            Self::Deadline => "deadline",
        }
    }
}

/// The result of one hint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HintResult {
    /// Bytes of present pages for which the kernel accepted the advice. For `willneed`: bytes of pages in
    /// swap, and of pages of files that were not present.
    pub advised: Bytes,
    /// Bytes verified as changed afterwards; `None` where the effect cannot be observed.
    pub changed: Option<Bytes>,
    /// The other bytes by reason; each reason occurs once.
    pub skipped: Vec<(SkipReason, Bytes)>,
    /// Why the hint failed, wholly or in part.
    pub error: Option<String>,
}

impl HintResult {
    /// An empty result after `fill`.
    pub(super) fn filled(fill: impl FnOnce(&mut Self)) -> Self {
        let mut result = Self::default();
        fill(&mut result);
        result
    }

    /// Counts `bytes` as skipped.
    pub(super) fn skip(&mut self, why: SkipReason, bytes: Bytes) {
        if bytes == Bytes::ZERO {
            return;
        }
        match self.skipped.iter_mut().find(|(known, _)| *known == why) {
            Some((_, sum)) => *sum += bytes,
            None => self.skipped.push((why, bytes)),
        }
    }

    pub(super) fn fail(&mut self, why: &OpsError, bytes: Bytes) {
        self.error = Some(why.to_string());
        self.skip(SkipReason::Skip(Skip::Unsupported), bytes);
    }

    pub(super) fn add(&mut self, applied: &Applied) {
        self.advised += applied.applied;
        if let Some(changed) = applied.changed {
            self.changed = Some(self.changed.unwrap_or_default() + changed);
        }
        for (why, bytes) in &applied.skipped {
            self.skip(SkipReason::Skip(*why), *bytes);
        }
        let by_reason = || {
            let mut reasons = applied.skipped.iter();
            reasons.find_map(|(why, _)| error_message(*why).map(str::to_owned))
        };
        if self.error.is_none() {
            self.error = applied.error.clone().or_else(by_reason);
        }
    }
}

/// The error message for reasons that are errors.
const fn error_message(why: Skip) -> Option<&'static str> {
    match why {
        Skip::TargetGone => Some("the process has ended"),
        Skip::NotAnswering => Some("the process is not answering: its address space is locked"),
        Skip::Locked => Some("the kernel does not accept advice for locked memory"),
        Skip::Unadvisable => Some(
            "the kernel does not accept the advice for this kind of mapping: device memory and hugetlb pages, and for \
             huge pages also mappings where they are forbidden, and files that are not programs",
        ),
        Skip::Userfaultfd => Some("the program handles the page faults of the mapping itself (userfaultfd)"),
        Skip::Unreadable => Some("the process itself may not read some of its mappings (PROT_NONE)"),
        Skip::NoHugePage => Some("the kernel found no free huge page"),
        Skip::CgroupLimit => Some("the memory limit of the process's control group allows no huge page"),
        _ => None,
    }
}

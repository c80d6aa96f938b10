//! Result and cost of a reclaim or a prefetch.

use thermo_units::{Bytes, Nanos};

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All memory was processed.
    Done,
    /// The job was stopped between two calls because the application returned.
    Cancelled,
    /// The kernel refused, with the reason in a sentence.
    Failed(String),
}

impl Outcome {
    /// The name in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }
}

/// Result and cost of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCost {
    /// How the job ended.
    pub outcome: Outcome,
    /// Bytes for which the kernel accepted the advice.
    pub advised: Bytes,
    /// Bytes that were resident before and not after.
    pub freed: Bytes,
    /// Growth of the memory of all zram devices during the job, from any source; `None` without zram.
    pub compressed_growth: Option<Bytes>,
    /// CPU time of the thread that ran the job.
    pub cpu: Nanos,
    /// Time from start to end, pauses included.
    pub elapsed: Nanos,
    /// Number of calls.
    pub calls: u32,
    /// The longest call: the longest time a returning application may have to wait.
    pub longest_call: Nanos,
    /// Time from the event that caused the job to the first bytes freed.
    pub reaction: Option<Nanos>,
    /// Resident anonymous memory after the job.
    pub anon_rss_after: Option<Bytes>,
    /// Working set of the application before its last page-out, if known.
    pub working_set: Option<Bytes>,
}

impl JobCost {
    /// The cost of a job that did nothing.
    #[must_use]
    pub const fn zero(outcome: Outcome) -> Self {
        Self {
            outcome,
            advised: Bytes::ZERO,
            freed: Bytes::ZERO,
            compressed_growth: None,
            cpu: Nanos::ZERO,
            elapsed: Nanos::ZERO,
            calls: 0,
            longest_call: Nanos::ZERO,
            reaction: None,
            anon_rss_after: None,
            working_set: None,
        }
    }

    /// CPU time in milliseconds per MiB freed; `None` if nothing was freed.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "printed with two digits")]
    pub fn cpu_ms_per_mib(&self) -> Option<f64> {
        let mib = self.freed.0 as f64 / (1 << 20) as f64;
        (self.freed > Bytes::ZERO).then(|| self.cpu.0 as f64 / 1e6 / mib)
    }
}

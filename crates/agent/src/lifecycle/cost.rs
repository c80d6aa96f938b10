//! What a reclaim or a prefetch did and cost.

use thermo_units::{Bytes, Nanos};

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Everything was gone through.
    Done,
    /// It was stopped between two calls: the application came back.
    Cancelled,
    /// It could not be done: why, in a sentence.
    Failed(String),
}

impl End {
    /// The word for it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }
}

/// What was done and what it cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// How it ended.
    pub end: End,
    /// Bytes the kernel took the advice for.
    pub advised: Bytes,
    /// Bytes seen to have left memory.
    pub freed: Bytes,
    /// By how much compressed swap (zram) grew meanwhile, whoever filled it; `None` where there is none.
    pub compressed_growth: Option<Bytes>,
    /// Our CPU time.
    pub cpu: Nanos,
    /// From the first to the last call, pauses included.
    pub elapsed: Nanos,
    /// Calls made.
    pub calls: u32,
    /// The longest of them: what an application that comes back may have to wait for.
    pub longest_call: Nanos,
    /// From the word that caused it to the first bytes freed.
    pub reaction: Option<Nanos>,
    /// Resident anonymous memory afterwards.
    pub anon_rss_after: Option<Bytes>,
    /// What is known of what the application used last time.
    pub working_set: Option<Bytes>,
}

impl Cost {
    /// Of nothing done.
    #[must_use]
    pub const fn of_nothing(end: End) -> Self {
        Self {
            end,
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

    /// Milliseconds of CPU time for each MiB freed; `None` when nothing was.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    pub fn cpu_ms_per_mib(&self) -> Option<f64> {
        let mib = self.freed.0 as f64 / (1 << 20) as f64;
        (self.freed > Bytes::ZERO).then(|| self.cpu.0 as f64 / 1e6 / mib)
    }
}

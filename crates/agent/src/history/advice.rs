//! The advice of `thermo advise`, from the history of a target.

use thermo_report::advice::{AdviceAccumulator, Bounds, Exclusive, Question};

use super::{Past, Span};
use crate::api::{Period, Refusal, UnixMillis};

impl Past {
    /// The advice for `period` as JSON, with the bounds that `thermo advise` has by default. No page is read:
    /// what pages compress to is assumed. Without an end, the period ends at `now_ms`.
    ///
    /// # Errors
    /// There is no such target, or the history cannot be read.
    pub fn advice(&self, period: &Period, now_ms: UnixMillis) -> Result<serde_json::Value, Refusal> {
        let span = Span::new(period, now_ms)?;
        let watched = self.report(period, span, true, AdviceAccumulator::default())?;
        if watched.unavailable_reason().is_some() {
            return Err(Refusal::Unavailable(format!(
                "the history has no snapshot of {:?} in this period yet: ask for a longer one",
                period.target
            )));
        }
        let advice = watched.advise(&Question {
            bounds: Bounds::default(),
            samples: Vec::new(),
            exclusive: Exclusive::default(),
            costs: None,
            swap: None,
        });
        serde_json::to_value(&advice).map_err(|error| Refusal::Unavailable(error.to_string()))
    }
}

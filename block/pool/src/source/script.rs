//! A source for tests: pressure at given times.

use thermo_units::Nanos;

use super::{Source, SourceError};

/// Reports once for each given time, at the first check at or after it.
#[derive(Debug, Clone)]
pub struct ScriptedSource {
    times: Vec<Nanos>,
}

impl ScriptedSource {
    /// Reports at these times (monotonic).
    #[must_use]
    pub fn new(mut times: Vec<Nanos>) -> Self {
        times.sort_unstable();
        times.reverse();
        Self { times }
    }
}

impl Source for ScriptedSource {
    fn name(&self) -> String {
        "script".to_owned()
    }

    fn check(&mut self, now: Nanos) -> Result<Option<String>, SourceError> {
        let due = self.times.pop_if(|time| *time <= now);
        Ok(due.map(|time| format!("scripted for {time}")))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn scripted_source_reports_each_time_once() {
        let mut script = ScriptedSource::new(vec![Nanos(20), Nanos(10)]);
        let mut ask = |now| script.check(Nanos(now)).unwrap().is_some();
        assert_eq!(
            [9, 10, 11, 30, 31].map(&mut ask),
            [false, true, false, true, false]
        );
    }
}

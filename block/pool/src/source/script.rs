//! A source for tests: pressure at moments that are written down.

use thermo_units::Nanos;

use super::{Source, SourceError};

/// Reports once at each of its moments, or when first asked after it.
#[derive(Debug, Clone)]
pub struct Script {
    moments: Vec<Nanos>,
}

impl Script {
    /// Of these moments of monotonic time.
    #[must_use]
    pub fn new(mut moments: Vec<Nanos>) -> Self {
        moments.sort_unstable();
        moments.reverse();
        Self { moments }
    }
}

impl Source for Script {
    fn name(&self) -> String {
        "script".to_owned()
    }

    fn check(&mut self, now: Nanos) -> Result<Option<String>, SourceError> {
        let due = self.moments.pop_if(|moment| *moment <= now);
        Ok(due.map(|moment| format!("as written for {moment}")))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn each_moment_reports_once() {
        let mut script = Script::new(vec![Nanos(20), Nanos(10)]);
        let mut ask = |now| script.check(Nanos(now)).unwrap().is_some();
        assert_eq!(
            [9, 10, 11, 30, 31].map(&mut ask),
            [false, true, false, true, false]
        );
    }
}

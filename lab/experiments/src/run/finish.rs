//! The end of a run: everything is stopped, and what was printed is looked at.

use std::time::Duration;

use rustix::process::Signal;

use super::{GRACE, Running, ended};
use crate::error::RunFailure;
use crate::metric;
use crate::process::{bad_end, tail};
use crate::sample::Outcome;

impl Running<'_> {
    /// Stops everything, and believes the result only if every program says that it is right.
    pub(super) fn finish(mut self, mut outcome: Outcome) -> Result<Outcome, RunFailure> {
        let printed = self.stop()?;
        if let Some(check) = self
            .workload
            .check
            .as_ref()
            .filter(|check| !check.is_match(&printed))
        {
            let sentence = format!(
                "the output has no {check:?}, the sign of a right result: {}",
                tail(&printed)
            );
            return Err(RunFailure::wrong(sentence));
        }
        for (name, pattern) in &self.workload.latency {
            let number = pattern
                .captures(&printed)
                .and_then(|found| found.get(1)?.as_str().parse::<f64>().ok());
            let number = number.filter(|number| number.is_finite()).ok_or_else(|| {
                RunFailure::wrong(format!(
                    "the output has no number at {pattern:?}: {}",
                    tail(&printed)
                ))
            })?;
            outcome
                .measured
                .insert(format!("{}{name}", metric::LATENCY), number);
        }
        Ok(outcome)
    }

    /// Stops what runs, none of which may have ended badly; what the load and the command printed.
    fn stop(&mut self) -> Result<String, RunFailure> {
        if let Some(mut thermo) = self.attached.take() {
            let status = thermo.end(Signal::INT, GRACE);
            let interrupted = status.is_some_and(|status| status.code() == Some(130));
            if let Some(how) = status.and_then(bad_end).filter(|_| !interrupted) {
                return Err(RunFailure::wrong(format!(
                    "thermo {how}: {}",
                    tail(&thermo.printed())
                )));
            }
        }
        let mut printed = String::new();
        if let Some(load) = self.load.take() {
            printed.push_str(&load.printed());
            let command = self.command.as_mut();
            // A server that died under its load is a failure even if the load did not mind.
            if let Some((status, said)) = command.and_then(|command| ended(command, Duration::ZERO)) {
                let how = bad_end(status).unwrap_or_else(|| "ended".into());
                return Err(RunFailure::wrong(format!(
                    "the command {how} under its load: {}",
                    tail(&said)
                )));
            }
        }
        if let Some(mut command) = self.command.take() {
            command.end(Signal::TERM, GRACE);
            printed.push_str(&command.printed());
        }
        Ok(printed)
    }
}

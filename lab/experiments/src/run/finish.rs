//! The end of a run: stops all programs and checks their output.

use std::time::Duration;

use rustix::process::Signal;

use super::{ActiveRun, GRACE, wait_for_end};
use crate::error::RunFailure;
use crate::metric;
use crate::process::{describe_failure, last_lines};
use crate::sample::Outcome;

impl ActiveRun<'_> {
    /// Stops all programs. Fails unless the output matches the workload's check and has all latencies.
    pub(super) fn finish(mut self, mut outcome: Outcome) -> Result<Outcome, RunFailure> {
        let printed = self.stop()?;
        if let Some(check) = self
            .workload
            .check
            .as_ref()
            .filter(|check| !check.is_match(&printed))
        {
            let message = format!(
                "the output has no {check:?}, so the result is wrong: {}",
                last_lines(&printed)
            );
            return Err(RunFailure::failed(message));
        }
        for (name, pattern) in &self.workload.latency {
            let number = pattern
                .captures(&printed)
                .and_then(|found| found.get(1)?.as_str().parse::<f64>().ok());
            let number = number.filter(|number| number.is_finite()).ok_or_else(|| {
                RunFailure::failed(format!(
                    "the output has no number for {pattern:?}: {}",
                    last_lines(&printed)
                ))
            })?;
            outcome
                .measured
                .insert(format!("{}{name}", metric::LATENCY), number);
        }
        Ok(outcome)
    }

    /// Stops all programs and returns the output of the load and the command. Fails when a program failed.
    fn stop(&mut self) -> Result<String, RunFailure> {
        if let Some(mut thermo) = self.attached.take() {
            let status = thermo.end(Signal::INT, GRACE);
            let interrupted = status.is_some_and(|status| status.code() == Some(130));
            if let Some(how) = status.and_then(describe_failure).filter(|_| !interrupted) {
                return Err(RunFailure::failed(format!(
                    "thermo {how}: {}",
                    last_lines(&thermo.printed())
                )));
            }
        }
        let mut printed = String::new();
        if let Some(load) = self.load.take() {
            printed.push_str(&load.printed());
            let command = self.command.as_mut();
            // A server that ended during the load is a failure even if the load succeeded.
            if let Some((status, output)) = command.and_then(|command| wait_for_end(command, Duration::ZERO))
            {
                let how = describe_failure(status).unwrap_or_else(|| "ended".into());
                return Err(RunFailure::failed(format!(
                    "the command {how} during its load: {}",
                    last_lines(&output)
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
